// SPDX-License-Identifier: Apache-2.0
//
// The checks of a call (problem.h): all of them before anything is written.

#include "engine/problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea::engine {
namespace {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

std::string came(const TensorView& tensor) {
  return tensor.defined() ? to_string(tensor.shape()) : "nothing";
}

/// Distances of rows are added up in 64 bits, and so must stay far from that.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

/// The bytes from the first to one past the last that a tensor touches, before and after its data
/// pointer. Empty tensors touch none.
struct Extent {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

Extent extent_of(const TensorView& tensor, std::string_view name) {
  if (element_count(tensor.shape()) == 0) return {};
  const auto size = static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  Extent extent{0, size};
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    std::int64_t reach = 0;
    const bool overflows =
        __builtin_mul_overflow(tensor.extent(dim) - 1, tensor.strides()[dim], &reach) ||
        __builtin_mul_overflow(reach, size, &reach) || reach > kMostBytes || reach < -kMostBytes;
    if (overflows) {
      fail("{}: expected strides that stay within memory, got {} for shape {}", name,
           to_string(tensor.strides()), to_string(tensor.shape()));
    }
    (reach < 0 ? extent.before : extent.after) += reach;
  }
  return extent;
}

void check_memory(const TensorView& tensor, std::string_view name) {
  const Extent extent = extent_of(tensor, name);  // throws for sizes beyond 63 bits
  if (extent.after > 0 && tensor.data() == nullptr) {
    fail("{}: expected data for shape {}, got a null pointer", name, to_string(tensor.shape()));
  }
}

void check_input(const TensorView& tensor, std::string_view name) {
  if (!tensor.defined() || tensor.rank() != 4) {
    fail("{}: expected [batch, heads, length, dim], got {}", name, came(tensor));
  }
  if (tensor.dtype() != DType::kFloat32 && tensor.dtype() != DType::kFloat64) {
    fail("{}: expected float32 or float64, got {}", name, dtype_name(tensor.dtype()));
  }
  if (tensor.extent(3) > 1 && tensor.strides()[3] != 1) {
    fail("{}: expected a contiguous last dimension (stride 1), got strides {}", name,
         to_string(tensor.strides()));
  }
  check_memory(tensor, name);
}

bool overlap(const TensorView& a, const TensorView& b) {
  const Extent extent_a = extent_of(a, "");
  const Extent extent_b = extent_of(b, "");
  if (extent_a.after == 0 || extent_b.after == 0) return false;
  const auto begin_a = reinterpret_cast<std::intptr_t>(a.data()) + extent_a.before;
  const auto begin_b = reinterpret_cast<std::intptr_t>(b.data()) + extent_b.before;
  const auto end_a = reinterpret_cast<std::intptr_t>(a.data()) + extent_a.after;
  const auto end_b = reinterpret_cast<std::intptr_t>(b.data()) + extent_b.after;
  return begin_a < end_b && begin_b < end_a;
}

/// Whether different indices are different elements, shown by strides that each exceed what the
/// smaller ones reach.
bool elements_are_distinct(const TensorView& tensor) {
  if (element_count(tensor.shape()) == 0) return true;
  std::int64_t reach = 0;
  std::array<bool, kMaxRank> done{};
  for (int round = 0; round < tensor.rank(); ++round) {
    int smallest = -1;
    for (int dim = 0; dim < tensor.rank(); ++dim) {
      if (done[static_cast<std::size_t>(dim)] || tensor.extent(dim) == 1) continue;
      const auto stride = [&](int of) { return std::abs(tensor.strides()[of]); };
      if (smallest < 0 || stride(dim) < stride(smallest)) smallest = dim;
    }
    if (smallest < 0) break;
    const std::int64_t stride = std::abs(tensor.strides()[smallest]);
    if (stride <= reach) return false;
    reach += (tensor.extent(smallest) - 1) * stride;
    done[static_cast<std::size_t>(smallest)] = true;
  }
  return true;
}

void check_output(const Problem& problem, const MutableTensorView& output, std::string_view name,
                  const Shape& expected, std::string_view what) {
  if (output.shape() != expected) {
    fail("{}: expected {} = {}, got {}", name, what, to_string(expected),
         to_string(output.shape()));
  }
  if (output.dtype() != problem.dtype()) {
    fail("{}: expected {} as query has, got {}", name, dtype_name(problem.dtype()),
         dtype_name(output.dtype()));
  }
  check_memory(output, name);
  if (!elements_are_distinct(output)) {
    fail("{}: expected an element in memory for each index, got strides {} for shape {}", name,
         to_string(output.strides()), to_string(output.shape()));
  }
  const std::array inputs{std::pair{&problem.query, "query"}, std::pair{&problem.key, "key"},
                          std::pair{&problem.value, "value"}};
  for (const auto& [input, input_name] : inputs) {
    if (overlap(output, *input)) {
      fail("{}: expected memory of its own, got some that {} uses", name, input_name);
    }
  }
  const ScoreOptions& score = problem.options.score;
  if (score.bias.defined() && overlap(output, score.bias)) {
    fail("{}: expected memory of its own, got some that bias uses", name);
  }
}

}  // namespace

double Problem::scale() const {
  const double dim = static_cast<double>(std::max<std::int64_t>(head_dim(), 1));
  return options.score.scale.value_or(1.0 / std::sqrt(dim));
}

Problem make_problem(const TensorView& query, const TensorView& key, const TensorView& value,
                     const AttentionOptions& options) {
  check_input(query, "query");
  check_input(key, "key");
  check_input(value, "value");
  Problem problem{query, key, value, options, {}};
  problem.shape = {query.extent(0), query.extent(1), key.extent(1), query.extent(2),
                   key.extent(2), options.sequences.count()};
  const ProblemShape& shape = problem.shape;
  if (key.dtype() != query.dtype() || value.dtype() != query.dtype()) {
    fail("dtype: expected the same for query, key and value, got {}, {} and {}",
         dtype_name(query.dtype()), dtype_name(key.dtype()), dtype_name(value.dtype()));
  }
  if (key.extent(0) != shape.batch || value.extent(0) != shape.batch) {
    fail("batch: expected the same for query, key and value, got {}, {} and {}", shape.batch,
         key.extent(0), value.extent(0));
  }
  if (value.extent(1) != shape.kv_heads || value.extent(2) != shape.kv_len) {
    fail("value: expected [batch, kv_heads, kv_len, value_dim] with kv_heads = {} and kv_len = {} "
         "as key has, got {}",
         shape.kv_heads, shape.kv_len, to_string(value.shape()));
  }
  const bool divides =
      shape.kv_heads > 0 ? shape.q_heads % shape.kv_heads == 0 : shape.q_heads == 0;
  if (!divides) {
    fail("heads: expected q_heads to be a multiple of kv_heads, got {} and {}", shape.q_heads,
         shape.kv_heads);
  }
  if (key.extent(3) != query.extent(3)) {
    fail("key: expected dim {} as query has, got {}", query.extent(3), key.extent(3));
  }
  validate(options, shape);
  if (options.execution.threads < 0) {
    fail("threads: expected 0 (as many as OpenMP says) or more, got {}",
         options.execution.threads);
  }
  if (problem.dtype() == DType::kFloat32) {
    const auto scale = static_cast<float>(problem.scale());
    const auto softcap = static_cast<float>(options.score.softcap);
    if (!std::isfinite(scale)) {
      fail("scale: expected a number that float32 holds, got {}", problem.scale());
    }
    if (!std::isfinite(softcap) || (softcap == 0.0f && options.score.softcap > 0.0)) {
      fail("softcap: expected a number that float32 holds, got {}", options.score.softcap);
    }
  }
  return problem;
}

void validate_outputs(const Problem& problem, const AttentionOutputs& outputs) {
  const ProblemShape& shape = problem.shape;
  const MutableTensorView& context = outputs.context;
  const MutableTensorView& lse = outputs.lse;
  if (context.defined()) {
    check_output(problem, context, "context",
                 {shape.batch, shape.q_heads, shape.q_len, problem.value_dim()},
                 "[batch, q_heads, q_len, value_dim]");
    if (context.extent(3) > 1 && context.strides()[3] != 1) {
      fail("context: expected a contiguous last dimension (stride 1), got strides {}",
           to_string(context.strides()));
    }
  }
  if (lse.defined()) {
    check_output(problem, lse, "lse", {shape.batch, shape.q_heads, shape.q_len},
                 "[batch, q_heads, q_len]");
  }
  if (context.defined() && lse.defined() && overlap(context, lse)) {
    fail("lse: expected memory of its own, got some that context uses");
  }
}

}  // namespace fovea::engine
