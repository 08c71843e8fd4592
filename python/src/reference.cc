// SPDX-License-Identifier: Apache-2.0
//
// The reference implementation with every intermediate step, and its gradients, as NumPy arrays.

#include "fovea/reference.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <nanobind/nanobind.h>

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/gradients.h"
#include "attention/options.h"
#include "attention/problem.h"
#include "docs.h"
#include "functions.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

using reference::Steps;

// The parameters of kParameterNames before kThreads, then those of attention_steps.
constexpr std::size_t kShared = kThreads;
constexpr std::size_t kNormalization = kShared;
constexpr std::size_t kArithmetic = kShared + 1;
constexpr std::array<const char*, kShared + 2> kStepsNames = [] {
  std::array<const char*, kShared + 2> names{};
  for (std::size_t i = 0; i < kShared; ++i) names[i] = kParameterNames[i];
  names[kNormalization] = "normalization";
  names[kArithmetic] = "arithmetic";
  return names;
}();

// Arguments of attention_gradients, in order: inputs, gradients of the results, options.
enum GradientsArgument : std::size_t {
  kGradContext = kMask,
  kGradLse,
  kGradWeights,
  kOptions,
  kGradientsArithmetic = kOptions + kShared - kMask,
  kGradientsArguments
};
constexpr std::array<const char*, kGradientsArguments> kGradientsNames = [] {
  std::array<const char*, kGradientsArguments> names{"query",        "key",      "value",
                                                     "grad_context", "grad_lse", "grad_weights"};
  for (std::size_t i = kMask; i < kShared; ++i) names[kOptions + i - kMask] = kParameterNames[i];
  names[kGradientsArithmetic] = "arithmetic";
  return names;
}();

template <class Choice, std::size_t N>
Choice choose(PyObject* given, const char* name,
              const std::array<std::pair<const char*, Choice>, N>& all) {
  std::string names;
  for (const auto& [text, choice] : all) {
    if (PyUnicode_Check(given) && PyUnicode_CompareWithASCIIString(given, text) == 0) return choice;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", text);
  }
  if (!PyUnicode_Check(given))
    raise_type_error("{}: expected one of {}, got {}", name, names, describe(given));
  raise_value_error("{}: expected one of {}, got \"{}\"", name, names, text_of(given));
}

DType arithmetic_of(PyObject* given) {
  return choose(
      given, "arithmetic",
      std::array{std::pair{"float64", DType::kFloat64}, std::pair{"float32", DType::kFloat32},
                 std::pair{"bfloat16", DType::kBFloat16}, std::pair{"float16", DType::kFloat16}});
}

PyObject* call_steps(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    static const Signature signature("attention_steps", kStepsNames, 3, 3);
    std::array<PyObject*, kStepsNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Parameters shared{};
    std::copy_n(given.begin(), kShared, shared.begin());
    const Array query(given[kQuery], {.name = "query"}), key(given[kKey], {.name = "key"}),
        value(given[kValue], {.name = "value"});
    check_rank(query, "query");
    check_same_rank(key, "key", query);
    check_same_rank(value, "value", query);
    const ProblemOptions options(shared);
    reference::ReferenceOptions how;
    if (given[kNormalization] != nullptr) {
      using reference::Normalization;
      how.normalization =
          choose(given[kNormalization], "normalization",
                 std::array{std::pair{"softmax", Normalization::kSoftmax},
                            std::pair{"softmax_unshifted", Normalization::kSoftmaxUnshifted},
                            std::pair{"sum", Normalization::kSum}});
    }
    if (given[kArithmetic] != nullptr) how.arithmetic = arithmetic_of(given[kArithmetic]);
    Steps steps;
    {
      const nb::gil_scoped_release released;
      steps = reference::attention_steps(
          {with_rank_4(query.view()), with_rank_4(key.view()), with_rank_4(value.view())},
          options.options, how);
    }
    return nb::cast(std::move(steps)).release().ptr();
  });
}

/// Returns a result as an array with the leading dimensions of the caller's problem.
nb::object with_rank(const Tensor& tensor, int rank) {
  if (!tensor.defined()) return {};
  const TensorView view = tensor.view();
  Shape shape, strides;
  for (int dim = view.rank() - rank; dim < view.rank(); ++dim) {
    shape.push_back(view.extent(dim));
    strides.push_back(view.strides()[dim]);
  }
  return nb::steal(numpy_copy({view.data(), view.dtype(), shape, strides}));
}

PyObject* call_gradients(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                         PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    static const Signature signature("attention_gradients", kGradientsNames, 3, 3);
    std::array<PyObject*, kGradientsArguments> given{};
    signature.bind(arguments, count, keywords, given);
    Parameters shared{};
    for (std::size_t i = kMask; i < kShared; ++i) shared[i] = given[kOptions + i - kMask];
    const Array query(given[kQuery], {.name = "query"}), key(given[kKey], {.name = "key"}),
        value(given[kValue], {.name = "value"});
    check_rank(query, "query");
    check_same_rank(key, "key", query);
    check_same_rank(value, "value", query);
    const int rank = query.rank();
    const auto output = [&](std::size_t which, int expected) {
      std::optional<Array> array;
      if (given[which] == nullptr) return array;
      const char* const name = kGradientsNames[which];
      array.emplace(given[which], ArrayRequest{.name = name});
      if (array->rank() != expected) {
        raise_value_error("{}: expected {} dimensions beside a query of {}, got {}", name, expected,
                          rank, to_string(array->view().shape()));
      }
      return array;
    };
    const std::optional<Array> context = output(kGradContext, rank),
                               lse = output(kGradLse, rank - 1),
                               weights = output(kGradWeights, rank);
    const reference::OutputGradients outputs{
        .context = context ? with_rank_4(context->view()) : TensorView(),
        .lse = lse ? with_rank_3(lse->view()) : TensorView(),
        .weights = weights ? with_rank_4(weights->view()) : TensorView()};
    const ProblemOptions options(shared);
    reference::ReferenceOptions how;
    if (given[kGradientsArithmetic] != nullptr) {
      how.arithmetic = arithmetic_of(given[kGradientsArithmetic]);
    }
    reference::Gradients found;
    {
      const nb::gil_scoped_release released;
      found = reference::attention_gradients(
          {with_rank_4(query.view()), with_rank_4(key.view()), with_rank_4(value.view())}, outputs,
          options.options, how);
    }
    const auto whole = [](const Tensor& tensor) {
      return with_rank(tensor, tensor.defined() ? tensor.view().rank() : 0);
    };
    return make_gradients({with_rank(found.query, rank), with_rank(found.key, rank),
                           with_rank(found.value, rank), whole(found.bias), whole(found.relative),
                           whole(found.sinks), with_rank(found.relevance, rank - 1),
                           with_rank(found.magnitude, rank - 1)});
  });
}

/// Returns a step as an array that keeps the Steps object alive; None if the problem lacks the
/// step.
template <Tensor Steps::*step>
nb::object array_of(nb::handle_t<Steps> self) {
  const Tensor& values = nb::cast<const Steps&>(self).*step;
  if (!values.defined()) return nb::none();
  return nb::steal(numpy_view(values, self.ptr()));
}

}  // namespace

void add_reference(nb::module_& module) {
  const auto type = [](const char* name) { return nb::sig(name); };
  nb::class_<Steps>(
      module, "Steps",
      R"(All intermediate arrays of attention, read-only NumPy arrays [batch, q_heads, q_len, ...]; None
if the problem has no such step.)")
      .def_prop_ro("scores", array_of<&Steps::scores>,
                   type("def scores(self, /) -> numpy.typing.NDArray[typing.Any]"), "query . key")
      .def_prop_ro("scaled_scores", array_of<&Steps::scaled_scores>,
                   type("def scaled_scores(self, /) -> numpy.typing.NDArray[typing.Any] | None"),
                   "scores times scale; None if the scale is 1")
      .def_prop_ro(
          "softcapped_scores", array_of<&Steps::softcapped_scores>,
          type("def softcapped_scores(self, /) -> numpy.typing.NDArray[typing.Any] | None"))
      .def_prop_ro("biased_scores", array_of<&Steps::biased_scores>,
                   type("def biased_scores(self, /) -> numpy.typing.NDArray[typing.Any] | None"),
                   "after bias, ALiBi and relative table")
      .def_prop_ro("masked_scores", array_of<&Steps::masked_scores>,
                   type("def masked_scores(self, /) -> numpy.typing.NDArray[typing.Any] | None"),
                   "-inf where masked")
      .def_prop_ro("weights", array_of<&Steps::weights>,
                   type("def weights(self, /) -> numpy.typing.NDArray[typing.Any]"),
                   "rows sum to 1, less the share of a sink; 0 where masked")
      .def_prop_ro("dropped_weights", array_of<&Steps::dropped_weights>,
                   type("def dropped_weights(self, /) -> numpy.typing.NDArray[typing.Any] | None"),
                   "0 where dropped, others divided by 1 - probability; None without dropout")
      .def_prop_ro("row_sums", array_of<&Steps::row_sums>,
                   type("def row_sums(self, /) -> numpy.typing.NDArray[typing.Any]"))
      .def_prop_ro("visible", array_of<&Steps::visible>,
                   type("def visible(self, /) -> numpy.typing.NDArray[numpy.bool_]"))
      .def_prop_ro("lse", array_of<&Steps::lse>,
                   type("def lse(self, /) -> numpy.typing.NDArray[typing.Any]"),
                   "natural log of each row's sum of exponentials")
      .def_prop_ro("context", array_of<&Steps::context>,
                   type("def context(self, /) -> numpy.typing.NDArray[typing.Any]"),
                   "weights times value; with dropout, dropped_weights times value");
  static PyMethodDef steps{"attention_steps",
                           reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_steps)),
                           METH_FASTCALL | METH_KEYWORDS, reference_steps_doc()};
  static PyMethodDef gradients{
      "attention_gradients",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_gradients)),
      METH_FASTCALL | METH_KEYWORDS, reference_gradients_doc()};
  add_function(module, "reference_attention_steps", "fovea.reference", steps);
  add_function(module, "reference_attention_gradients", "fovea.reference", gradients);
}

}  // namespace fovea::python
