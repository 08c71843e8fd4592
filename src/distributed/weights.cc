// SPDX-License-Identifier: Apache-2.0
//
// Rectangles of weights of sharded tensors (fovea/distributed.h). Their queries and keys are few,
// so they are sent to the rank that wants the weights.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "fovea/distributed.h"

#include "core/fail.h"
#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/reduce.h"
#include "distributed/rows.h"
#include "engine/weights/weights_call.h"
#include "problem/part.h"

namespace fovea::distributed {
namespace {

/// The rows of a rank within a range of positions.
struct Overlap {
  std::int64_t own;     // the index of the first row in the part of the rank
  std::int64_t within;  // the index of the first row in the range
  std::int64_t count;
};

std::vector<Overlap> overlaps(const Sharding& sharding, int rank, const PositionRange& wanted) {
  std::vector<Overlap> found;
  std::int64_t first = 0;
  for (const PositionRange& range : sharding.ranges(rank)) {
    const std::int64_t begin = std::max(range.begin, wanted.begin);
    const std::int64_t end = std::min(range.end, wanted.end);
    if (begin < end)
      found.push_back({first + begin - range.begin, begin - wanted.begin, end - begin});
    first += range.size();
  }
  return found;
}

/// Collects the wanted rows of [1, 1, length, ...] on rank `root`.
Tensor collect(Transport& transport, const Sharding& sharding, const TensorView& part,
               const PositionRange& wanted, int root) {
  const auto rows = [&](std::int64_t count) {
    Shape shape = part.shape();
    shape[2] = count;
    return Tensor(part.dtype(), shape);
  };
  const auto count_of = [&](int rank) {
    std::int64_t count = 0;
    for (const Overlap& overlap : overlaps(sharding, rank, wanted)) count += overlap.count;
    return count;
  };
  const int rank = transport.rank();
  Tensor own = rows(count_of(rank));
  std::int64_t at = 0;
  for (const Overlap& overlap : overlaps(sharding, rank, wanted)) {
    copy_rows(rows_from(part, overlap.own, overlap.count),
              rows_from(own.view(), at, overlap.count));
    at += overlap.count;
  }
  if (rank != root) {
    if (own.size() > 0) exchange_now(transport, {.to = root, .send = bytes_in(own)});
    return {};
  }
  Tensor all = rows(wanted.size());
  for (int from = 0; from < transport.size(); ++from) {
    Tensor other = from == root ? own : rows(count_of(from));
    if (from != root && other.size() > 0) {
      exchange_now(transport, {.from = from, .receive = bytes_in(other)});
    }
    at = 0;
    for (const Overlap& overlap : overlaps(sharding, from, wanted)) {
      copy_rows(rows_from(TensorView(other), at, overlap.count),
                rows_from(all.view(), overlap.within, overlap.count));
      at += overlap.count;
    }
  }
  return all;
}

}  // namespace

Tensor attention_weights(Transport& transport, const ShardedWeightInputs& inputs,
                         const WeightTile& tile, const AttentionOptions& options, int root) {
  ProblemShape shape;
  const ShardedInputs keys{inputs.query, inputs.key, inputs.key, inputs.queries, inputs.keys};
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_weight_inputs(transport, keys, options);
    check_lse(keys, shape, inputs.lse);
    check_root(transport, root);
    engine::check_tile(shape, tile);
    arguments = shared_arguments(
        "attention_weights", keys, options,
        fmt::format("batch {}, head {}, {} queries from {}, {} keys from {}, on rank {}",
                    tile.batch, tile.head, tile.queries, tile.first_query, tile.keys,
                    tile.first_key, root));
  });
  const PositionRange queries{tile.first_query, tile.first_query + tile.queries};
  const std::int64_t kv_head = tile.head / (shape.q_heads / shape.kv_heads);
  const Tensor query = collect(transport, inputs.queries,
                               head_of(inputs.query, tile.batch, tile.head), queries, root);
  const Tensor lse =
      collect(transport, inputs.queries, head_of(inputs.lse, tile.batch, tile.head), queries, root);
  const Tensor key = collect(transport, inputs.keys, head_of(inputs.key, tile.batch, kv_head),
                             {tile.first_key, tile.first_key + tile.keys}, root);
  Tensor weights;
  do_on_all(transport, [&] {
    if (transport.rank() == root) {
      const PairRange range{tile.first_query, tile.queries, tile.first_key, tile.keys};
      const AttentionOptions of_range = part_of(options, shape, range);
      ProblemShape part_shape = shape;
      part_shape.q_len = tile.queries;
      part_shape.kv_len = tile.keys;
      const ProblemPart part(of_range, part_shape,
                             {.item = tile.batch, .head = tile.head, .queries = tile.queries});
      weights = Tensor(DType::kFloat32, {tile.queries, tile.keys});
      fovea::attention_weights({query, key, lse}, {.queries = tile.queries, .keys = tile.keys},
                               part.options(), weights);
    }
  });
  return weights;
}

}  // namespace fovea::distributed
