// SPDX-License-Identifier: Apache-2.0
//
// Errors of calls whose arguments do not fit a nanobind function.

#pragma once

#include <nanobind/nanobind.h>

namespace fovea::python {

/// Makes all nanobind functions of the module and its classes raise errors that name the argument,
/// the expected and the actual type, instead of nanobind's list of signatures. Call this after the
/// last function was added. fovea._arguments composes the messages.
void name_arguments_in_errors(const nanobind::module_& module);

}  // namespace fovea::python
