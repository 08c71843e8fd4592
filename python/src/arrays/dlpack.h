// SPDX-License-Identifier: Apache-2.0
//
// DLPack, by which tensors of torch's and JAX's come and go: its structures as far as nanobind has
// none, its names of types and devices, and the short way in and out that newer versions of torch
// have.

#pragma once

#include <cstdint>
#include <string>

#include <Python.h>
#include <nanobind/ndarray.h>

#include "fovea/tensor.h"

namespace fovea::python {

// Version 1.1 of DLPack; before 1.0 there was no `version` and no `flags`.

struct Managed {
  nanobind::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  nanobind::dlpack::dltensor tensor;
};

inline constexpr std::uint64_t kReadOnlyFlag = 1;

/// DLPack's exchange of tensors without Python's objects, which newer versions of torch have: a
/// fraction of the microseconds that __dlpack__() takes there.
struct Exchange {
  std::uint32_t major;
  std::uint32_t minor;
  Exchange* older;
  int (*allocate)(nanobind::dlpack::dltensor* prototype, ManagedVersioned** out, void* context,
                  void (*error)(void* context, const char* kind, const char* message));
  int (*managed_of)(void* object, ManagedVersioned** out);
  int (*object_of)(ManagedVersioned* tensor, void** object);
  int (*tensor_of)(void* object, nanobind::dlpack::dltensor* out);  // may be null
};

inline constexpr int kCpu = 1;

std::string device_name(long type, long id);

/// Whether the elements are of a type that Fovea has; then `dtype` is it.
bool read_type(const nanobind::dlpack::dtype& type, DType& dtype);
/// Of floats.
nanobind::dlpack::dtype dlpack_type(DType dtype);
std::string type_name(const nanobind::dlpack::dtype& type);

/// A module that somebody has imported, or null. Borrowed.
PyObject* imported(const char* name);
/// Whether an object is of a type of a module that somebody has imported.
bool is_instance(PyObject* object, const char* module_name, const char* type_name);
/// Whether it is a tensor of torch's. Quick for those that come often.
bool is_tensor_of_torch(PyObject* object);
/// Whether an attribute is False, or a method without arguments says so.
bool is_false(PyObject* object, const char* name, bool method);

/// Called when a tensor of torch's has come the long way: the next ones take the short one.
void know_torch();
/// The exchange of torch.Tensor; null before know_torch(), and where torch has none.
const Exchange* torch_exchange();
/// A tensor of torch's own type, looked into at once. What is special (a gradient, a lazy negation,
/// no strides) is left to __dlpack__(), which knows what to say.
bool exchanged(PyObject* source, nanobind::dlpack::dltensor& tensor);

}  // namespace fovea::python
