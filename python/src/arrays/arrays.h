// SPDX-License-Identifier: Apache-2.0
//
// The caller's arrays as tensors, without a copy. NumPy arrays are read through NumPy's C API,
// which takes a few nanoseconds; all others through DLPack (torch, JAX) or the buffer protocol.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "fovea/tensor.h"

namespace fovea::python {

/// Imports NumPy's C API. Must be called once, before any other function here. Throws
/// nb::python_error.
void import_numpy();

/// The array library of an argument; results use the same library.
enum class Framework : std::uint8_t { kNumpy, kTorch, kJax };

/// The accepted element types.
enum class Elements : std::uint8_t { kFloats, kBools, kBoolsOrFloats };

struct ArrayRequest {
  const char* name = nullptr;  ///< the argument, for error messages
  Elements elements = Elements::kFloats;
  /// Copies the array if its last dimension is not contiguous.
  bool contiguous_rows = false;
  /// Requires a writable array, which is never copied.
  bool writable = false;
  /// The caller guarantees that a torch tensor requires no gradient.
  bool without_gradient = false;
};

/// An array as a tensor of the same rank. Owns the resources behind the view, except the array
/// itself, which the caller keeps alive. Requires the GIL.
class Array {
 public:
  /// Throws nb::type_error for objects that are not arrays and for other element types,
  /// nb::value_error for memory that is not on the CPU or not writable; both name the argument.
  /// Also throws nb::python_error.
  Array(PyObject* source, const ArrayRequest& request);
  Array(Array&& other) noexcept;
  Array& operator=(Array&&) = delete;
  ~Array();

  const TensorView& view() const { return view_; }
  MutableTensorView writable_view() const;
  int rank() const { return view_.rank(); }
  DType dtype() const { return view_.dtype(); }
  Framework framework() const { return framework_; }
  PyObject* source() const { return source_; }

 private:
  bool read_numpy(PyObject* source, const ArrayRequest& request);
  bool read_dlpack(const ArrayRequest& request);
  void read_tensor(const nanobind::dlpack::dltensor& tensor, bool read_only,
                   const ArrayRequest& request);
  bool read_buffer(const ArrayRequest& request);
  template <class Extent, class StrideOf>
  void set_view(const void* data, DType dtype, int rank, const Extent* extents,
                const StrideOf& stride_of);
  void release() noexcept;

  PyObject* source_;           // borrowed
  PyObject* owned_ = nullptr;  // a copy, or the DLPack capsule
  Py_buffer* buffer_ = nullptr;
  std::unique_ptr<Tensor> copy_;
  TensorView view_;
  Framework framework_ = Framework::kNumpy;
};

/// Returns a view that keeps its array alive, for tensors that outlive a call.
TensorRef keep_array(PyObject* source, const ArrayRequest& request);

/// Returns a tensor of 2, 3 or 4 dimensions as [batch, heads, length, dim].
template <class View>
View with_rank_4(const View& view) {
  if (view.rank() == 4) return view;
  Shape shape{1, 1, 1, 1};
  Strides strides{0, 0, 0, 0};
  const int missing = 4 - view.rank();
  for (int dim = 0; dim < view.rank(); ++dim) {
    shape[dim + missing] = view.extent(dim);
    strides[dim + missing] = view.strides()[dim];
  }
  return {view.data(), view.dtype(), shape, strides};
}

/// Returns an lse of 1, 2 or 3 dimensions as [batch, heads, length].
template <class View>
View with_rank_3(const View& view) {
  if (view.rank() == 3) return view;
  Shape shape{1, 1, 1};
  Strides strides{0, 0, 0};
  const int missing = 3 - view.rank();
  for (int dim = 0; dim < view.rank(); ++dim) {
    shape[dim + missing] = view.extent(dim);
    strides[dim + missing] = view.strides()[dim];
  }
  return {view.data(), view.dtype(), shape, strides};
}

/// Converts an array or list of integers to int64. Throws nb::type_error naming the argument.
Tensor int64_tensor(PyObject* source, const char* name);

/// Returns str(object).
std::string text_of(PyObject* object);
/// Describes an argument for error messages: "an array of float32 and shape (3, 4)", "list".
std::string describe(PyObject* object);

}  // namespace fovea::python
