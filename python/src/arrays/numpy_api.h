// SPDX-License-Identifier: Apache-2.0
//
// NumPy's C API. All files share its function table, which arrays.cc defines and imports.

#pragma once

#include "fovea/tensor.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL fovea_numpy
#ifndef FOVEA_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

namespace fovea::python {

inline PyArrayObject* as_array(PyObject* object) {
  return reinterpret_cast<PyArrayObject*>(object);
}

}  // namespace fovea::python
