// SPDX-License-Identifier: Apache-2.0

#include "arrays/new_arrays.h"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "arrays/calls.h"
#include "arrays/dlpack.h"
#include "arrays/numpy_api.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

int numpy_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return NPY_FLOAT;
    case DType::kFloat64:
      return NPY_DOUBLE;
    case DType::kFloat16:
      return NPY_HALF;
    case DType::kInt64:
      return NPY_INT64;
    case DType::kBool:
      return NPY_BOOL;
    case DType::kBFloat16:
      break;
  }
  return NPY_NOTYPE;
}

/// Returns NumPy's dtype, a new reference.
PyObject* numpy_descr(DType dtype) {
  return reinterpret_cast<PyObject*>(PyArray_DescrFromType(numpy_type(dtype)));
}

std::array<npy_intp, kMaxRank> numpy_shape(const Shape& shape) {
  std::array<npy_intp, kMaxRank> extents{};
  for (int dim = 0; dim < shape.rank(); ++dim) {
    extents[static_cast<std::size_t>(dim)] = static_cast<npy_intp>(shape[dim]);
  }
  return extents;
}

nb::object tuple_of(const Shape& shape) {
  const nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  if (!tuple.is_valid()) nb::raise_python_error();
  for (int dim = 0; dim < shape.rank(); ++dim) {
    PyObject* const extent = PyLong_FromLongLong(shape[dim]);
    if (extent == nullptr) nb::raise_python_error();
    PyTuple_SET_ITEM(tuple.ptr(), dim, extent);
  }
  return tuple;
}

}  // namespace

NewArray::NewArray(const Array& like, Framework framework, DType dtype, const Shape& shape,
                   const char* name)
    : dtype_(dtype) {
  if (framework == Framework::kJax) {
    copy_ = std::make_unique<Tensor>(dtype, shape);
    view_ = copy_->view();
    return;
  }
  if (framework == Framework::kTorch) refuse_tracing();
  if (framework == Framework::kTorch && torch_exchange() != nullptr) {
    Shape extents = shape;
    nb::dlpack::dltensor prototype;
    prototype.device.device_type = kCpu;
    prototype.ndim = shape.rank();
    prototype.dtype = dlpack_type(dtype);
    prototype.shape = shape.rank() == 0 ? nullptr : &extents[0];
    ManagedVersioned* made = nullptr;
    void* array = nullptr;
    std::string reason;
    const Exchange& exchange = *torch_exchange();
    const auto note = [](void* context, const char*, const char* message) {
      *static_cast<std::string*>(context) = message;
    };
    if (exchange.allocate(&prototype, &made, &reason, note) != 0 || made == nullptr) {
      PyErr_Format(PyExc_MemoryError, "fovea: torch made no tensor: %s", reason.c_str());
      nb::raise_python_error();
    }
    void* const data = made->tensor.data;
    if (exchange.object_of(made, &array) != 0) nb::raise_python_error();
    array_ = static_cast<PyObject*>(array);
    view_ = MutableTensorView(data, dtype, shape);
    return;
  }
  if (framework == Framework::kTorch) {
    const nb::object torch = nb::borrow(imported("torch"));
    const nb::object type = torch.attr(std::string(dtype_name(dtype)).c_str());
    const nb::object array =
        torch.attr("empty")(tuple_of(shape), nb::arg("dtype") = type, nb::arg("device") = "cpu");
    const auto address = nb::cast<std::uintptr_t>(array.attr("data_ptr")());
    view_ = MutableTensorView(reinterpret_cast<void*>(address), dtype, shape);
    array_ = Py_NewRef(array.ptr());
    return;
  }
  if (dtype != DType::kBFloat16) {
    make_numpy(numpy_descr(dtype), shape);
    return;
  }
  // NumPy's bfloat16 dtype is only available from an existing NumPy bfloat16 array.
  if (!PyArray_Check(like.source()) || like.dtype() != DType::kBFloat16) {
    raise_type_error("{}: expected an array of NumPy, torch or JAX where it is of bfloat16, got {}",
                     name, describe(like.source()));
  }
  make_numpy(Py_NewRef(PyArray_DESCR(as_array(like.source()))), shape);
}

NewArray::NewArray(DType dtype, const Shape& shape) : dtype_(dtype) {
  make_numpy(numpy_descr(dtype), shape);
}

void NewArray::make_numpy(PyObject* descr, const Shape& shape) {
  const auto extents = numpy_shape(shape);
  element_count(shape);  // throws if there are too many
  array_ = PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(descr),
                                shape.rank(), extents.data(), nullptr, nullptr, 0, nullptr);
  if (array_ == nullptr) nb::raise_python_error();
  std::construct_at(&view_, PyArray_DATA(as_array(array_)), dtype_, shape);
}

NewArray::NewArray(NewArray&& other) noexcept
    : array_(std::exchange(other.array_, nullptr)),
      copy_(std::move(other.copy_)),
      view_(other.view_),
      dtype_(other.dtype_) {}

NewArray::~NewArray() { Py_XDECREF(array_); }

PyObject* NewArray::release() {
  if (copy_ == nullptr) return std::exchange(array_, nullptr);
  std::array<std::size_t, kMaxRank> extents{};
  const Shape shape = view_.shape();
  for (int dim = 0; dim < shape.rank(); ++dim) {
    extents[static_cast<std::size_t>(dim)] = static_cast<std::size_t>(shape[dim]);
  }
  const nb::capsule owner(copy_.release(),
                          [](void* tensor) noexcept { delete static_cast<Tensor*>(tensor); });
  return nb::cast(nb::ndarray<nb::jax>(view_.data(), static_cast<std::size_t>(shape.rank()),
                                       extents.data(), owner, nullptr, dlpack_type(dtype_)))
      .release()
      .ptr();
}

namespace {

PyObject* view_of(const TensorView& view, int flags, PyObject* owner) {
  const auto extents = numpy_shape(view.shape());
  std::array<npy_intp, kMaxRank> strides{};
  for (int dim = 0; dim < view.rank(); ++dim) {
    strides[static_cast<std::size_t>(dim)] = static_cast<npy_intp>(view.strides()[dim]) *
                                             static_cast<npy_intp>(dtype_size(view.dtype()));
  }
  const nb::object array = nb::steal(PyArray_NewFromDescr(
      &PyArray_Type, PyArray_DescrFromType(numpy_type(view.dtype())), view.rank(), extents.data(),
      strides.data(), const_cast<void*>(view.data()), flags, nullptr));
  if (!array.is_valid()) nb::raise_python_error();
  if (PyArray_SetBaseObject(as_array(array.ptr()), Py_NewRef(owner)) < 0) nb::raise_python_error();
  return Py_NewRef(array.ptr());
}

}  // namespace

PyObject* numpy_view(const TensorView& view, PyObject* owner) { return view_of(view, 0, owner); }

PyObject* numpy_writable_view(const MutableTensorView& view, PyObject* owner) {
  return view_of(view, NPY_ARRAY_WRITEABLE, owner);
}

PyObject* numpy_copy(const TensorView& view) {
  const bool half = view.dtype() == DType::kBFloat16;
  const DType dtype = half ? DType::kFloat32 : view.dtype();
  NewArray array(dtype, view.shape());
  const bool as_it_is = !half && view.strides() == contiguous_strides(view.shape());
  const Tensor copy = as_it_is ? Tensor() : convert(view, dtype);
  const auto bytes = static_cast<std::size_t>(view.size()) * dtype_size(dtype);
  const void* const from = as_it_is ? view.data() : copy.view().data();
  if (bytes > 0) std::memcpy(array.view().data(), from, bytes);
  return array.release();
}

}  // namespace fovea::python
