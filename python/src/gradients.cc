// SPDX-License-Identifier: Apache-2.0

#include "gradients.h"

#include <utility>

#include "functions.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

PyTypeObject* type = nullptr;  // kept for good

}  // namespace

PyObject* make_gradients(std::array<nb::object, kGradients> arrays) {
  nb::object result = nb::steal(PyStructSequence_New(type));
  if (!result.is_valid()) nb::raise_python_error();
  for (std::size_t i = 0; i < kGradients; ++i) {
    nb::object array = arrays[i].is_valid() ? std::move(arrays[i]) : nb::none();
    PyStructSequence_SetItem(result.ptr(), static_cast<Py_ssize_t>(i), array.release().ptr());
  }
  return result.release().ptr();
}

void add_gradients(nb::module_& module) {
  static std::array<PyStructSequence_Field, kGradients + 1> fields{
      {{kGradientNames[kGradQuery], "of the query's shape"},
       {kGradientNames[kGradKey], "of the key's shape: summed over the query heads that read it"},
       {kGradientNames[kGradValue], "of the value's shape, summed alike"},
       {kGradientNames[kGradBias], "of the bias' shape, summed where it repeats"},
       {kGradientNames[kGradRelative], "[buckets, q_heads]"},
       {kGradientNames[kGradSinks], "[q_heads]"},
       {kGradientNames[kRelevance],
        "[batch, q_heads, kv_len], weights times their gradients, summed over the queries"},
       {kGradientNames[kMagnitude], "[batch, q_heads, kv_len], the sums of their absolute values"},
       {nullptr, nullptr}}};
  static PyStructSequence_Desc description{
      "fovea.Gradients",
      "Gradients of a loss: query, key, value = gradients, and bias, relative and sinks by their\n"
      "names; relevance and magnitude, what each key did to the loss. None where the call has no\n"
      "such thing, or it was not wanted.",
      fields.data(), 3};
  type = PyStructSequence_NewType(&description);
  if (type == nullptr) nb::raise_python_error();
  module.attr("Gradients") = nb::borrow(reinterpret_cast<PyObject*>(type));
}

}  // namespace fovea::python
