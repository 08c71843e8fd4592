// SPDX-License-Identifier: Apache-2.0
//
// fovea.HeadSummary, the result of heads(): a named tuple.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <Python.h>

#include "fovea/heads.h"

#include "arrays/arrays.h"
#include "arrays/new_arrays.h"

namespace fovea::python {

/// The NumPy arrays of a HeadSummary.
class HeadArrays {
 public:
  /// `query` has 2, 3 or 4 dimensions. Throws nb::python_error.
  HeadArrays(const Array& query, DType type);

  /// Returns views of the arrays, for the engine to write to.
  HeadSummary summary(std::int64_t blocks) const;
  /// Returns the fovea.HeadSummary, a new reference.
  PyObject* release();

 private:
  MutableTensorView view(std::size_t field) const;

  std::vector<NewArray> made_;
};

}  // namespace fovea::python
