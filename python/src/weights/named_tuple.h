// SPDX-License-Identifier: Apache-2.0
//
// Named tuples for results (struct sequences, like os.stat_result).

#pragma once

#include <span>

#include <Python.h>
#include <nanobind/nanobind.h>

namespace fovea::python {

/// Adds the type to the module as `attribute`; it is never released. `description` and the data it
/// points to must live as long as the program.
PyTypeObject* add_named_tuple(nanobind::module_& module, const char* attribute,
                              PyStructSequence_Desc& description);

/// Returns a new reference to an instance with `items`, which are moved from; invalid items become
/// None.
PyObject* make_named_tuple(PyTypeObject* type, std::span<nanobind::object> items);

}  // namespace fovea::python
