// SPDX-License-Identifier: Apache-2.0
//
// The caller's arrays as tensors (arrays.h).

#include "arrays/arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "arrays/calls.h"
#include "arrays/dlpack.h"
#define FOVEA_IMPORTS_NUMPY
#include "arrays/numpy_api.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

constexpr const char* kFloatNames = "float32, float64, float16 or bfloat16";

const char* expected(Elements elements) {
  switch (elements) {
    case Elements::kBools:
      return "bool";
    case Elements::kBoolsOrFloats:
      return "bool, float32, float64, float16 or bfloat16";
    case Elements::kFloats:
      break;
  }
  return kFloatNames;
}

bool fits(Elements elements, DType dtype) {
  return (elements != Elements::kBools && is_float(dtype)) ||
         (elements != Elements::kFloats && dtype == DType::kBool);
}

[[noreturn]] void refuse_elements(const ArrayRequest& request, const std::string& came) {
  raise_type_error("{}: expected an array of {}, got {}", request.name, expected(request.elements),
                   came);
}

[[noreturn]] void refuse_rank(const ArrayRequest& request, int rank) {
  raise_value_error("{}: expected at most {} dimensions, got {}", request.name, kMaxRank, rank);
}

/// Parses a buffer format: "f", "d", "e" or "?" in native byte order.
bool read_format(const char* format, DType& dtype) {
  std::string_view text = format == nullptr ? "B" : format;
  if (text.starts_with('@') || text.starts_with('=')) text.remove_prefix(1);
  if constexpr (std::endian::native == std::endian::little) {
    if (text.starts_with('<')) text.remove_prefix(1);
  }
  if (text == "f")
    dtype = DType::kFloat32;
  else if (text == "d")
    dtype = DType::kFloat64;
  else if (text == "e")
    dtype = DType::kFloat16;
  else if (text == "?")
    dtype = DType::kBool;
  else
    return false;
  return true;
}

bool read_numpy_type(PyArray_Descr* descr, DType& dtype) {
  switch (descr->type_num) {
    case NPY_FLOAT:
      dtype = DType::kFloat32;
      return true;
    case NPY_DOUBLE:
      dtype = DType::kFloat64;
      return true;
    case NPY_HALF:
      dtype = DType::kFloat16;
      return true;
    case NPY_BOOL:
      dtype = DType::kBool;
      return true;
    default:
      break;
  }
  // The bfloat16 of ml_dtypes, which neither DLPack nor the buffer protocol supports.
  if (!PyTypeNum_ISUSERDEF(descr->type_num)) return false;
  const std::string_view name = descr->typeobj->tp_name;
  if (name != "bfloat16" && !name.ends_with(".bfloat16")) return false;
  dtype = DType::kBFloat16;
  return true;
}

bool has_contiguous_rows(const TensorView& view) {
  const int last = view.rank() - 1;
  return last < 0 || view.extent(last) <= 1 || view.strides()[last] == 1;
}

}  // namespace

void import_numpy() {
  if (PyArray_ImportNumPyAPI() < 0) nb::raise_python_error();
}

Array::Array(PyObject* source, const ArrayRequest& request) : source_(source) {
  try {
    if (read_numpy(source, request) || read_dlpack(request) || read_buffer(request)) return;
  } catch (...) {
    release();
    throw;
  }
  raise_type_error(
      "{}: expected an array (NumPy's, or one with DLPack or the buffer protocol), got {}{}",
      request.name, describe(source),
      PyList_Check(source) || PyTuple_Check(source) ? "; numpy.asarray() makes one of it" : "");
}

Array::Array(Array&& other) noexcept
    : source_(other.source_),
      owned_(std::exchange(other.owned_, nullptr)),
      buffer_(std::exchange(other.buffer_, nullptr)),
      copy_(std::move(other.copy_)),
      view_(other.view_),
      framework_(other.framework_) {}

Array::~Array() { release(); }

void Array::release() noexcept {
  if (owned_ != nullptr) Py_CLEAR(owned_);
  if (buffer_ != nullptr) {
    PyBuffer_Release(buffer_);
    delete buffer_;
    buffer_ = nullptr;
  }
}

MutableTensorView Array::writable_view() const {
  // Called only if `writable` was requested, so the constructor has rejected read-only memory.
  return {const_cast<void*>(view_.data()), view_.dtype(), view_.shape(), view_.strides()};
}

template <class Extent, class StrideOf>
void Array::set_view(const void* data, DType dtype, int rank, const Extent* extents,
                     const StrideOf& stride_of) {
  // Strides of empty arrays are arbitrary, often all 0.
  const bool empty = std::find(extents, extents + rank, 0) != extents + rank;
  std::construct_at(
      &view_, data, dtype, rank, [&](int dim) { return extents[dim]; },
      [&](int dim) { return empty ? std::int64_t{dim + 1 == rank} : stride_of(dim); });
}

bool Array::read_numpy(PyObject* source, const ArrayRequest& request) {
  if (!PyArray_CheckExact(source)) {
    if (!PyArray_Check(source)) return false;
    if (is_instance(source, "numpy.ma", "MaskedArray")) {
      raise_type_error(
          "{}: expected an array without a mask of its own, got a MaskedArray; mask= hides keys",
          request.name);
    }
  }
  PyArrayObject* const array = as_array(source);
  PyArray_Descr* const descr = PyArray_DESCR(array);
  DType dtype = DType::kFloat32;
  if (!read_numpy_type(descr, dtype) || !fits(request.elements, dtype)) {
    refuse_elements(request, text_of(reinterpret_cast<PyObject*>(descr)));
  }
  if (!PyArray_ISNBO(descr->byteorder)) {
    raise_type_error(
        "{}: expected numbers in the machine's byte order, got {}; {}.astype({}.dtype."
        "newbyteorder(\"=\")) has them",
        request.name, text_of(reinterpret_cast<PyObject*>(descr)), request.name, request.name);
  }
  const int rank = PyArray_NDIM(array);
  if (rank > kMaxRank) refuse_rank(request, rank);
  if (request.writable && !PyArray_ISWRITEABLE(array)) {
    raise_value_error("{}: expected an array that can be written to, got a read-only one",
                      request.name);
  }
  // A shift, because divisions would take a tenth of the smallest call's time.
  const int shift = std::countr_zero(dtype_size(dtype));
  const npy_intp* const extents = PyArray_DIMS(array);
  const npy_intp* const bytes = PyArray_STRIDES(array);
  bool whole = PyArray_ISALIGNED(array);
  for (int dim = 0; dim < rank; ++dim) {
    whole = whole && (extents[dim] <= 1 || bytes[dim] >> shift << shift == bytes[dim]);
  }
  set_view(PyArray_DATA(array), dtype, rank, extents, [&](int dim) { return bytes[dim] >> shift; });
  if (whole && (!request.contiguous_rows || has_contiguous_rows(view_))) return true;
  if (request.writable) {
    if (whole) return true;  // the engine checks the strides
    raise_value_error("{}: expected aligned elements, got an array whose elements are not",
                      request.name);
  }
  if (owned_ != nullptr) return true;  // `array` is already the contiguous copy
  owned_ = PyArray_NewCopy(array, NPY_CORDER);
  if (owned_ == nullptr) nb::raise_python_error();
  return read_numpy(owned_, request);
}

bool Array::read_dlpack(const ArrayRequest& request) {
  if (nb::dlpack::dltensor tensor; exchanged(source_, request.without_gradient, tensor)) {
    framework_ = Framework::kTorch;
    read_tensor(tensor, false, request);
    return true;
  }
  const nb::object ask = nb::steal(PyObject_GetAttrString(source_, "__dlpack__"));
  if (!ask.is_valid()) {
    PyErr_Clear();
    return false;
  }
  if (PyType_Check(source_)) return false;
  const nb::object place = nb::steal(PyObject_CallMethod(source_, "__dlpack_device__", nullptr));
  // Tracers of jax.jit and torch.func, tensors on "meta".
  const auto refuse_without_values = [&] {
    raise_from_python(PyExc_ValueError,
                      fmt::format("{}: expected memory of the CPU, got {} without values, as "
                                  "functions get that are traced or transformed{}",
                                  request.name, describe(source_),
                                  is_plain_tensor_of_torch(source_)
                                      ? "; fovea.torch.attention() takes those of torch.func"
                                      : ""));
  };
  if (!place.is_valid()) refuse_without_values();
  long device = 0, id = 0;
  {
    const nb::object first = nb::steal(PySequence_GetItem(place.ptr(), 0));
    const nb::object second =
        nb::steal(first.is_valid() ? PySequence_GetItem(place.ptr(), 1) : nullptr);
    if (second.is_valid()) {
      device = PyLong_AsLong(first.ptr());
      id = PyLong_AsLong(second.ptr());
    }
    if (PyErr_Occurred() != nullptr) {
      raise_from_python(
          PyExc_TypeError,
          fmt::format("{}: expected __dlpack_device__() to give two integers", request.name));
    }
  }
  if (device != kCpu) {
    raise_value_error("{}: expected memory of the CPU, got {}; copy it to the CPU first",
                      request.name, device_name(device, id));
  }

  nb::object capsule;
  {
    const nb::object nothing = nb::steal(PyTuple_New(0));
    const nb::object version = nb::steal(Py_BuildValue("{s:(ii)}", "max_version", 1, 1));
    if (!nothing.is_valid() || !version.is_valid()) nb::raise_python_error();
    capsule = nb::steal(PyObject_Call(ask.ptr(), nothing.ptr(), version.ptr()));
    if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();  // the producer is too old to know max_version
      capsule = nb::steal(PyObject_CallNoArgs(ask.ptr()));
    }
    if (!capsule.is_valid()) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
      nb::python_error error;  // clears the error, because the calls below must not start with one
      if (is_tensor_of_torch(source_)) {
        if (!is_false(source_, "requires_grad")) {
          raise_value_error(
              "{}: expected a tensor without a gradient, got one that requires one; "
              "fovea.torch.attention() takes such, and {}.detach() requires none",
              request.name, request.name);
        }
        const std::string layout = text_of(source_, "layout");
        if (!layout.empty() && layout != "torch.strided") {
          raise_type_error("{}: expected a tensor of layout torch.strided, got one of {}",
                           request.name, layout);
        }
        if (is_false(source_, "is_quantized") && is_false(source_, "is_nested")) {
          error.restore();
          refuse_without_values();
        }
      }
      error.restore();
      raise_from_python(PyExc_ValueError,
                        fmt::format("{}: expected an array that DLPack can take", request.name));
    }
  }

  const nb::dlpack::dltensor* tensor = nullptr;
  bool read_only = false;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* const managed =
        static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->major > 1) {
      raise_type_error("{}: expected DLPack 1, got version {}.{}", request.name, managed->major,
                       managed->minor);
    }
    read_only = (managed->flags & kReadOnlyFlag) != 0;
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    tensor = &static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor;
  } else {
    raise_type_error("{}: expected __dlpack__() to give a capsule of DLPack, got {}", request.name,
                     describe(capsule.ptr()));
  }
  // The capsule is not renamed to "used_...", so its destructor frees the tensor.
  owned_ = capsule.release().ptr();

  if (is_instance(source_, "torch", "Tensor")) {
    framework_ = Framework::kTorch;
    know_torch();
    if (is_causal_bias(source_)) {
      raise_type_error(
          "{}: expected a tensor with values, got PyTorch's CausalBias, which has none; "
          "fovea.causal() is such a mask",
          request.name);
    }
    if (is_negated(source_)) {
      raise_value_error(
          "{}: expected a tensor that is stored as it reads, got one with a lazy "
          "negation; {}.resolve_neg() has none",
          request.name, request.name);
    }
    if (has_tangent(source_)) {
      raise_value_error(
          "{}: expected a tensor without a tangent, got one of forward-mode differentiation, "
          "which Fovea does not have; {}.detach() has none",
          request.name, request.name);
    }
  } else if (is_instance(source_, "jax", "Array")) {
    framework_ = Framework::kJax;
    // DLPack does not report that JAX arrays are immutable.
    if (request.writable) {
      raise_value_error(
          "{}: expected an array that can be written to, got one of JAX's, which never change",
          request.name);
    }
  }
  read_tensor(*tensor, read_only, request);
  return true;
}

void Array::read_tensor(const nb::dlpack::dltensor& tensor, bool read_only,
                        const ArrayRequest& request) {
  if (tensor.device.device_type != kCpu) {
    raise_value_error("{}: expected memory of the CPU, got {}; copy it to the CPU first",
                      request.name,
                      device_name(tensor.device.device_type, tensor.device.device_id));
  }
  DType dtype = DType::kFloat32;
  if (!read_type(tensor.dtype, dtype) || !fits(request.elements, dtype)) {
    refuse_elements(request, type_name(tensor.dtype));
  }
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank) refuse_rank(request, tensor.ndim);
  if (request.writable && read_only) {
    raise_value_error("{}: expected an array that can be written to, got a read-only one",
                      request.name);
  }
  if (request.writable && framework_ == Framework::kTorch) {
    refuse_tracing();
    count_change(source_);
  }
  for (int dim = 0; dim < tensor.ndim; ++dim) {
    if (tensor.shape[dim] < 0) {
      raise_value_error("{}: expected extents of 0 or more, got {}", request.name,
                        tensor.shape[dim]);
    }
  }
  const auto* const first = static_cast<const std::byte*>(tensor.data);
  const void* const data = first == nullptr ? nullptr : first + tensor.byte_offset;
  const bool is_empty = std::any_of(tensor.shape, tensor.shape + tensor.ndim,
                                    [](std::int64_t extent) { return extent == 0; });
  if (data == nullptr && !is_empty) {  // FakeTensors of PyTorch
    raise_value_error(
        "{}: expected memory of the CPU, got {} without values, as functions get that are traced "
        "or transformed",
        request.name, describe(source_));
  }
  if (tensor.strides != nullptr) {
    set_view(data, dtype, tensor.ndim, tensor.shape, [&](int dim) { return tensor.strides[dim]; });
  } else {
    view_ = TensorView(data, dtype,
                       Shape(std::span(tensor.shape, static_cast<std::size_t>(tensor.ndim))));
  }
  if (reinterpret_cast<std::uintptr_t>(view_.data()) % dtype_size(dtype) != 0) {
    raise_value_error("{}: expected aligned elements, got an address that is no multiple of {}",
                      request.name, dtype_size(dtype));
  }
  if (request.contiguous_rows && !request.writable && !has_contiguous_rows(view_)) {
    copy_ = std::make_unique<Tensor>(view_);
    view_ = *copy_;
  }
}

bool Array::read_buffer(const ArrayRequest& request) {
  if (PyObject_CheckBuffer(source_) == 0) return false;
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(source_, buffer.get(),
                         request.writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO) != 0) {
    raise_from_python(PyExc_ValueError,
                      fmt::format("{}: expected a buffer {}, got {}", request.name,
                                  request.writable ? "that can be written to" : "of plain strides",
                                  describe(source_)));
  }
  buffer_ = buffer.release();
  DType dtype = DType::kFloat32;
  if (!read_format(buffer_->format, dtype) || !fits(request.elements, dtype)) {
    refuse_elements(request, fmt::format("a buffer of format \"{}\"",
                                         buffer_->format == nullptr ? "B" : buffer_->format));
  }
  if (buffer_->ndim > kMaxRank) refuse_rank(request, buffer_->ndim);
  const auto size = static_cast<Py_ssize_t>(dtype_size(dtype));
  bool whole = reinterpret_cast<std::uintptr_t>(buffer_->buf) % dtype_size(dtype) == 0;
  for (int dim = 0; dim < buffer_->ndim; ++dim) {
    whole = whole && (buffer_->shape[dim] <= 1 || buffer_->strides[dim] % size == 0);
  }
  if (!whole) {
    raise_value_error("{}: expected aligned elements, got a buffer whose elements are not",
                      request.name);
  }
  set_view(buffer_->buf, dtype, buffer_->ndim, buffer_->shape,
           [&](int dim) { return buffer_->strides[dim] / size; });
  if (request.contiguous_rows && !request.writable && !has_contiguous_rows(view_)) {
    copy_ = std::make_unique<Tensor>(view_);
    view_ = *copy_;
  }
  return true;
}

TensorRef keep_array(PyObject* source, const ArrayRequest& request) {
  // The last owner may be a thread of a call without the GIL, so the destructor acquires the GIL.
  struct Kept {
    Array array;
    PyObject* source;
  };
  auto* const kept = new Kept{Array(source, request), Py_NewRef(source)};
  const TensorView view = kept->array.view();
  return TensorRef(view, std::shared_ptr<const void>(kept, [](Kept* last) {
                     const PyGILState_STATE state = PyGILState_Ensure();
                     PyObject* const object = last->source;
                     delete last;
                     Py_DECREF(object);
                     PyGILState_Release(state);
                   }));
}

Tensor int64_tensor(PyObject* source, const char* name) {
  // Converted without a dtype first, because NumPy would truncate fractions in lists to integers.
  nb::object array = nb::steal(PyArray_FromAny(source, nullptr, 0, kMaxRank, 0, nullptr));
  const bool is_unsigned = array.is_valid() && PyArray_ISUNSIGNED(as_array(array.ptr()));
  if (array.is_valid() && !PyArray_ISINTEGER(as_array(array.ptr())) &&
      PyArray_SIZE(as_array(array.ptr())) > 0) {
    raise_type_error("{}: expected integers, an array or a list of them, got {}", name,
                     text_of(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array.ptr())))));
  }
  if (array.is_valid()) {
    array = nb::steal(PyArray_FromAny(array.ptr(), PyArray_DescrFromType(NPY_INT64), 0, kMaxRank,
                                      NPY_ARRAY_IN_ARRAY | NPY_ARRAY_FORCECAST, nullptr));
  }
  if (!array.is_valid()) {
    raise_from_python(PyExc_TypeError, fmt::format("{}: expected integers, an array or a list of "
                                                   "them, got {}",
                                                   name, describe(source)));
  }
  PyArrayObject* const numbers = as_array(array.ptr());
  Shape shape;
  for (int dim = 0; dim < PyArray_NDIM(numbers); ++dim) shape.push_back(PyArray_DIM(numbers, dim));
  const auto* const first = static_cast<const std::int64_t*>(PyArray_DATA(numbers));
  const std::int64_t* const last = first + PyArray_SIZE(numbers);
  const auto is_negative = [](std::int64_t value) { return value < 0; };
  if (const auto* wrapped = std::find_if(first, last, is_negative);
      is_unsigned && wrapped != last) {
    raise_value_error("{}: expected integers below 2^63, got {}", name,
                      static_cast<std::uint64_t>(*wrapped));
  }
  return Tensor(TensorView(first, shape));
}

std::string text_of(PyObject* object) {
  const nb::object text = nb::steal(PyObject_Str(object));
  const char* const characters = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (characters == nullptr) {
    PyErr_Clear();
    return Py_TYPE(object)->tp_name;
  }
  return characters;
}

std::string describe(PyObject* object) {
  if (object == Py_None) return "None";
  if (PyArray_Check(object)) {
    const nb::object shape = nb::steal(PyObject_GetAttrString(object, "shape"));
    if (!shape.is_valid()) PyErr_Clear();
    return fmt::format("an array of {} and shape {}",
                       text_of(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(object)))),
                       shape.is_valid() ? text_of(shape.ptr()) : "unknown");
  }
  if (PyType_Check(object)) return fmt::format("the type {}", text_of(object));
  return Py_TYPE(object)->tp_name;
}

}  // namespace fovea::python
