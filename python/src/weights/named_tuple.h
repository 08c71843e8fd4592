// SPDX-License-Identifier: Apache-2.0
//
// Results that are tuples with names, as os.stat() has them.

#pragma once

#include <span>

#include <Python.h>
#include <nanobind/nanobind.h>

namespace fovea::python {

/// Adds the type to the module as `attribute`; it is kept for good. `description` and what it names
/// must live as long as the program.
PyTypeObject* add_named_tuple(nanobind::module_& module, const char* attribute,
                              PyStructSequence_Desc& description);

/// One of these: `items`, None where one is invalid, which they are all afterwards. A new
/// reference.
PyObject* make_named_tuple(PyTypeObject* type, std::span<nanobind::object> items);

}  // namespace fovea::python
