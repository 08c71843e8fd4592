// SPDX-License-Identifier: Apache-2.0
//
// `attention`, `decode` and `reference_attention`: one path from arguments to outputs, with an
// overhead of less than a microsecond over the engine's time. The code therefore avoids Python
// objects where possible, and an unused option costs one comparison.

#include "fovea/attention.h"

#include <memory>
#include <optional>
#include <string_view>

#include <nanobind/nanobind.h>

#include "fovea/error.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/forward.h"
#include "attention/options.h"
#include "attention/problem.h"
#include "cache.h"
#include "distributed.h"
#include "docs.h"
#include "functions.h"
#include "weights/lenses.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

enum class Engine { kForward, kDecode, kReference };

/// Rethrows the error with the Python name `out` in place of the engine's `context`.
[[noreturn]] void rethrow_about_out(const InvalidArgument& error) {
  if (error.argument() != "context") throw error;
  constexpr std::size_t kColon = 2;  // ": "
  throw InvalidArgument("out",
                        std::string_view(error.what()).substr(error.argument().size() + kColon));
}

/// The output array of a call: the caller's or a new one.
class Context {
 public:
  Context(PyObject* out, const Array& query, Framework framework, DType dtype, const Shape& shape)
      : view_(with_rank_4(out != nullptr
                              ? take(out, shape)
                              : created_.emplace(query, framework, dtype, shape).view())) {}

  bool is_given() const { return given_ != nullptr; }
  const MutableTensorView& view() const { return view_; }
  PyObject* release() { return is_given() ? Py_NewRef(given_->source()) : created_->release(); }

 private:
  MutableTensorView take(PyObject* out, const Shape& shape) {
    given_ = std::make_unique<Array>(out, ArrayRequest{.name = "out", .writable = true});
    if (given_->view().shape() != shape) {
      raise_value_error("out: expected the shape {} of the context, got {}", to_string(shape),
                        to_string(given_->view().shape()));
    }
    return given_->writable_view();
  }

  std::unique_ptr<Array> given_;
  std::optional<NewArray> created_;
  const MutableTensorView view_;
};

struct Views {
  TensorView query;
  TensorView key;
  TensorView value;
};

/// Runs the engine on 4-dimensional views; results have query's own rank. With `ranks`, the views
/// are this rank's part of sharded tensors.
PyObject* compute(Engine engine, const Array& query, const Views& views, const Parameters& given,
                  Ranks* ranks = nullptr) {
  bool plain = true;
  for (std::size_t i = kMask; i <= kThreads; ++i) plain = plain && given[i] == nullptr;
  // On the heap, as lse and lenses: large, and rarely used.
  std::unique_ptr<ProblemOptions> asked;
  if (!plain) asked = std::make_unique<ProblemOptions>(given);
  // Constructed once, for calls without options and too short to need interruption.
  static const AttentionOptions defaults;

  const DType dtype = views.query.dtype();
  const Shape& shape = query.view().shape();
  // The reference returns NumPy arrays, because JAX has no float64 by default.
  const Framework framework = engine == Engine::kReference ? Framework::kNumpy : query.framework();
  Context context(given[kOut], query, framework, dtype, result_shape(shape, views.value.extent(3)));
  AttentionOutputs outputs{.context = context.view()};
  std::unique_ptr<NewArray> lse;
  if (given[kReturnLse] != nullptr && truth(given[kReturnLse], "return_lse")) {
    lse = std::make_unique<NewArray>(query, framework,
                                     dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32,
                                     result_shape(shape, -1));
    outputs.lse = with_rank_3(lse->view());
  }

  std::unique_ptr<Seen> seen;
  std::unique_ptr<const Lenses> lenses;
  if (given[kLenses] != nullptr) {
    seen = std::make_unique<Seen>(lenses_of(given[kLenses]), query, views.key.extent(2));
    lenses = std::make_unique<const Lenses>(seen->lenses());
    outputs.lenses = lenses.get();
  }

  const double work = operations(views.query, views.key, views.value);
  try {
    if (plain && ranks == nullptr && !worth_running_apart(work)) {
      engine == Engine::kDecode
          ? attention_decode(views.query, views.key, views.value, defaults, outputs)
          : forward(views.query, views.key, views.value, defaults, outputs);
    } else {
      AttentionOptions none;
      AttentionOptions& options = asked ? asked->options : none;
      if (ranks != nullptr) {
        run_on_ranks(*ranks, views.query.extent(2), views.key.extent(2), options.execution, [&] {
          attention_forward(ranks->transport(),
                            {views.query, views.key, views.value, ranks->queries(), ranks->keys()},
                            options, outputs);
        });
      } else {
        run(work, options.execution, [&] {
          engine == Engine::kDecode
              ? attention_decode(views.query, views.key, views.value, options, outputs)
              : forward(views.query, views.key, views.value, options, outputs);
        });
      }
    }
  } catch (const InvalidArgument& error) {
    if (!context.is_given()) throw;
    rethrow_about_out(error);
  }
  const nb::object first = nb::steal(context.release());
  if (!lse && !seen) return Py_NewRef(first.ptr());
  const nb::object second = nb::steal(lse ? lse->release() : seen->release());
  if (!lse || !seen) return PyTuple_Pack(2, first.ptr(), second.ptr());
  const nb::object third = nb::steal(seen->release());
  return PyTuple_Pack(3, first.ptr(), second.ptr(), third.ptr());
}

PyObject* attend(Engine engine, const Parameters& given, Ranks* ranks = nullptr) {
  const Array query(given[kQuery], {.name = "query", .contiguous_rows = true});
  check_rank(query, "query");
  const Array key(given[kKey], {.name = "key", .contiguous_rows = true});
  const Array value(given[kValue], {.name = "value", .contiguous_rows = true});
  check_same_rank(key, "key", query);
  check_same_rank(value, "value", query);
  const Views views{with_rank_4(query.view()), with_rank_4(key.view()), with_rank_4(value.view())};
  return compute(engine, query, views, given, ranks);
}

/// The first argument is the Ranks.
PyObject* call_sharded_attention(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                                 PyObject* keywords) {
  return guarded([&] {
    static const std::span<const char* const> names(kParameterNames.data(), kOut);
    static const Signature signature("attention", names, 3, 3);
    Parameters given{};
    signature.bind(arguments + 1, count - 1, keywords, std::span(given).first(kOut));
    return attend(Engine::kForward, given, &nb::cast<Ranks&>(nb::handle(arguments[0])));
  });
}

PyObject* call_attention(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                         PyObject* keywords) {
  return guarded([&] {
    static const Signature signature("attention", kParameterNames, 3, 3);
    Parameters given;
    signature.bind(arguments, count, keywords, given);
    return attend(Engine::kForward, given);
  });
}

PyObject* call_decode(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    // `value` is omitted only if `key` is a cache, which has both.
    static const Signature signature("decode", kParameterNames, 2, 3);
    Parameters given;
    signature.bind(arguments, count, keywords, given);
    const std::optional<CacheInUse> cache = cache_of(given[kKey]);
    if (!cache) {
      if (given[kValue] == nullptr) {
        raise_type_error("decode() missing the argument 'value', which only a KvCache as key has");
      }
      return attend(Engine::kDecode, given);
    }
    if (given[kValue] != nullptr) {
      raise_type_error(
          "value: expected none beside a KvCache, which has both keys and values, got {}",
          describe(given[kValue]));
    }
    const Array query(given[kQuery], {.name = "query", .contiguous_rows = true});
    check_rank(query, "query");
    const Views views{with_rank_4(query.view()), cache->key(), cache->value()};
    return compute(Engine::kDecode, query, views, given);
  });
}

/// Converts the inputs to float64; for float64 the engine calls the reference.
PyObject* call_reference(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                         PyObject* keywords) {
  return guarded([&] {
    static const std::span<const char* const> names(kParameterNames.data(), kOut);
    static const Signature signature("attention", names, 3, 3);
    Parameters given{};
    signature.bind(arguments, count, keywords, std::span(given).first(kOut));
    const Array query(given[kQuery], {.name = "query"});
    const Array key(given[kKey], {.name = "key"});
    const Array value(given[kValue], {.name = "value"});
    check_rank(query, "query");
    check_same_rank(key, "key", query);
    check_same_rank(value, "value", query);
    const Tensor q = convert(query.view(), DType::kFloat64),
                 k = convert(key.view(), DType::kFloat64),
                 v = convert(value.view(), DType::kFloat64);
    return compute(Engine::kReference, query,
                   {with_rank_4(q.view()), with_rank_4(k.view()), with_rank_4(v.view())}, given);
  });
}

template <class Function>
PyCFunction as_function(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

void add_attention(nb::module_& module) {
  constexpr int kHow = METH_FASTCALL | METH_KEYWORDS;
  static PyMethodDef attention{"attention", as_function(call_attention), kHow, attention_doc()};
  static PyMethodDef decode{"decode", as_function(call_decode), kHow, decode_doc()};
  static PyMethodDef reference{"attention", as_function(call_reference), kHow,
                               reference_attention_doc()};
  static PyMethodDef sharded{"_sharded_attention", as_function(call_sharded_attention), kHow,
                             nullptr};
  add_function(module, "attention", "fovea", attention);
  add_function(module, "_sharded_attention", "fovea", sharded);
  add_function(module, "decode", "fovea", decode);
  add_function(module, "reference_attention", "fovea.reference", reference);
  module.def(
      "_forward_calls", [] { return forward_calls.load(std::memory_order_relaxed); },
      "Returns the number of calls of attention_forward.");
}

}  // namespace fovea::python
