// SPDX-License-Identifier: Apache-2.0
//
// The stream of dropout call numbers that manual_seed() starts. Each call drops independently.

#pragma once

#include <cstdint>

#include <Python.h>

#include "fovea/attention_options.h"

namespace fovea::python {

/// Returns a Dropout with the stream's seed and next call number, and advances the stream by
/// `calls` numbers.
Dropout next_dropout(double probability, std::uint32_t calls = 1);

/// Returns a probability in [0, 1). Throws nb::type_error and nb::value_error naming the argument.
double probability_of(PyObject* object, const char* name);

}  // namespace fovea::python
