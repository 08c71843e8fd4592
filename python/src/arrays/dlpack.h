// SPDX-License-Identifier: Apache-2.0
//
// DLPack, for exchanging tensors with torch and JAX: the structures that nanobind lacks, names of
// types and devices, and the fast exchange API of newer torch versions.

#pragma once

#include <cstdint>
#include <string>

#include <Python.h>
#include <nanobind/ndarray.h>

#include "fovea/tensor.h"

namespace fovea::python {

// DLPack 1.1. Versions before 1.0 had no `version` and no `flags`.

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

/// DLPack's C exchange API, available in newer torch versions: it creates no Python objects and
/// takes a fraction of the time of torch's __dlpack__(), which takes microseconds.
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

/// Writes the matching DType to `dtype`. Returns false if Fovea has no such type.
bool read_type(const nanobind::dlpack::dtype& type, DType& dtype);
/// Returns the DLPack type of a floating-point DType.
nanobind::dlpack::dtype dlpack_type(DType dtype);
std::string type_name(const nanobind::dlpack::dtype& type);

/// Returns a module if it is already imported, or null. Borrowed.
PyObject* imported(const char* name);
/// Returns whether the object has a type of a module that is already imported.
bool is_instance(PyObject* object, const char* module_name, const char* type_name);
/// Returns whether the object is a torch tensor. Fast for torch.Tensor itself.
bool is_tensor_of_torch(PyObject* object);
/// Returns whether the type of an object is torch.Tensor itself, no subclass. Calls no Python code.
bool is_plain_tensor_of_torch(PyObject* object);
/// Returns whether an attribute of an object is False. Returns false if there is no such attribute.
bool is_false(PyObject* object, const char* name);
/// Returns whether a torch tensor requires a gradient. Throws nb::python_error.
bool requires_gradient(PyObject* tensor);
/// Returns whether a torch tensor has a lazy negation. Returns true if the tensor raises an error.
bool is_negated(PyObject* tensor);
/// Returns whether a torch tensor has a tangent of forward-mode differentiation. Throws
/// nb::python_error. Called after know_torch().
bool has_tangent(PyObject* tensor);
/// Returns whether the object is PyTorch's CausalBias, a tensor whose elements have no values.
bool is_causal_bias(PyObject* object);
/// Returns whether torch.autocast is enabled for the CPU. The module torch must have been imported.
bool torch_autocasts();
/// Throws ValueError within torch.jit.trace and the exports that use it: they would take the
/// results of a call for constants.
void refuse_tracing();
/// Tells autograd that a tensor's elements change, so that a backward pass that needs them fails.
void count_change(PyObject* tensor);
/// Returns an attribute as text; empty if that fails.
std::string text_of(PyObject* object, const char* name);

/// Looks up the exchange API of torch. Called after the first torch tensor was converted by
/// __dlpack__(), so that later tensors use the exchange API.
void know_torch();
bool torch_is_known();
/// Returns the exchange API of torch.Tensor; null before know_torch(), or if torch lacks it.
const Exchange* torch_exchange();
/// Reads a tensor of the exact type torch.Tensor through the exchange API. Returns false for
/// special cases (a gradient, a tangent, a lazy negation, no strides), which __dlpack__() handles
/// or read_dlpack() reports. With `without_gradient`, the caller guarantees that the tensor
/// requires no gradient.
bool exchanged(PyObject* source, bool without_gradient, nanobind::dlpack::dltensor& tensor);

}  // namespace fovea::python
