// SPDX-License-Identifier: Apache-2.0
//
// The stream of call numbers that manual_seed() starts: what is left out of one call is left out of
// no other.

#pragma once

#include <cstdint>

#include <Python.h>

#include "fovea/attention_options.h"

namespace fovea::python {

/// The probability with the stream's seed and next call number; it goes on by `calls`, which are
/// the ones from there on.
Dropout next_dropout(double probability, std::uint32_t calls = 1);

/// A probability in [0, 1). Throws nb::type_error and nb::value_error naming the argument.
double probability_of(PyObject* object, const char* name);

}  // namespace fovea::python
