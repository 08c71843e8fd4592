// SPDX-License-Identifier: Apache-2.0
//
// New arrays of the caller's kind: NumPy's, torch's, JAX's.

#pragma once

#include <memory>

#include <Python.h>

#include "fovea/tensor.h"

#include "arrays/arrays.h"

namespace fovea::python {

/// A new array of a framework, laid out row by row; of bfloat16 in NumPy it is of the type that
/// `like` has. Throws nb::python_error (MemoryError) and nb::type_error naming `like` as `name`.
class NewArray {
 public:
  NewArray(const Array& like, Framework framework, DType dtype, const Shape& shape,
           const char* name = "query");
  NewArray(NewArray&& other) noexcept;
  NewArray& operator=(NewArray&&) = delete;
  ~NewArray();

  const MutableTensorView& view() const { return view_; }
  /// The array, a new reference.
  PyObject* release();

 private:
  PyObject* array_ = nullptr;     // NumPy's or torch's
  std::unique_ptr<Tensor> copy_;  // JAX's to be
  MutableTensorView view_;
  DType dtype_;
};

/// A NumPy array that looks into memory which `owner` keeps; read-only. A new reference.
PyObject* numpy_view(const TensorView& view, PyObject* owner);
/// The same, to be written to.
PyObject* numpy_writable_view(const MutableTensorView& view, PyObject* owner);
/// A NumPy array with a copy; of bfloat16 in float32, which holds all of its numbers. A new
/// reference.
PyObject* numpy_copy(const TensorView& view);

}  // namespace fovea::python
