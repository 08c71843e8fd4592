// SPDX-License-Identifier: Apache-2.0
//
// attention_decode on a sharded cache (fovea/distributed.h): each rank attends to its keys, and all
// ranks merge the results of all, in the order of ranks.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fovea/distributed.h"

#include "core/fail.h"
#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/partial.h"
#include "distributed/ring.h"
#include "distributed/rows.h"
#include "engine/lenses/lenses.h"
#include "problem/part.h"

namespace fovea::distributed {
namespace {

/// The results of one rank, or of several in a row of memory: a context and its lse.
struct Results {
  Shape rows;  // [batch, q_heads, q_len]
  std::int64_t value_dim;
  DType type;

  std::size_t context_bytes() const {
    return static_cast<std::size_t>(element_count(rows) * value_dim) * dtype_size(type);
  }
  std::size_t bytes() const {
    return context_bytes() + static_cast<std::size_t>(element_count(rows)) * dtype_size(type);
  }
  MutableTensorView context(std::byte* at) const {
    const Shape shape{rows[0], rows[1], rows[2], value_dim};
    return {at, type, shape};
  }
  MutableTensorView lse(std::byte* at) const { return {at + context_bytes(), type, rows}; }
};

/// Computes the results on the keys of this rank, without sinks.
void decode_own(const Transport& transport, const ShardedCache& inputs,
                const AttentionOptions& options, const ProblemShape& shape, const Results& results,
                std::byte* at) {
  const AttentionOutputs own{.context = results.context(at), .lse = results.lse(at)};
  PartialRows rows(own, results.rows, results.type, {});
  Tensor context(results.type, own.context.shape()), lse(results.type, results.rows);
  for (const KeyPiece& piece : RingPlan::ranges_of(inputs.keys, transport.rank())) {
    const std::int64_t keys = piece.positions.size();
    AttentionOptions part = part_of(options, shape, {0, shape.q_len, piece.positions.begin, keys});
    part.score.sinks.clear();
    part.execution.workspace = {};
    fovea::attention_decode(inputs.query, rows_from(inputs.key, piece.first, keys),
                            rows_from(inputs.value, piece.first, keys), part,
                            {.context = context, .lse = lse});
    rows.add(context, lse, 0, options.execution);
  }
  rows.finish(options.execution);
}

}  // namespace

void attention_decode(Transport& transport, const ShardedCache& inputs,
                      const AttentionOptions& options, const AttentionOutputs& outputs) {
  ProblemShape shape;
  std::optional<Results> results;
  std::vector<std::byte> own, all;
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_cache(transport, inputs, options);
    if (engine::asks_for_lenses(outputs)) {
      fail_argument("lenses", "expected none for a sharded cache, got some");
    }
    const ShardedInputs all_queries{inputs.query, inputs.key, inputs.value,
                                    Sharding::lengths({shape.q_len}), inputs.keys};
    engine::validate_outputs(own_problem(all_queries, options, shape), outputs);
    const DType type = inputs.query.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    results = Results{{shape.batch, shape.q_heads, shape.q_len}, inputs.value.extent(3), type};
    arguments = shared_arguments(
        "attention_decode", all_queries, options,
        fmt::format("{}context, {}lse, for queries {}", outputs.context.defined() ? "" : "no ",
                    outputs.lse.defined() ? "" : "no ", text_of_contents(inputs.query)));
    own.resize(results->bytes());
    all.resize(own.size() * static_cast<std::size_t>(transport.size()));
  });
  if (!engine::asks_for_anything(outputs)) return;
  do_on_all(transport,
            [&] { decode_own(transport, inputs, options, shape, *results, own.data()); });
  transport.all_gather(own, all);
  PartialRows rows(outputs, results->rows, results->type, options.score.sinks);
  std::vector<std::byte> sums(rows.memory_bytes());
  rows.use_memory(sums.data());
  for (int rank = 0; rank < transport.size(); ++rank) {
    std::byte* const at = all.data() + static_cast<std::size_t>(rank) * own.size();
    rows.add(results->context(at), results->lse(at), 0, options.execution);
  }
  rows.finish(options.execution);
}

}  // namespace fovea::distributed
