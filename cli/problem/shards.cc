// SPDX-License-Identifier: Apache-2.0
//
// Shared computations (shards.h).

#include "cli/problem/shards.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cli/shell/job.h"
#include "distributed/rows.h"
#include "problem/mask_rules.h"

namespace fovea::cli {
namespace {

using distributed::PositionRange;
using distributed::Sharding;
using distributed::Transport;

/// Returns the visible pairs of the rank with the most, of the first head. Some rows are counted
/// for all.
double most_pairs(const Sharding& queries, const ProblemShape& shape,
                  const AttentionOptions& options) {
  constexpr std::int64_t kRows = 32;
  std::vector<std::uint8_t> visible;
  double most = 0.0;
  for (int rank = 0; rank < queries.ranks(); ++rank) {
    double pairs = 0.0;
    for (const PositionRange& range : queries.ranges(rank)) {
      const std::int64_t rows = std::min(kRows, range.size());
      ScorePosition at{.offset = query_offset(options, shape, 0)};
      double seen = 0.0;
      for (std::int64_t row = 0; row < rows; ++row) {
        at.query = range.begin + (2 * row + 1) * range.size() / (2 * rows);
        seen += static_cast<double>(count_visible(options.mask, at, shape.kv_len, visible));
      }
      pairs += seen / static_cast<double>(rows) * static_cast<double>(range.size());
    }
    most = std::max(most, pairs);
  }
  return most;
}

struct Shards {
  Sharding queries, keys;

  /// Chooses the sharding that gives the ranks more equal work; contiguous parts if both do,
  /// because ranks then need the keys of fewer others under a window.
  Shards(const Transport& transport, const ProblemShape& shape, const AttentionOptions& options)
      : queries(Sharding::contiguous(shape.q_len, transport.size())) {
    const Sharding zigzag = Sharding::zigzag(shape.q_len, transport.size());
    constexpr double kMuchLess = 0.9;
    const bool balances =
        shape.batch > 0 && shape.q_heads > 0 &&
        most_pairs(zigzag, shape, options) < kMuchLess * most_pairs(queries, shape, options);
    if (balances) queries = zigzag;
    keys = balances ? Sharding::zigzag(shape.kv_len, transport.size())
                    : Sharding::contiguous(shape.kv_len, transport.size());
  }
};

/// This rank's part of the inputs of a call that computes weights.
struct WeightShards : Shards {
  Tensor query, key, lse;

  WeightShards(const Transport& transport, const ProblemShape& shape, const WeightInputs& inputs,
               const AttentionOptions& options)
      : Shards(transport, shape, options),
        query(shard(inputs.query, queries, transport.rank())),
        key(shard(inputs.key, keys, transport.rank())),
        lse(inputs.lse.defined() ? shard(inputs.lse, queries, transport.rank()) : Tensor()) {}

  distributed::ShardedWeightInputs inputs() const { return {query, key, lse, queries, keys}; }
};

/// Gathers a result on rank 0, and copies it to `whole` there.
void collect(Transport& transport, const Sharding& sharding, const Tensor& part,
             const MutableTensorView& whole) {
  if (!part.defined()) return;
  const Tensor all = gather(transport, sharding, part);
  if (all.defined()) distributed::copy_rows(all, whole);
}

}  // namespace

void attend_in_job(const AttendInputs& inputs, const AttentionOptions& options,
                   const AttentionOutputs& outputs) {
  Transport* const transport = job_transport();
  const TensorView &query = inputs.query.view, &key = inputs.key.view, &value = inputs.value.view;
  if (transport == nullptr) return attention_forward(query, key, value, options, outputs);
  const int rank = transport->rank();
  const Shards shards = in_step([&] { return Shards(*transport, inputs.shape, options); });
  struct Parts {
    Tensor query, key, value, context, lse;
  };
  Parts own = in_step([&] {
    Parts parts{shard(query, shards.queries, rank),
                shard(key, shards.keys, rank),
                shard(value, shards.keys, rank),
                {},
                {}};
    const ProblemShape& shape = inputs.shape;
    const Shape rows{shape.batch, shape.q_heads, shards.queries.length(rank)};
    if (outputs.lse.defined()) parts.lse = Tensor(outputs.lse.dtype(), rows);
    if (outputs.context.defined()) {
      parts.context =
          Tensor(outputs.context.dtype(), {rows[0], rows[1], rows[2], inputs.value_dim()});
    }
    return parts;
  });
  do_step([&] {
    attention_forward(*transport, {own.query, own.key, own.value, shards.queries, shards.keys},
                      options, {.context = own.context.view(), .lse = own.lse.view()});
    collect(*transport, shards.queries, own.context, outputs.context);
    collect(*transport, shards.queries, own.lse, outputs.lse);
  });
}

AttentionMap map_in_job(const ProblemShape& shape, const WeightInputs& inputs,
                        const MapRequest& request, const AttentionOptions& options) {
  Transport* const transport = job_transport();
  if (transport == nullptr) return attention_map(inputs, request, options);
  const WeightShards own =
      in_step([&] { return WeightShards(*transport, shape, inputs, options); });
  return in_step([&] { return attention_map(*transport, own.inputs(), request, options); });
}

void heads_in_job(const ProblemShape& shape, const WeightInputs& inputs,
                  const AttentionOptions& options, const HeadSummary& summary) {
  Transport* const transport = job_transport();
  if (transport == nullptr) return attention_heads(inputs, options, summary);
  const WeightShards own =
      in_step([&] { return WeightShards(*transport, shape, inputs, options); });
  do_step([&] { attention_heads(*transport, own.inputs(), options, summary); });
}

}  // namespace fovea::cli
