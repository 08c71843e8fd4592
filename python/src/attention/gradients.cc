// SPDX-License-Identifier: Apache-2.0

#include "attention/gradients.h"

#include "functions.h"
#include "weights/named_tuple.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

PyTypeObject* type = nullptr;  // kept for good

}  // namespace

PyObject* make_gradients(std::array<nb::object, kGradients> arrays) {
  return make_named_tuple(type, arrays);
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
  type = add_named_tuple(module, "Gradients", description);
}

}  // namespace fovea::python
