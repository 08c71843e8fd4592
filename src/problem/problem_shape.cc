// SPDX-License-Identifier: Apache-2.0
//
// Shape checks of a problem's tensors (problem_shape.h).

#include "problem/problem_shape.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace fovea {

void validate_input(const TensorView& tensor, std::string_view name) {
  if (!tensor.defined() || tensor.rank() != 4) {
    fail_argument(name, "expected [batch, heads, length, dim], got {}",
                  tensor.defined() ? to_string(tensor.shape()) : "nothing");
  }
  if (!is_float(tensor.dtype())) {
    fail_argument(name, "expected float32, float64, float16 or bfloat16, got {}",
                  dtype_name(tensor.dtype()));
  }
}

ProblemShape problem_shape(const TensorView& query, const TensorView& key, const TensorView& value,
                           const AttentionOptions& options) {
  const ProblemShape shape{query.extent(0), query.extent(1), key.extent(1),
                           query.extent(2), key.extent(2),   options.sequences.count()};
  if (key.extent(0) != shape.batch || value.extent(0) != shape.batch) {
    fail_argument("batch", "expected the same for query, key and value, got {}, {} and {}",
                  shape.batch, key.extent(0), value.extent(0));
  }
  if (value.extent(1) != shape.kv_heads || value.extent(2) != shape.kv_len) {
    fail_argument("value",
                  "expected [batch, kv_heads, kv_len, value_dim] with kv_heads = {} and "
                  "kv_len = {} as key has, got {}",
                  shape.kv_heads, shape.kv_len, to_string(value.shape()));
  }
  const bool divides =
      shape.kv_heads > 0 ? shape.q_heads % shape.kv_heads == 0 : shape.q_heads == 0;
  if (!divides) {
    fail_argument("heads", "expected q_heads to be a multiple of kv_heads, got {} and {}",
                  shape.q_heads, shape.kv_heads);
  }
  return shape;
}

bool has_bias(const ScoreOptions& score) {
  return score.bias.defined() || score.alibi || score.relative;
}

double score_scale(const ScoreOptions& score, std::int64_t head_dim) {
  if (score.scale) return *score.scale;
  return 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(head_dim, 1)));
}

}  // namespace fovea
