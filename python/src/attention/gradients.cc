// SPDX-License-Identifier: Apache-2.0

#include "attention/gradients.h"

#include "functions.h"
#include "weights/named_tuple.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

PyTypeObject* type = nullptr;  // never released

}  // namespace

PyObject* make_gradients(std::array<nb::object, kGradients> arrays) {
  return make_named_tuple(type, arrays);
}

void add_gradients(nb::module_& module) {
  static std::array<PyStructSequence_Field, kGradients + 1> fields{
      {{kGradientNames[kGradQuery], "query's shape"},
       {kGradientNames[kGradKey], "key's shape: summed over the query heads of a group"},
       {kGradientNames[kGradValue], "value's shape: summed over the query heads of a group"},
       {kGradientNames[kGradBias], "bias's shape: summed over its broadcast dimensions"},
       {kGradientNames[kGradRelative], "[buckets, q_heads]"},
       {kGradientNames[kGradSinks], "[q_heads]"},
       {kGradientNames[kRelevance],
        "[batch, q_heads, kv_len], weights times their gradients, summed over the queries"},
       {kGradientNames[kMagnitude], "[batch, q_heads, kv_len], the sums of their absolute values"},
       {nullptr, nullptr}}};
  static PyStructSequence_Desc description{"fovea.Gradients",
                                           "Gradients of a loss. Unpacks as query, key, value = "
                                           "gradients; bias, relative and sinks are\n"
                                           "attributes, as are relevance and magnitude, each key's "
                                           "effect on the loss. None if the call\n"
                                           "has no such input or the gradient was not in `wanted`.",
                                           fields.data(), 3};
  type = add_named_tuple(module, "Gradients", description);
}

}  // namespace fovea::python
