// SPDX-License-Identifier: Apache-2.0
//
// `attention_backward`: gradients as new arrays, each with the array library and dtype of its
// input.

#include "fovea/attention_backward.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/gradients.h"
#include "attention/options.h"
#include "attention/problem.h"
#include "distributed.h"
#include "docs.h"
#include "functions.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

// Number of engine calls, including those that throw: for third-party test suites, as in forward.h.
std::atomic<std::int64_t> backward_calls{0};

// Arguments: query, key and value, the results, then the options from kMask to kThreads.
namespace backward {
enum Argument : std::size_t {
  kContext = kMask,
  kLse,
  kGradContext,
  kGradLse,
  kOptions,
  kWanted = kOptions + kReturnLse - kMask,
  kArguments
};
constexpr std::array<const char*, kArguments> kNames = [] {
  std::array<const char*, kArguments> names{"query", "key",          "value",   "context",
                                            "lse",   "grad_context", "grad_lse"};
  for (std::size_t i = kMask; i <= kThreads; ++i) names[kOptions + i - kMask] = kParameterNames[i];
  names[kWanted] = "wanted";
  return names;
}();
using Given = std::array<PyObject*, kArguments>;
}  // namespace backward

/// Returns which gradients are requested: by default those of all inputs present, without lenses.
std::array<bool, kGradients> wanted_of(PyObject* given, const AttentionOptions& options) {
  std::array<bool, kGradients> there{};
  there.fill(true);
  there[kGradBias] = options.score.bias.defined();
  there[kGradRelative] = options.score.relative.has_value();
  there[kGradSinks] = !options.score.sinks.empty();
  if (given == nullptr) {
    there[kRelevance] = there[kMagnitude] = false;
    return there;
  }
  const std::string names = fmt::format("\"{}\"", fmt::join(kGradientNames, "\", \""));
  const nb::object items = nb::steal(PyUnicode_Check(given) ? nullptr : PySequence_Fast(given, ""));
  if (!items.is_valid()) {
    PyErr_Clear();
    raise_type_error("wanted: expected a list of some of {}, got {}", names, describe(given));
  }
  std::array<bool, kGradients> wanted{};
  for (const nb::handle item : nb::borrow<nb::iterable>(items)) {
    const auto* const found =
        std::find_if(kGradientNames.begin(), kGradientNames.end(), [&](const char* name) {
          return PyUnicode_Check(item.ptr()) &&
                 PyUnicode_CompareWithASCIIString(item.ptr(), name) == 0;
        });
    if (found == kGradientNames.end()) {
      raise_value_error("wanted: expected some of {}, got \"{}\"", names, text_of(item.ptr()));
    }
    const auto which = static_cast<std::size_t>(found - kGradientNames.begin());
    if (!there[which]) {
      raise_value_error(
          "wanted: expected none of what the call does not have, got \"{0}\" without {0}=", *found);
    }
    wanted[which] = true;
  }
  return wanted;
}

class Backward {
 public:
  explicit Backward(const backward::Given& given)
      : query_(given[kQuery], {.name = "query", .contiguous_rows = true}),
        key_(given[kKey], {.name = "key", .contiguous_rows = true}),
        value_(given[kValue], {.name = "value", .contiguous_rows = true}),
        context_(given[backward::kContext], {.name = "context", .contiguous_rows = true}),
        lse_(given[backward::kLse], {.name = "lse"}),
        grad_context_(given[backward::kGradContext],
                      {.name = "grad_context", .contiguous_rows = true}),
        options_(parameters(given)),
        wanted_(wanted_of(given[backward::kWanted], options_.options)) {
    check_rank(query_, "query");
    check_same_rank(key_, "key", query_);
    check_same_rank(value_, "value", query_);
    check_same_rank(context_, "context", query_);
    check_same_rank(grad_context_, "grad_context", query_);
    check_rows(lse_, "lse");
    if (given[backward::kGradLse] != nullptr) {
      grad_lse_.emplace(given[backward::kGradLse], ArrayRequest{.name = "grad_lse"});
      check_rows(*grad_lse_, "grad_lse");
    }
  }

  /// With `ranks`, the arrays are this rank's part of sharded tensors.
  PyObject* run_all(Ranks* ranks = nullptr) {
    make(kGradQuery, query_, query_.framework(), query_.dtype(), query_.view().shape());
    make(kGradKey, key_, key_.framework(), key_.dtype(), key_.view().shape());
    make(kGradValue, value_, value_.framework(), value_.dtype(), value_.view().shape());
    if (options_.bias != nullptr) {
      const Array& bias = *options_.bias;
      make(kGradBias, bias, bias.framework(), bias.dtype(), bias.view().shape());
    }
    // Gradients without a caller's array to match have the dtype of lse.
    const DType sums = query_.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const ScoreOptions& score = options_.options.score;
    if (score.relative) {
      make(kGradRelative, query_, query_.framework(), sums, score.relative->table->shape());
    }
    make(kGradSinks, query_, query_.framework(), sums,
         {static_cast<std::int64_t>(score.sinks.size())});
    Shape keys = result_shape(query_.view().shape(), -1);
    keys[keys.rank() - 1] = key_.view().extent(key_.rank() - 2);
    make(kRelevance, query_, query_.framework(), sums, keys);
    make(kMagnitude, query_, query_.framework(), sums, keys);

    const BackwardInputs inputs{
        .query = with_rank_4(query_.view()),
        .key = with_rank_4(key_.view()),
        .value = with_rank_4(value_.view()),
        .context = with_rank_4(context_.view()),
        .lse = with_rank_3(lse_.view()),
        .grad_context = with_rank_4(grad_context_.view()),
        .grad_lse = grad_lse_ ? with_rank_3(grad_lse_->view()) : TensorView()};
    const auto rows = [&](Gradient which) {
      return made_[which] ? with_rank_4(made_[which]->view()) : MutableTensorView();
    };
    // The engine's bias gradient is float64 for float64 inputs.
    Tensor bias_sums;
    if (made_[kGradBias] &&
        (options_.bias->dtype() == DType::kFloat64) != (sums == DType::kFloat64)) {
      bias_sums = Tensor(sums, options_.bias->view().shape());
    }
    const auto plain = [&](Gradient which) {
      return made_[which] ? made_[which]->view() : MutableTensorView();
    };
    const auto of_keys = [&](Gradient which) {
      return made_[which] ? with_rank_3(made_[which]->view()) : MutableTensorView();
    };
    const BackwardLenses lenses{.relevance = of_keys(kRelevance), .magnitude = of_keys(kMagnitude)};
    const AttentionGradients gradients{
        .grad_query = rows(kGradQuery),
        .grad_key = rows(kGradKey),
        .grad_value = rows(kGradValue),
        .grad_bias = bias_sums.defined() ? bias_sums.view() : plain(kGradBias),
        .grad_relative = plain(kGradRelative),
        .grad_sinks = plain(kGradSinks),
        .lenses = &lenses};
    // The backward pass has five matrix products, attention() has two.
    const double work = 2.5 * operations(inputs.query, inputs.key, inputs.value);
    const auto compute = [&] {
      backward_calls.fetch_add(1, std::memory_order_relaxed);
      if (ranks == nullptr) {
        attention_backward(inputs, options_.options, gradients);
      } else {
        attention_backward(ranks->transport(), {inputs, ranks->queries(), ranks->keys()},
                           options_.options, gradients);
      }
    };
    if (ranks == nullptr) {
      run(work, options_.options.execution, compute);
    } else {
      // Of a bias with a row per query, the engine writes the rows of this rank.
      const MutableTensorView& bias = gradients.grad_bias;
      if (bias.size() > 0) {
        std::memset(bias.data(), 0,
                    static_cast<std::size_t>(bias.size()) * dtype_size(bias.dtype()));
      }
      run_on_ranks(*ranks, inputs.query.extent(2), inputs.key.extent(2), options_.options.execution,
                   compute);
    }
    if (bias_sums.defined()) {
      for_each_index(bias_sums.shape(), [&](const Index& at) {
        set_value(made_[kGradBias]->view(), at, bias_sums.view().value(at));
      });
    }
    std::array<nb::object, kGradients> arrays;
    for (std::size_t i = 0; i < kGradients; ++i) {
      if (made_[i]) arrays[i] = nb::steal(made_[i]->release());
    }
    return make_gradients(std::move(arrays));
  }

 private:
  static Parameters parameters(const backward::Given& given) {
    Parameters parameters{};
    for (std::size_t i = kMask; i <= kThreads; ++i)
      parameters[i] = given[backward::kOptions + i - kMask];
    return parameters;
  }

  void check_rows(const Array& array, const char* name) const {
    if (array.rank() + 1 == query_.rank()) return;
    raise_value_error("{}: expected {} dimensions, one less than query has, got {}", name,
                      query_.rank() - 1, to_string(array.view().shape()));
  }

  void make(Gradient which, const Array& like, Framework framework, DType dtype,
            const Shape& shape) {
    if (wanted_[which]) made_[which].emplace(like, framework, dtype, shape, kGradientNames[which]);
  }

  Array query_, key_, value_, context_, lse_, grad_context_;
  std::optional<Array> grad_lse_;
  ProblemOptions options_;
  std::array<bool, kGradients> wanted_;
  std::array<std::optional<NewArray>, kGradients> made_;
};

PyObject* call_backward(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                        PyObject* keywords) {
  return guarded([&] {
    static const Signature signature("attention_backward", backward::kNames, backward::kGradLse,
                                     backward::kGradLse);
    backward::Given given{};
    signature.bind(arguments, count, keywords, given);
    return Backward(given).run_all();
  });
}

/// The first argument is the Ranks.
PyObject* call_sharded_backward(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                                PyObject* keywords) {
  return guarded([&] {
    static const Signature signature("attention_backward", backward::kNames, backward::kGradLse,
                                     backward::kGradLse);
    backward::Given given{};
    signature.bind(arguments + 1, count - 1, keywords, given);
    return Backward(given).run_all(&nb::cast<Ranks&>(nb::handle(arguments[0])));
  });
}

}  // namespace

void add_attention_backward(nb::module_& module) {
  static PyMethodDef definition{
      "attention_backward",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_backward)),
      METH_FASTCALL | METH_KEYWORDS, attention_backward_doc()};
  static PyMethodDef sharded{
      "_sharded_attention_backward",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_sharded_backward)),
      METH_FASTCALL | METH_KEYWORDS, nullptr};
  add_function(module, "attention_backward", "fovea", definition);
  add_function(module, "_sharded_attention_backward", "fovea", sharded);
  module.def(
      "_backward_calls", [] { return backward_calls.load(std::memory_order_relaxed); },
      "Returns the number of calls of attention_backward.");
}

}  // namespace fovea::python
