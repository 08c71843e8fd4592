// SPDX-License-Identifier: Apache-2.0
//
// New arrays in the caller's array library: NumPy, torch or JAX.

#pragma once

#include <memory>

#include <Python.h>

#include "fovea/tensor.h"

#include "arrays/arrays.h"

namespace fovea::python {

/// A new row-major array of a framework. A NumPy bfloat16 array takes its dtype from `like`. Throws
/// nb::python_error (MemoryError), and nb::type_error, whose message calls `like` by `name`.
class NewArray {
 public:
  NewArray(const Array& like, Framework framework, DType dtype, const Shape& shape,
           const char* name = "query");
  /// A NumPy array of a type other than bfloat16, whose elements have no values yet.
  NewArray(DType dtype, const Shape& shape);
  NewArray(NewArray&& other) noexcept;
  NewArray& operator=(NewArray&&) = delete;
  ~NewArray();

  const MutableTensorView& view() const { return view_; }
  /// Returns the array, a new reference.
  PyObject* release();

 private:
  /// Takes the reference to `descr`, a NumPy dtype.
  void make_numpy(PyObject* descr, const Shape& shape);

  PyObject* array_ = nullptr;     // NumPy or torch
  std::unique_ptr<Tensor> copy_;  // becomes a JAX array in release()
  MutableTensorView view_;
  DType dtype_;
};

/// Returns a read-only NumPy array on memory that `owner` keeps alive. A new reference.
PyObject* numpy_view(const TensorView& view, PyObject* owner);
/// Returns a writable NumPy array on memory that `owner` keeps alive. A new reference.
PyObject* numpy_writable_view(const MutableTensorView& view, PyObject* owner);
/// Returns a copy as a NumPy array; bfloat16 becomes float32, which is exact. A new reference.
PyObject* numpy_copy(const TensorView& view);

}  // namespace fovea::python
