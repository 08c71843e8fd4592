// SPDX-License-Identifier: Apache-2.0
//
// `scaled_dot_product_attention`, equivalent to PyTorch's. Leading dimensions broadcast through
// strides of 0. The dimension before the heads becomes the engine's batch; each index of further
// leading dimensions is one engine call. Torch tensors that require a gradient are handled by
// fovea.torch, which uses the checks here.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include <nanobind/nanobind.h>

#include "fovea/attention.h"
#include "fovea/error.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/dlpack.h"
#include "arrays/new_arrays.h"
#include "arrays/numpy_api.h"
#include "attention/dropout.h"
#include "attention/forward.h"
#include "attention/problem.h"
#include "docs.h"
#include "functions.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

namespace sdpa {
enum Argument : std::size_t {
  kQuery,
  kKey,
  kValue,
  kAttnMask,
  kDropoutP,
  kIsCausal,
  kScale,
  kEnableGqa,
  kArguments
};
constexpr std::array<const char*, kArguments> kNames = {
    "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"};
using Given = std::array<PyObject*, kArguments>;
}  // namespace sdpa

/// Broadcasts the leading dimensions of a view to `batch`.
void expand(TensorView& view, const Shape& batch) {
  const int missing = batch.rank() + 2 - view.rank();
  bool fits = missing == 0;
  for (int dim = 0; fits && dim < batch.rank(); ++dim) fits = view.extent(dim) == batch[dim];
  if (fits) return;
  Shape shape = batch;
  Strides strides = batch;
  for (int dim = 0; dim < batch.rank(); ++dim) {
    const int own = dim - missing;
    strides[dim] = own < 0 || view.extent(own) == 1 ? 0 : view.strides()[own];
  }
  for (int dim = view.rank() - 2; dim < view.rank(); ++dim) {
    shape.push_back(view.extent(dim));
    strides.push_back(view.strides()[dim]);
  }
  view = TensorView(view.data(), view.dtype(), shape, strides);
}

/// Returns the broadcast leading dimensions of all three, by the rule of NumPy and PyTorch.
Shape common_batch(const TensorView& query, const TensorView& key, const TensorView& value) {
  const int rank = std::max({query.rank(), key.rank(), value.rank()}) - 2;
  Shape batch;
  for (int dim = 0; dim < rank; ++dim) {
    std::int64_t extent = 1;
    for (const TensorView* const view : {&query, &key, &value}) {
      const int own = dim - (rank + 2 - view->rank());
      const std::int64_t wanted = own < 0 ? 1 : view->extent(own);
      if (wanted == 1) continue;
      if (extent != 1 && extent != wanted) {
        raise_value_error(
            "query, key, value: expected leading dimensions that broadcast, got the shapes {}, {} "
            "and "
            "{}{}",
            to_string(query.shape()), to_string(key.shape()), to_string(value.shape()),
            dim == rank - 1 ? "; enable_gqa=True lets heads of queries share one of keys" : "");
      }
      extent = wanted;
    }
    batch.push_back(extent);
  }
  return batch;
}

/// Returns a copy of keys or values with each head repeated `times` times consecutively.
Tensor repeated_heads(const TensorView& view, std::int64_t times) {
  Shape shape = view.shape();
  const int heads = view.rank() - 3;
  shape[heads] *= times;
  Tensor result(view.dtype(), shape);
  for_each_index(shape, [&](const Index& index) {
    Index from = index;
    from[heads] /= times;
    set_value(result, index, view.value(from));
  });
  return result;
}

/// Returns the part [batch, heads, length, dim] at index `number` of the dimensions `outer`.
template <class View>
View part_of(View view, std::int64_t number, const Shape& outer) {
  if (outer.rank() == 0) return with_rank_4(view);
  std::int64_t left = number;
  std::array<std::int64_t, kMaxRank> at{};
  for (int dim = outer.rank() - 1; dim >= 0; --dim) {
    at[static_cast<std::size_t>(dim)] = left % outer[dim];
    left /= outer[dim];
  }
  for (int dim = 0; dim < outer.rank(); ++dim) view = view[at[static_cast<std::size_t>(dim)]];
  return with_rank_4(view);
}

/// PyTorch's CausalBias, a causal mask that is described by its lengths. As in PyTorch, it has the
/// meaning of is_causal, except if it is aligned to the lower right and the lengths differ.
struct CausalBias {
  std::int64_t q_len, kv_len;
  bool lower_right;
};
std::optional<CausalBias> causal_bias_of(PyObject* mask) {
  if (mask == nullptr || !is_causal_bias(mask)) return std::nullopt;
  const nb::handle given(mask);
  CausalBias bias{nb::cast<std::int64_t>(given.attr("seq_len_q")),
                  nb::cast<std::int64_t>(given.attr("seq_len_kv")), false};
  const nb::object lower_right = given.attr("variant").attr("LOWER_RIGHT");
  bias.lower_right = bias.q_len != bias.kv_len && given.attr("variant").equal(lower_right);
  return bias;
}

/// Attention without gradients. Requires torch tensors without a gradient and does not test them;
/// call_sdpa() and the callers of check() do.
class Attention {
 public:
  explicit Attention(const sdpa::Given& given)
      : query_(given[sdpa::kQuery], request("query")),
        key_(given[sdpa::kKey], request("key")),
        value_(given[sdpa::kValue], request("value")) {
    check_tensors();
    if (given[sdpa::kDropoutP] != nullptr) {
      dropout_ = probability_of(given[sdpa::kDropoutP], "dropout_p");
    }
    if (given[sdpa::kIsCausal] != nullptr) causal_ = truth(given[sdpa::kIsCausal], "is_causal");
    if (given[sdpa::kScale] != nullptr)
      options().score.scale = number(given[sdpa::kScale], "scale");
    const bool grouped =
        given[sdpa::kEnableGqa] != nullptr && truth(given[sdpa::kEnableGqa], "enable_gqa");
    if (given[sdpa::kAttnMask] != nullptr && causal_) {
      raise_value_error(
          "attn_mask: expected none beside is_causal=True, which is a mask by itself");
    }
    const auto causal_bias = causal_bias_of(given[sdpa::kAttnMask]);
    if (causal_ || causal_bias) {
      options().mask = causal();
      const bool lower_right = causal_bias && causal_bias->lower_right;
      options().alignment = lower_right ? Alignment::bottom_right() : Alignment::top_left();
    }
    q_ = query_.view();
    k_ = key_.view();
    v_ = value_.view();
    if (grouped) group();
    arrange(grouped);
    if (causal_bias) {
      check_lengths(*causal_bias);
    } else if (given[sdpa::kAttnMask] != nullptr) {
      read_mask(given[sdpa::kAttnMask]);
    }
  }

  PyObject* run_all() {
    Shape shape = batch_;
    shape.push_back(q_.extent(q_.rank() - 2));
    shape.push_back(v_.extent(v_.rank() - 1));
    NewArray context(query_, query_.framework(), q_.dtype(), shape);
    // The engine handles batch and heads; each index of the dimensions before them is one call.
    Shape outer;
    for (int dim = 0; dim + 2 < batch_.rank(); ++dim) outer.push_back(batch_[dim]);
    const std::int64_t calls = element_count(shape) == 0 ? 0 : element_count(outer);
    draw_dropout(calls);
    for (std::int64_t number = 0; number < calls; ++number) {
      run_one(part_of(q_, number, outer), part_of(k_, number, outer), part_of(v_, number, outer),
              mask_ ? part_of(mask_view_, number, outer) : TensorView(),
              part_of(context.view(), number, outer));
      if (dropout_ != 0.0) ++options().dropout.call;
    }
    // Empty results get the same argument checks.
    if (calls == 0 && element_count(outer) != 0) {
      run_one(part_of(q_, 0, outer), part_of(k_, 0, outer), part_of(v_, 0, outer), TensorView(),
              part_of(context.view(), 0, outer));
    }
    return context.release();
  }

 private:
  static ArrayRequest request(const char* name) {
    return {.name = name, .contiguous_rows = true, .without_gradient = true};
  }

  void check_tensors() const {
    for (const auto& [array, name] :
         {std::pair{&query_, "query"}, {&key_, "key"}, {&value_, "value"}}) {
      if (array->rank() < 2) {
        raise_value_error("{}: expected [..., length, dim], 2 dimensions or more, got {}", name,
                          to_string(array->view().shape()));
      }
      if (array->dtype() != query_.dtype()) {
        raise_value_error("dtype: expected the same for query, key and value, got {}, {} and {}",
                          dtype_name(query_.dtype()), dtype_name(key_.dtype()),
                          dtype_name(value_.dtype()));
      }
    }
  }

  /// Draws one dropout call number for each engine call. PyTorch's generator determines the dropout
  /// of its tensors, so that checkpoints restore it.
  void draw_dropout(std::int64_t calls) {
    if (dropout_ == 0.0 || calls == 0) return;
    if (calls > std::numeric_limits<std::uint32_t>::max()) {
      raise_value_error("query: expected fewer than 2^32 indices before batch and heads, got {}",
                        calls);
    }
    if (query_.framework() == Framework::kTorch) {
      const nb::object seed = nb::module_::import_("fovea.torch").attr("drawn_seed")();
      options().dropout = {.probability = dropout_, .seed = nb::cast<std::uint64_t>(seed)};
      return;
    }
    options().dropout = next_dropout(dropout_, static_cast<std::uint32_t>(calls));
  }

  /// Checks the grouped heads of enable_gqa. key and value may have different numbers of heads.
  void group() {
    for (const auto& [view, name] : {std::pair{&q_, "query"}, {&k_, "key"}, {&v_, "value"}}) {
      if (view->rank() < 3) {
        raise_value_error("{}: expected [..., heads, length, dim] for enable_gqa, got {}", name,
                          to_string(view->shape()));
      }
    }
    const auto heads = [](const TensorView& view) { return view.extent(view.rank() - 3); };
    for (const auto& [view, name] : {std::pair{&k_, "key"}, {&v_, "value"}}) {
      const std::int64_t own = heads(*view);
      if (own != heads(q_) && (own == 0 || heads(q_) % own != 0)) {
        raise_value_error("{}: expected a number of heads that divides query's {}, got {}", name,
                          heads(q_), own);
      }
    }
    if (heads(k_) == heads(v_)) return;
    for (auto& [view, copy] : {std::pair{&k_, &key_copy_}, {&v_, &value_copy_}}) {
      *copy = repeated_heads(*view, heads(q_) / heads(*view));
      *view = *copy;
    }
  }

  /// Broadcasts all three to the same leading dimensions, except key and value heads if grouped.
  void arrange(bool grouped) {
    if (!grouped) {
      batch_ = common_batch(q_, k_, v_);
      for (TensorView* const view : {&q_, &k_, &v_}) expand(*view, batch_);
      return;
    }
    // Heads are excluded from broadcasting.
    const auto without_heads = [](const TensorView& view) {
      Shape shape = view.shape();
      shape[view.rank() - 3] = 1;
      return TensorView(view.data(), view.dtype(), shape, view.strides());
    };
    const Shape batch = common_batch(without_heads(q_), without_heads(k_), without_heads(v_));
    batch_ = batch;
    for (TensorView* const view : {&q_, &k_, &v_}) {
      batch_[batch.rank() - 1] = view->extent(view->rank() - 3);
      expand(*view, batch_);
    }
    batch_[batch.rank() - 1] = q_.extent(q_.rank() - 3);
  }

  void check_lengths(const CausalBias& bias) const {
    const std::int64_t q_len = q_.extent(q_.rank() - 2), kv_len = k_.extent(k_.rank() - 2);
    if (bias.lower_right && (bias.q_len != q_len || bias.kv_len != kv_len)) {
      raise_value_error("attn_mask: expected one of {} queries and {} keys, got one of {} and {}",
                        q_len, kv_len, bias.q_len, bias.kv_len);
    }
  }

  void read_mask(PyObject* given) {
    mask_.emplace(given, ArrayRequest{.name = "attn_mask",
                                      .elements = Elements::kBoolsOrFloats,
                                      .without_gradient = true});
    const DType dtype = mask_->dtype();
    if (dtype != DType::kBool && dtype != DType::kFloat32 && dtype != q_.dtype()) {
      raise_value_error("attn_mask: expected bool, float32 or query's {}, got {}",
                        dtype_name(q_.dtype()), dtype_name(dtype));
    }
    Shape full = batch_;
    full.push_back(q_.extent(q_.rank() - 2));
    full.push_back(k_.extent(k_.rank() - 2));
    const TensorView& own = mask_->view();
    const int missing = full.rank() - own.rank();
    bool fits = missing >= 0;
    for (int dim = 0; fits && dim < own.rank(); ++dim) {
      fits = own.extent(dim) == 1 || own.extent(dim) == full[dim + missing];
    }
    if (!fits) {
      raise_value_error("attn_mask: expected a shape that broadcasts to {}, got {}",
                        to_string(full), to_string(own.shape()));
    }
    // part_of() indexes the outer dimensions, so they need real extents; the engine broadcasts the
    // last four.
    Shape shape = full;
    Strides strides = full;
    for (int dim = 0; dim < full.rank(); ++dim) {
      const int at = dim - missing;
      const bool repeats = at < 0 || own.extent(at) == 1;
      strides[dim] = repeats ? 0 : own.strides()[at];
      if (repeats && dim + 4 >= full.rank()) shape[dim] = 1;
    }
    mask_view_ = TensorView(own.data(), dtype, shape, strides);
  }

  void run_one(const TensorView& query, const TensorView& key, const TensorView& value,
               const TensorView& mask, const MutableTensorView& context) {
    if (mask.defined() && mask.dtype() == DType::kBool)
      options().mask = dense(TensorRef(mask));
    else if (mask.defined())
      options().score.bias = TensorRef(mask);
    const double work = operations(query, key, value);
    if (!options_ && !worth_running_apart(work)) {
      // Constructed once, for calls without options and too short to need interruption.
      static const AttentionOptions defaults;
      return forward(query, key, value, defaults, {.context = context});
    }
    run(work, options().execution,
        [&] { forward(query, key, value, options(), {.context = context}); });
  }

  AttentionOptions& options() {
    if (!options_) options_.emplace();
    return *options_;
  }

  Array query_;
  Array key_;
  Array value_;
  std::optional<Array> mask_;
  Tensor key_copy_, value_copy_;
  TensorView q_, k_, v_, mask_view_;
  Shape batch_;
  double dropout_ = 0.0;
  bool causal_ = false;
  std::optional<AttentionOptions> options_;
};

sdpa::Given bound(PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  static const Signature signature("scaled_dot_product_attention", sdpa::kNames, 3,
                                   sdpa::kArguments);
  sdpa::Given given{};
  signature.bind(arguments, count, keywords, given);
  return given;
}

bool needs_autograd(PyObject* object) {
  return object != nullptr && !PyArray_CheckExact(object) && is_tensor_of_torch(object) &&
         requires_gradient(object);
}

PyObject* call_sdpa(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    const sdpa::Given given = bound(arguments, count, keywords);
    const auto call_in_python = [&](const char* name) {
      // Importing a module that is already there takes longer than looking it up.
      PyObject* const known = imported("fovea.torch");
      const nb::object function =
          (known != nullptr ? nb::borrow(known) : nb::module_::import_("fovea.torch")).attr(name);
      PyObject* const result =
          PyObject_Vectorcall(function.ptr(), arguments, static_cast<std::size_t>(count), keywords);
      if (result == nullptr) nb::raise_python_error();
      return result;
    };
    const bool of_torch =
        !PyArray_CheckExact(given[sdpa::kQuery]) && is_tensor_of_torch(given[sdpa::kQuery]);
    if (of_torch && torch_autocasts()) {
      return call_in_python("_autocast_scaled_dot_product_attention");
    }
    if (std::any_of(given.begin(), given.begin() + sdpa::kDropoutP, needs_autograd)) {
      return call_in_python("_scaled_dot_product_attention");
    }
    try {
      return Attention(given).run_all();
    } catch (...) {
      // Tensors in a function that torch.func transforms have no memory to read. Tested only after
      // a failure, because the test is a call of Python code.
      if (!of_torch ||
          !nb::cast<bool>(nb::module_::import_("fovea.torch").attr("_transformed")())) {
        throw;
      }
    }
    return call_in_python("_scaled_dot_product_attention");
  });
}

/// Checks the arguments without computing, for fovea.torch.
PyObject* check(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    const Attention attention(bound(arguments, count, keywords));
    Py_RETURN_NONE;
  });
}

}  // namespace

void add_scaled_dot_product_attention(nb::module_& module) {
  static PyMethodDef definition{
      "scaled_dot_product_attention",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_sdpa)),
      METH_FASTCALL | METH_KEYWORDS, scaled_dot_product_attention_doc()};
  add_function(module, "scaled_dot_product_attention", "fovea", definition);
  static PyMethodDef checks{"_check_scaled_dot_product_attention",
                            reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(check)),
                            METH_FASTCALL | METH_KEYWORDS,
                            "Checks the arguments of scaled_dot_product_attention."};
  add_function(module, "_check_scaled_dot_product_attention", "fovea._fovea", checks);
}

}  // namespace fovea::python
