// SPDX-License-Identifier: Apache-2.0
//
// Arrays of the caller's as tensors, without a copy. NumPy's are looked into through its C
// interface, which takes a few nanoseconds; all others come by DLPack (torch, JAX) or by the buffer
// protocol.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "fovea/tensor.h"

namespace fovea::python {

/// Imports NumPy, once, before anything else here. Throws nb::python_error.
void import_numpy();

/// Whose array it is, and so whose the results are.
enum class Framework : std::uint8_t { kNumpy, kTorch, kJax };

/// What the elements may be.
enum class Elements : std::uint8_t { kFloats, kBools, kBoolsOrFloats };

struct ArrayRequest {
  const char* name = nullptr;  ///< the argument, for messages
  Elements elements = Elements::kFloats;
  /// The last dimension has to be contiguous: what isn't is copied.
  bool contiguous_rows = false;
  /// To be written to; then nothing is copied.
  bool writable = false;
};

/// An array as a tensor of its own rank. Keeps alive what it looks into beside the array itself,
/// which the caller holds. Belongs to who holds the GIL.
class Array {
 public:
  /// Throws nb::type_error for what is no array or has other elements, nb::value_error for memory
  /// that isn't the CPU's or can't be written to, naming the argument; nb::python_error.
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
  void release() noexcept;

  PyObject* source_;           // borrowed
  PyObject* owned_ = nullptr;  // a copy, or what DLPack gave
  Py_buffer* buffer_ = nullptr;
  std::unique_ptr<Tensor> copy_;
  TensorView view_;
  Framework framework_ = Framework::kNumpy;
};

/// A view of what a tensor looks into that keeps it: for tensors that outlive a call.
TensorRef keep_array(PyObject* source, const ArrayRequest& request);

/// [batch, heads, length, dim] of a tensor of 2, 3 or 4 dimensions.
template <class View>
View with_rank_4(const View& view) {
  Shape shape{1, 1, 1, 1};
  Strides strides{0, 0, 0, 0};
  const int missing = 4 - view.rank();
  for (int dim = 0; dim < view.rank(); ++dim) {
    shape[dim + missing] = view.extent(dim);
    strides[dim + missing] = view.strides()[dim];
  }
  return {view.data(), view.dtype(), shape, strides};
}

/// [batch, heads, length] of lse, which has one dimension less.
template <class View>
View with_rank_3(const View& view) {
  Shape shape{1, 1, 1};
  Strides strides{0, 0, 0};
  const int missing = 3 - view.rank();
  for (int dim = 0; dim < view.rank(); ++dim) {
    shape[dim + missing] = view.extent(dim);
    strides[dim + missing] = view.strides()[dim];
  }
  return {view.data(), view.dtype(), shape, strides};
}

/// Integers of any kind that int64 holds: arrays, lists. Throws nb::type_error naming the argument.
Tensor int64_tensor(PyObject* source, const char* name);

/// What str() says.
std::string text_of(PyObject* object);
/// "an array of float32 and shape (3, 4)", "list": what came, for messages.
std::string describe(PyObject* object);

}  // namespace fovea::python
