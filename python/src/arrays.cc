// SPDX-License-Identifier: Apache-2.0
//
// Arrays of the caller's (arrays.h).

#include "arrays.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include "calls.h"

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

/// A module that somebody has imported, or null. Borrowed.
PyObject* imported(const char* name) {
  PyObject* const modules = PyImport_GetModuleDict();
  return modules == nullptr ? nullptr : PyDict_GetItemString(modules, name);
}

bool is_instance(PyObject* object, const char* module_name, const char* type_name) {
  PyObject* const module = imported(module_name);
  if (module == nullptr) return false;
  const nb::object type = nb::steal(PyObject_GetAttrString(module, type_name));
  const int result = type.is_valid() ? PyObject_IsInstance(object, type.ptr()) : -1;
  if (result < 0) PyErr_Clear();
  return result == 1;
}

// ---- DLPack (its version 1.1; before 1.0 there was no `version` and no `flags`)
// -------------------

struct Managed {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};

constexpr std::uint64_t kReadOnlyFlag = 1;

/// DLPack's exchange of tensors without Python's objects, which newer versions of torch have: a
/// fraction of the microseconds that __dlpack__() takes there.
struct Exchange {
  std::uint32_t major;
  std::uint32_t minor;
  Exchange* older;
  int (*allocate)(nb::dlpack::dltensor* prototype, ManagedVersioned** out, void* context,
                  void (*error)(void* context, const char* kind, const char* message));
  int (*managed_of)(void* object, ManagedVersioned** out);
  int (*object_of)(ManagedVersioned* tensor, void** object);
  int (*tensor_of)(void* object, nb::dlpack::dltensor* out);  // may be null
};

/// The exchange of torch.Tensor, once one has come; null where torch has none. That type is kept.
struct Torch {
  PyTypeObject* tensor = nullptr;
  const Exchange* exchange = nullptr;
};
Torch torch_of_arrays;

const Exchange* exchange_of(PyTypeObject* type) {
  const nb::object capsule = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule.is_valid() || !PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
    PyErr_Clear();
    return nullptr;
  }
  // The capsule is an attribute of the type's, which is kept.
  const auto* const exchange =
      static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return exchange->major == 1 && exchange->tensor_of != nullptr ? exchange : nullptr;
}

/// Called when a tensor of torch's has come the long way: the next ones take the short one.
void know_torch() {
  if (torch_of_arrays.tensor != nullptr) return;
  const nb::object type = nb::steal(PyObject_GetAttrString(imported("torch"), "Tensor"));
  if (!type.is_valid() || !PyType_Check(type.ptr())) return PyErr_Clear();
  torch_of_arrays.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.ptr()));
  torch_of_arrays.exchange = exchange_of(torch_of_arrays.tensor);
}

/// Whether an attribute is False, or a method without arguments says so.
bool is_false(PyObject* object, const char* name, bool method) {
  const nb::object value = nb::steal(method ? PyObject_CallMethod(object, name, nullptr)
                                            : PyObject_GetAttrString(object, name));
  if (!value.is_valid()) PyErr_Clear();
  return value.ptr() == Py_False;
}

/// A tensor of torch's own type, looked into at once. What is special (a gradient, a lazy negation,
/// no strides) is left to __dlpack__(), which knows what to say.
bool exchanged(PyObject* source, nb::dlpack::dltensor& tensor) {
  const Exchange* const exchange = torch_of_arrays.exchange;
  if (exchange == nullptr || Py_TYPE(source) != torch_of_arrays.tensor) return false;
  if (!is_false(source, "requires_grad", false) || !is_false(source, "is_neg", true)) return false;
  if (exchange->tensor_of(source, &tensor) == 0) return true;
  PyErr_Clear();
  return false;
}

constexpr int kCpu = 1;

std::string device_name(long type, long id) {
  switch (type) {
    case 2:
      return fmt::format("cuda:{}", id);
    case 8:
      return fmt::format("metal:{}", id);
    case 10:
      return fmt::format("rocm:{}", id);
    default:
      return fmt::format("device {} of DLPack's type {}", id, type);
  }
}

/// Whether the elements are of a type that Fovea has; then `dtype` is it.
bool read_type(const nb::dlpack::dtype& type, DType& dtype) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return false;
  const auto is = [&](Code code, int bits) {
    return type.code == static_cast<std::uint8_t>(code) && type.bits == bits;
  };
  if (is(Code::Float, 32))
    dtype = DType::kFloat32;
  else if (is(Code::Float, 64))
    dtype = DType::kFloat64;
  else if (is(Code::Float, 16))
    dtype = DType::kFloat16;
  else if (is(Code::Bfloat, 16))
    dtype = DType::kBFloat16;
  else if (is(Code::Bool, 8))
    dtype = DType::kBool;
  else if (is(Code::Int, 64))
    dtype = DType::kInt64;
  else
    return false;
  return true;
}

/// Of floats.
nb::dlpack::dtype dlpack_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const Code code = dtype == DType::kBFloat16 ? Code::Bfloat : Code::Float;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * dtype_size(dtype)), 1};
}

std::string type_name(const nb::dlpack::dtype& type) {
  static constexpr std::array kKinds = {"int",    "uint",    "float", "an opaque type of ",
                                        "bfloat", "complex", "bool"};
  const char* const kind = type.code < kKinds.size() ? kKinds[type.code] : "a type of ";
  return fmt::format("{}{}", kind, type.bits);
}

/// "f", "d", "e", "?" of the machine's own byte order, as buffers name their elements.
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
  // ml_dtypes', which neither DLPack nor buffers let through.
  if (!PyTypeNum_ISUSERDEF(descr->type_num)) return false;
  const std::string_view name = descr->typeobj->tp_name;
  if (name != "bfloat16" && !name.ends_with(".bfloat16")) return false;
  dtype = DType::kBFloat16;
  return true;
}

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

bool has_contiguous_rows(const TensorView& view) {
  const int last = view.rank() - 1;
  return last < 0 || view.extent(last) <= 1 || view.strides()[last] == 1;
}

/// Strides of a tensor without elements mean nothing; NumPy's are often all 0.
void tidy_if_empty(const Shape& shape, Strides& strides) {
  if (std::find(shape.begin(), shape.end(), 0) == shape.end()) return;
  for (int dim = 0; dim < strides.rank(); ++dim) strides[dim] = dim + 1 == strides.rank() ? 1 : 0;
}

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

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

void import_numpy() {
  if (PyArray_ImportNumPyAPI() < 0) nb::raise_python_error();
}

// ---- Arrays that come
// ------------------------------------------------------------------------------

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
  // Asked for as writable, or the constructor would have refused it.
  return {const_cast<void*>(view_.data()), view_.dtype(), view_.shape(), view_.strides()};
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
  const auto size = static_cast<npy_intp>(dtype_size(dtype));
  const npy_intp* const extents = PyArray_DIMS(array);
  const npy_intp* const bytes = PyArray_STRIDES(array);
  Shape shape, strides;
  bool whole = PyArray_ISALIGNED(array);
  for (int dim = 0; dim < rank; ++dim) {
    shape.push_back(extents[dim]);
    strides.push_back(bytes[dim] / size);
    whole = whole && (extents[dim] <= 1 || bytes[dim] % size == 0);
  }
  tidy_if_empty(shape, strides);
  view_ = TensorView(PyArray_DATA(array), dtype, shape, strides);
  if (whole && (!request.contiguous_rows || has_contiguous_rows(view_))) return true;
  if (request.writable) {
    if (whole) return true;  // the engine says what it thinks of the strides
    raise_value_error("{}: expected aligned elements, got an array whose elements are not",
                      request.name);
  }
  if (owned_ != nullptr) return true;  // of the copy, which is contiguous
  owned_ = PyArray_NewCopy(array, NPY_CORDER);
  if (owned_ == nullptr) nb::raise_python_error();
  return read_numpy(owned_, request);
}

bool Array::read_dlpack(const ArrayRequest& request) {
  if (nb::dlpack::dltensor tensor; exchanged(source_, tensor)) {
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
  if (!place.is_valid()) {
    raise_from_python(
        PyExc_ValueError,
        fmt::format("{}: expected memory of the CPU, got {} that does not say where it lies",
                    request.name, describe(source_)));
  }
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
      PyErr_Clear();  // older than max_version
      capsule = nb::steal(PyObject_CallNoArgs(ask.ptr()));
    }
    if (!capsule.is_valid()) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
      // Torch refuses what requires a gradient, and says so.
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
  // A capsule that nobody has taken frees the tensor itself when it goes.
  owned_ = capsule.release().ptr();

  if (is_instance(source_, "torch", "Tensor")) {
    framework_ = Framework::kTorch;
    know_torch();
    if (!is_false(source_, "is_neg", true)) {
      raise_value_error(
          "{}: expected a tensor that is stored as it reads, got one with a lazy "
          "negation; {}.resolve_neg() has none",
          request.name, request.name);
    }
  } else if (is_instance(source_, "jax", "Array")) {
    framework_ = Framework::kJax;
    // Which DLPack does not say.
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
  Shape shape;
  for (int dim = 0; dim < tensor.ndim; ++dim) {
    if (tensor.shape[dim] < 0) {
      raise_value_error("{}: expected extents of 0 or more, got {}", request.name,
                        tensor.shape[dim]);
    }
    shape.push_back(tensor.shape[dim]);
  }
  Strides strides;
  if (tensor.strides != nullptr) {
    for (int dim = 0; dim < tensor.ndim; ++dim) strides.push_back(tensor.strides[dim]);
  } else {
    strides = contiguous_strides(shape);
  }
  tidy_if_empty(shape, strides);
  const auto* const data = static_cast<const std::byte*>(tensor.data);
  view_ = TensorView(data == nullptr ? nullptr : data + tensor.byte_offset, dtype, shape, strides);
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
  Shape shape, strides;
  const auto size = static_cast<Py_ssize_t>(dtype_size(dtype));
  bool whole = reinterpret_cast<std::uintptr_t>(buffer_->buf) % dtype_size(dtype) == 0;
  for (int dim = 0; dim < buffer_->ndim; ++dim) {
    shape.push_back(buffer_->shape[dim]);
    strides.push_back(buffer_->strides[dim] / size);
    whole = whole && (buffer_->shape[dim] <= 1 || buffer_->strides[dim] % size == 0);
  }
  if (!whole) {
    raise_value_error("{}: expected aligned elements, got a buffer whose elements are not",
                      request.name);
  }
  tidy_if_empty(shape, strides);
  view_ = TensorView(buffer_->buf, dtype, shape, strides);
  if (request.contiguous_rows && !request.writable && !has_contiguous_rows(view_)) {
    copy_ = std::make_unique<Tensor>(view_);
    view_ = *copy_;
  }
  return true;
}

TensorRef keep_array(PyObject* source, const ArrayRequest& request) {
  // Given back by whoever is last, which may be a thread of a call that runs without the GIL.
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

// ---- Arrays that go
// --------------------------------------------------------------------------------

NewArray::NewArray(const Array& like, Framework framework, DType dtype, const Shape& shape)
    : dtype_(dtype) {
  if (framework == Framework::kJax) {
    copy_ = std::make_unique<Tensor>(dtype, shape);
    view_ = copy_->view();
    return;
  }
  if (framework == Framework::kTorch && torch_of_arrays.exchange != nullptr) {
    Shape extents = shape;
    nb::dlpack::dltensor prototype;
    prototype.device.device_type = kCpu;
    prototype.ndim = shape.rank();
    prototype.dtype = dlpack_type(dtype);
    prototype.shape = shape.rank() == 0 ? nullptr : &extents[0];
    ManagedVersioned* made = nullptr;
    void* array = nullptr;
    std::string reason;
    const Exchange& exchange = *torch_of_arrays.exchange;
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
    view_ = MutableTensorView(data, dtype, shape, contiguous_strides(shape));
    return;
  }
  if (framework == Framework::kTorch) {
    const nb::object torch = nb::borrow(imported("torch"));
    const nb::object type = torch.attr(std::string(dtype_name(dtype)).c_str());
    const nb::object array =
        torch.attr("empty")(tuple_of(shape), nb::arg("dtype") = type, nb::arg("device") = "cpu");
    const auto address = nb::cast<std::uintptr_t>(array.attr("data_ptr")());
    view_ = MutableTensorView(reinterpret_cast<void*>(address), dtype, shape,
                              contiguous_strides(shape));
    array_ = Py_NewRef(array.ptr());
    return;
  }
  const auto extents = numpy_shape(shape);
  PyArray_Descr* descr = nullptr;
  if (dtype == DType::kBFloat16) {
    // Where NumPy's array is of bfloat16, its type is known; others have none to give.
    if (!PyArray_Check(like.source()) || like.dtype() != DType::kBFloat16) {
      raise_type_error(
          "query: expected an array of NumPy, torch or JAX where it is of bfloat16, got "
          "{}",
          describe(like.source()));
    }
    descr = PyArray_DESCR(as_array(like.source()));
    Py_INCREF(descr);
  } else {
    descr = PyArray_DescrFromType(numpy_type(dtype));
  }
  array_ = PyArray_NewFromDescr(&PyArray_Type, descr, shape.rank(), extents.data(), nullptr,
                                nullptr, 0, nullptr);
  if (array_ == nullptr) nb::raise_python_error();
  view_ =
      MutableTensorView(PyArray_DATA(as_array(array_)), dtype, shape, contiguous_strides(shape));
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

PyObject* numpy_view(const TensorView& view, PyObject* owner) {
  const auto extents = numpy_shape(view.shape());
  std::array<npy_intp, kMaxRank> strides{};
  for (int dim = 0; dim < view.rank(); ++dim) {
    strides[static_cast<std::size_t>(dim)] = static_cast<npy_intp>(view.strides()[dim]) *
                                             static_cast<npy_intp>(dtype_size(view.dtype()));
  }
  const nb::object array = nb::steal(PyArray_NewFromDescr(
      &PyArray_Type, PyArray_DescrFromType(numpy_type(view.dtype())), view.rank(), extents.data(),
      strides.data(), const_cast<void*>(view.data()), 0, nullptr));
  if (!array.is_valid()) nb::raise_python_error();
  if (PyArray_SetBaseObject(as_array(array.ptr()), Py_NewRef(owner)) < 0) nb::raise_python_error();
  return Py_NewRef(array.ptr());
}

PyObject* numpy_copy(const TensorView& view) {
  const bool half = view.dtype() == DType::kBFloat16;
  const DType dtype = half ? DType::kFloat32 : view.dtype();
  const auto extents = numpy_shape(view.shape());
  const nb::object array =
      nb::steal(PyArray_SimpleNew(view.rank(), extents.data(), numpy_type(dtype)));
  if (!array.is_valid()) nb::raise_python_error();
  const Tensor copy = half ? convert(view, dtype) : Tensor(view);
  const auto bytes = static_cast<std::size_t>(copy.size()) * dtype_size(dtype);
  if (bytes > 0) std::memcpy(PyArray_DATA(as_array(array.ptr())), copy.view().data(), bytes);
  return Py_NewRef(array.ptr());
}

Tensor int64_tensor(PyObject* source, const char* name) {
  // First as what it is: asked for integers at once, NumPy would cut off fractions in lists.
  nb::object array = nb::steal(PyArray_FromAny(source, nullptr, 0, kMaxRank, 0, nullptr));
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
  return Tensor(TensorView(static_cast<const std::int64_t*>(PyArray_DATA(numbers)), shape));
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
