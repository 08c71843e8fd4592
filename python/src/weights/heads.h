// SPDX-License-Identifier: Apache-2.0
//
// fovea.HeadSummary, what heads() tells: a tuple with names.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <Python.h>

#include "fovea/heads.h"

#include "arrays/arrays.h"
#include "arrays/new_arrays.h"

namespace fovea::python {

/// Its arrays, NumPy's.
class HeadArrays {
 public:
  /// For a query of 2, 3 or 4 dimensions. Throws nb::python_error.
  HeadArrays(const Array& query, DType type);

  /// What writes to them.
  HeadSummary summary(std::int64_t blocks) const;
  /// The fovea.HeadSummary, a new reference.
  PyObject* release();

 private:
  MutableTensorView view(std::size_t field) const;

  std::vector<NewArray> made_;
};

}  // namespace fovea::python
