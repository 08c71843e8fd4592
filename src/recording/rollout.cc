// SPDX-License-Identifier: Apache-2.0
//
// Attention rollout (fovea/analysis.h). A work item is a head with a block of keys, which it
// multiplies with all queries of non-zero share. The heads' sums are added in their order.

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "fovea/analysis.h"

#include "core/fail.h"
#include "engine/call/parallel.h"
#include "recording/row_kernels.h"
#include "recording/tiles.h"

namespace fovea {
namespace recording {
namespace {

void check_rollout(std::span<const RecordedAttention* const> layers,
                   const RolloutRequest& request) {
  if (layers.empty()) fail_argument("layers", "expected at least one attention, got none");
  std::unordered_map<std::int64_t, const RecordedAttention*> once;
  for (const RecordedAttention* const layer : layers) {
    if (layer == nullptr) fail_argument("layers", "expected attentions, got a null pointer");
    require_recorded(*layer);
    const auto [other, is_new] = once.emplace(layer->layer, layer);
    if (!is_new) {
      fail_argument("layers", "expected each layer of one stack once, got layer {} twice: {}, {}",
                    layer->layer, other->second->name, layer->name);
    }
    const ProblemShape shape = layer->shape(), first = layers.front()->shape();
    if (layer->kind == AttentionKind::kCross || shape.q_len != shape.kv_len) {
      fail_argument("layers",
                    "expected self-attention with as many keys as queries, got {} with "
                    "{} queries and {} keys",
                    layer->name, shape.q_len, shape.kv_len);
    }
    if (shape.q_len != first.q_len || shape.batch != first.batch) {
      fail_argument("layers", "expected batch {} and {} tokens as {} has, got {} with {} and {}",
                    first.batch, first.q_len, layers.front()->name, layer->name, shape.batch,
                    shape.q_len);
    }
  }
  const ProblemShape shape = layers.front()->shape();
  const auto check_index = [](const char* name, std::int64_t index, std::int64_t count) {
    if (index >= 0 && index < count) return;
    fail_argument(name, "expected 0 or more and less than {}, got {}", count, index);
  };
  check_index("batch", request.batch, shape.batch);
  check_index("query", request.query, shape.q_len);
  if (!(request.residual >= 0.0 && request.residual <= 1.0)) {
    fail_argument("residual", "expected a number from 0 to 1, got {}", request.residual);
  }
}

/// Adds the product of `shares` and the weights of one head to `sums`, for the keys of one block.
void multiply_head(const RecordedAttention& layer, const WeightTile& head, IndexRange keys,
                   std::span<const double> shares, PartWeights& weights, double* sums) {
  std::vector<float> part_sums(static_cast<std::size_t>(kPartKeys));
  const std::int64_t tokens = layer.shape().q_len;
  for (std::int64_t block = 0; block < tokens; block += kPartQueries) {
    // The queries of the block with a share.
    WeightTile queries = head;
    queries.first_query = block;
    std::int64_t end = std::min(block + kPartQueries, tokens);
    const auto is_zero = [&](std::int64_t query) {
      return shares[static_cast<std::size_t>(query)] == 0.0;
    };
    while (queries.first_query < end && is_zero(queries.first_query)) ++queries.first_query;
    while (queries.first_query < end && is_zero(end - 1)) --end;
    queries.queries = end - queries.first_query;
    if (queries.queries == 0) continue;
    const IndexRange seen = keys_of_queries(layer, queries);
    const IndexRange part_keys = {std::max(seen.begin, keys.begin), std::min(seen.end, keys.end)};
    if (part_keys.begin >= part_keys.end) continue;
    queries.first_key = part_keys.begin;
    queries.keys = part_keys.size();
    weights.compute(queries);
    std::fill_n(part_sums.begin(), queries.keys, 0.0f);
    for (std::int64_t i = 0; i < queries.queries; ++i) {
      const double share = shares[static_cast<std::size_t>(queries.first_query + i)];
      add_row(static_cast<float>(share), weights.row(i), queries.keys, part_sums.data());
    }
    for (std::int64_t k = 0; k < queries.keys; ++k) {
      sums[queries.first_key - keys.begin + k] +=
          static_cast<double>(part_sums[static_cast<std::size_t>(k)]);
    }
  }
}

/// Returns shares * (r I + (1 - r) W), with W averaged over heads.
std::vector<double> through_layer(const RecordedAttention& layer, const RolloutRequest& request,
                                  std::span<const double> shares, const Execution& execution) {
  const ProblemShape shape = layer.shape();
  const std::int64_t blocks = (shape.kv_len + kPartKeys - 1) / kPartKeys;
  const std::int64_t items = shape.q_heads * blocks;
  const int threads = engine::thread_count(execution, items);
  std::vector<PartWeights> weights(static_cast<std::size_t>(threads),
                                   PartWeights(layer, execution));
  std::vector<double> sums(static_cast<std::size_t>(shape.q_heads * shape.kv_len));
  engine::for_each_item(execution, threads, items, [&](std::int64_t item, int thread) {
    const std::int64_t head = item / blocks;
    const std::int64_t begin = item % blocks * kPartKeys;
    multiply_head(layer, {.batch = request.batch, .head = head},
                  {begin, std::min(begin + kPartKeys, shape.kv_len)}, shares,
                  weights[static_cast<std::size_t>(thread)],
                  sums.data() + head * shape.kv_len + begin);
  });
  std::vector<double> result(shares.begin(), shares.end());
  for (std::int64_t token = 0; token < shape.kv_len; ++token) {
    double sum = 0.0;
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      sum += sums[static_cast<std::size_t>(head * shape.kv_len + token)];
    }
    double& share = result[static_cast<std::size_t>(token)];
    share = request.residual * share +
            (1.0 - request.residual) * sum / static_cast<double>(shape.q_heads);
  }
  return result;
}

}  // namespace
}  // namespace recording

Tensor attention_rollout(std::span<const RecordedAttention* const> layers,
                         const RolloutRequest& request, const Execution& execution) {
  recording::check_rollout(layers, request);
  const std::int64_t tokens = layers.front()->shape().q_len;
  const auto count = static_cast<std::int64_t>(layers.size());
  Tensor result(DType::kFloat64, {count, tokens});
  std::vector<double> shares(static_cast<std::size_t>(tokens));
  shares[static_cast<std::size_t>(request.query)] = 1.0;
  Execution of_layer = execution;
  for (std::int64_t layer = count - 1; layer >= 0; --layer) {
    if (execution.progress) {
      of_layer.progress = [&](std::int64_t done, std::int64_t total) {
        execution.progress((count - 1 - layer) * total + done, count * total);
      };
    }
    shares = recording::through_layer(*layers[static_cast<std::size_t>(layer)], request, shares,
                                      of_layer);
    std::ranges::copy(shares, result.span<double>().begin() + layer * tokens);
  }
  return result;
}

}  // namespace fovea
