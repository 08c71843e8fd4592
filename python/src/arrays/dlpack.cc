// SPDX-License-Identifier: Apache-2.0

#include "arrays/dlpack.h"

#include <array>

#include <fmt/format.h>
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace fovea::python {
namespace {

/// The type torch.Tensor, its exchange API, the dictionary of torch.autograd.forward_ad, and
/// functions; never released. They are null before the first call of know_torch(), or if torch
/// lacks them.
struct Torch {
  PyTypeObject* tensor = nullptr;
  const Exchange* exchange = nullptr;
  PyObject* forward_mode = nullptr;
  PyObject* is_autocast_enabled = nullptr;
  PyObject* tracing_state = nullptr;
  PyObject* increment_version = nullptr;
};
Torch torch_of_arrays;

const Exchange* exchange_of(PyTypeObject* type) {
  const nb::object capsule = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule.is_valid() || !PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
    PyErr_Clear();
    return nullptr;
  }
  // The capsule stays valid, because it is an attribute of the type, which is never released.
  const auto* const exchange =
      static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return exchange->major == 1 && exchange->tensor_of != nullptr ? exchange : nullptr;
}

}  // namespace

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

nb::dlpack::dtype dlpack_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const Code code = dtype == DType::kBFloat16 ? Code::Bfloat : Code::Float;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * dtype_size(dtype)), 1};
}

std::string type_name(const nb::dlpack::dtype& type) {
  static constexpr std::array kKinds = {"int",    "uint",    "float", "an opaque type of ",
                                        "bfloat", "complex", "bool"};
  // From DLPack 1.1 on. The names include the number of bits.
  static constexpr std::array kSmallFloats = {
      "float8_e3m4",     "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
      "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",    "float8_e8m0fnu"};
  const std::size_t code = type.code;
  if (code < kKinds.size()) return fmt::format("{}{}", kKinds[code], type.bits);
  if (code - kKinds.size() < kSmallFloats.size()) return kSmallFloats[code - kKinds.size()];
  return fmt::format("a type of {}", type.bits);
}

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

bool is_tensor_of_torch(PyObject* object) {
  return is_plain_tensor_of_torch(object) || is_instance(object, "torch", "Tensor");
}

bool is_plain_tensor_of_torch(PyObject* object) {
  return Py_TYPE(object) == torch_of_arrays.tensor;
}

void know_torch() {
  if (torch_of_arrays.tensor != nullptr) return;
  const nb::object type = nb::steal(PyObject_GetAttrString(imported("torch"), "Tensor"));
  if (!type.is_valid() || !PyType_Check(type.ptr())) return PyErr_Clear();
  torch_of_arrays.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.ptr()));
  torch_of_arrays.exchange = exchange_of(torch_of_arrays.tensor);
  PyObject* const forward_mode = imported("torch.autograd.forward_ad");
  if (forward_mode != nullptr && PyModule_Check(forward_mode)) {
    torch_of_arrays.forward_mode = Py_NewRef(PyModule_GetDict(forward_mode));
  }
  const auto function = [](const char* module, const char* name) -> PyObject* {
    PyObject* const owner = imported(module);
    PyObject* const found = owner == nullptr ? nullptr : PyObject_GetAttrString(owner, name);
    if (found == nullptr) PyErr_Clear();
    return found;
  };
  torch_of_arrays.is_autocast_enabled = function("torch", "is_autocast_enabled");
  torch_of_arrays.tracing_state = function("torch._C", "_get_tracing_state");
  torch_of_arrays.increment_version = function("torch.autograd.graph", "increment_version");
}

bool is_causal_bias(PyObject* object) {
  return is_instance(object, "torch.nn.attention.bias", "CausalBias");
}

bool torch_autocasts() {
  know_torch();
  static PyObject* const device = PyUnicode_InternFromString("cpu");
  if (torch_of_arrays.is_autocast_enabled == nullptr) return false;
  const nb::object enabled =
      nb::steal(PyObject_CallOneArg(torch_of_arrays.is_autocast_enabled, device));
  if (!enabled.is_valid()) PyErr_Clear();  // versions of torch without the argument
  return enabled.ptr() == Py_True;
}

void refuse_tracing() {
  if (torch_of_arrays.tracing_state == nullptr) return;
  const nb::object state = nb::steal(PyObject_CallNoArgs(torch_of_arrays.tracing_state));
  if (!state.is_valid()) PyErr_Clear();
  if (state.is_valid() && !state.is_none()) {
    raise_value_error(
        "torch.jit.trace: expected attention of PyTorch, got Fovea's, which it does not see and "
        "would take for a constant");
  }
}

void count_change(PyObject* tensor) {
  if (torch_of_arrays.increment_version == nullptr) return;
  const nb::object done = nb::steal(PyObject_CallOneArg(torch_of_arrays.increment_version, tensor));
  if (!done.is_valid()) nb::raise_python_error();
}

bool is_false(PyObject* object, const char* name) {
  const nb::object value = nb::steal(PyObject_GetAttrString(object, name));
  if (!value.is_valid()) PyErr_Clear();
  return value.ptr() == Py_False;
}

// Attribute names are created once, because creating one takes as long as looking it up.

bool requires_gradient(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object value = nb::steal(PyObject_GetAttr(tensor, name));
  if (!value.is_valid()) nb::raise_python_error();
  return value.ptr() != Py_False;
}

bool is_negated(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object value = nb::steal(PyObject_CallMethodNoArgs(tensor, name));
  if (!value.is_valid()) PyErr_Clear();
  return value.ptr() != Py_False;
}

bool has_tangent(PyObject* tensor) {
  // The level is -1 outside torch.autograd.forward_ad.dual_level(), where no tensor has a tangent.
  // Testing the level is faster than unpacking the tensor.
  static PyObject* const level_name = PyUnicode_InternFromString("_current_level");
  PyObject* const names = torch_of_arrays.forward_mode;
  if (names == nullptr) return false;
  PyObject* const level = PyDict_GetItemWithError(names, level_name);
  if (level == nullptr || !PyLong_Check(level) || PyLong_AsLong(level) < 0) return false;
  PyObject* const unpack = PyDict_GetItemString(names, "unpack_dual");
  if (unpack == nullptr) return false;
  const nb::object dual = nb::steal(PyObject_CallOneArg(unpack, tensor));
  if (!dual.is_valid()) nb::raise_python_error();
  const nb::object tangent = nb::steal(PyObject_GetAttrString(dual.ptr(), "tangent"));
  if (!tangent.is_valid()) nb::raise_python_error();
  return !tangent.is_none();
}

std::string text_of(PyObject* object, const char* name) {
  const nb::object value = nb::steal(PyObject_GetAttrString(object, name));
  const nb::object text = nb::steal(value.is_valid() ? PyObject_Str(value.ptr()) : nullptr);
  const char* const characters = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (characters == nullptr) PyErr_Clear();
  return characters == nullptr ? "" : characters;
}

bool torch_is_known() { return torch_of_arrays.tensor != nullptr; }

const Exchange* torch_exchange() { return torch_of_arrays.exchange; }

bool exchanged(PyObject* source, bool without_gradient, nb::dlpack::dltensor& tensor) {
  const Exchange* const exchange = torch_of_arrays.exchange;
  if (exchange == nullptr || Py_TYPE(source) != torch_of_arrays.tensor) return false;
  if ((!without_gradient && requires_gradient(source)) || is_negated(source) ||
      has_tangent(source)) {
    return false;
  }
  if (exchange->tensor_of(source, &tensor) == 0) return true;
  PyErr_Clear();
  return false;
}

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

}  // namespace fovea::python
