// SPDX-License-Identifier: Apache-2.0
//
// Weights of recorded attentions, part by part (tiles.h).

#include "recording/tiles.h"

#include "core/fail.h"

namespace fovea::recording {

void require_recorded(const RecordedAttention& attention) {
  const auto require = [](const TensorRef& tensor, const char* name, int rank, const char* shape) {
    if (tensor.defined() && tensor->rank() == rank) return;
    fail_argument(name, "expected {}, got {}", shape,
                  tensor.defined() ? to_string(tensor->shape()) : "nothing");
  };
  require(attention.query, "query", 4, "[batch, q_heads, q_len, head_dim]");
  require(attention.key, "key", 4, "[batch, kv_heads, kv_len, head_dim]");
  require(attention.lse, "lse", 3, "[batch, q_heads, q_len]");
  if (attention.query->dtype() == DType::kFloat64) {
    fail_argument("query", "expected float32, float16 or bfloat16, got float64");
  }
  // One weight, to check everything else; nothing else is known to be there.
  const ProblemShape shape = attention.shape();
  if (shape.batch == 0 || shape.q_heads == 0 || shape.q_len == 0 || shape.kv_len == 0) {
    fail("nothing to analyse: got batch {}, heads {}, queries {}, keys {}", shape.batch,
         shape.q_heads, shape.q_len, shape.kv_len);
  }
  PartWeights(attention, {}).compute({.queries = 1, .keys = 1});
}

PartWeights::PartWeights(const RecordedAttention& attention, const Execution& execution)
    : attention_(attention),
      options_(attention.options),
      weights_(static_cast<std::size_t>(kPartQueries * kPartKeys)) {
  options_.execution = {.threads = 1, .stop = execution.stop};
}

void PartWeights::compute(const WeightTile& part) {
  attention_weights(attention_.inputs(), part, options_,
                    MutableTensorView(weights_.data(), DType::kFloat32, {part.queries, part.keys},
                                      {kPartKeys, 1}));
}

IndexRange keys_of_queries(const RecordedAttention& attention, const WeightTile& queries) {
  const ProblemShape shape = attention.shape();
  std::vector<KeyRange> ranges(static_cast<std::size_t>(queries.queries));
  attention.options.mask.key_ranges(
      {.batch = queries.batch,
       .head = queries.head,
       .query = queries.first_query,
       .offset = query_offset(attention.options, shape, queries.batch)},
      shape.kv_len, ranges);
  IndexRange keys = {shape.kv_len, 0};
  for (const KeyRange& range : ranges) {
    if (range.begin >= range.end) continue;
    keys.begin = std::min(keys.begin, range.begin);
    keys.end = std::max(keys.end, range.end);
  }
  return keys.begin < keys.end ? keys : IndexRange{0, 0};
}

}  // namespace fovea::recording
