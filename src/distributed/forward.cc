// SPDX-License-Identifier: Apache-2.0
//
// attention_forward on sharded tensors (fovea/distributed.h). The engine computes each pair of a
// range of queries and a range of keys as a problem of its own (problem/part.h), while the next
// keys arrive. Results are merged in the order in which keys arrive, those of this rank first, so
// that timing does not affect rounding.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/distributed.h"

#include "core/fail.h"
#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/map.h"
#include "distributed/partial.h"
#include "distributed/ring.h"
#include "distributed/ring_pass.h"
#include "distributed/row_lenses.h"
#include "distributed/rows.h"
#include "engine/call/workspace.h"
#include "engine/lenses/lenses.h"

namespace fovea::distributed {
namespace {

// Results of a block that are not merged yet. The engine reads the keys again for each block of
// queries, so blocks have at least kMinBlockQueries.
constexpr std::int64_t kPartialBytes = 8 << 20;
constexpr std::int64_t kMinBlockQueries = 512;

/// The forward pass of one rank.
class ForwardPass : public RingPass {
 public:
  ForwardPass(Transport& transport, const ShardedInputs& inputs, const AttentionOptions& options,
              const ProblemShape& shape, const AttentionOutputs& outputs)
      : RingPass(transport, inputs, options, shape),
        type_(inputs.query.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        rows_(outputs, {shape.batch, shape.q_heads, inputs.query.extent(2)}, type_,
              options.score.sinks),
        lenses_(engine::lenses_of(outputs), {shape.batch, shape.q_heads, inputs.query.extent(2)},
                inputs.query.extent(3)),
        context_wanted_(outputs.context.defined()) {
    const std::int64_t heads = shape.batch * shape.q_heads;
    const std::int64_t head_bytes = inputs.value.extent(3) * number_bytes();
    const std::int64_t fit = kPartialBytes / std::max<std::int64_t>(1, heads * head_bytes);
    block_queries_ =
        std::clamp(inputs.query.extent(2), std::int64_t{1}, std::max(kMinBlockQueries, fit));
    const auto block_rows = static_cast<std::size_t>(heads * block_queries_);
    lse_bytes_ = aligned(block_rows * static_cast<std::size_t>(number_bytes()));
    context_bytes_ =
        outputs.context.defined() ? aligned(block_rows * static_cast<std::size_t>(head_bytes)) : 0;
  }

  void run() {
    const RingPlan plan = make_plan();
    std::span<std::byte> outgoing, incoming;
    std::optional<engine::Workspace> workspace;
    attempt([&] {
      const std::size_t message = message_bytes(plan);
      const std::size_t bytes =
          2 * message + lse_bytes_ + context_bytes_ + aligned(rows_.memory_bytes());
      workspace.emplace(std::span<std::byte>(), bytes, engine::Workspace::User::kCallOfCalls);
      std::byte* const at = workspace->data();
      outgoing = {at, message};
      incoming = {at + message, message};
      lse_ = at + 2 * message;
      context_ = lse_ + lse_bytes_;
      rows_.use_memory(context_ + context_bytes_);
      if (message > 0) pack(plan.circulating(rank(), 1), outgoing.data() + kHeaderBytes);
    });
    share();  // without memory, a rank cannot take part
    circulate(plan, outgoing, incoming,
              [&](const KeyPiece& piece, const PieceTensors& tensors) { attend(piece, tensors); });
    attempt([&] { lenses_.finish(options_.score.sinks); });
    attempt([&] { rows_.finish(options_.execution); });
    share();
  }

 private:
  /// Adds the results of all queries of this rank that see keys of the piece.
  void attend(const KeyPiece& piece, const PieceTensors& tensors) {
    for_each_block(piece, block_queries_, [&](const Block& block, const AttentionOptions& options) {
      const std::int64_t queries = block.range.queries;
      const Shape rows = {shape_.batch, shape_.q_heads, queries};
      const Shape elements = {rows[0], rows[1], rows[2], tensors.value.extent(3)};
      const MutableTensorView lse(lse_, type_, rows);
      MutableTensorView context;
      if (context_wanted_) {
        context = rows_.place_of_first(block.first, queries);
        if (!context.defined()) context = {context_, type_, elements};
      }
      const TensorView query = rows_from(inputs_.query, block.first, queries);
      RowLenses::Results results;
      if (lenses_.any()) {
        results = lenses_.results_for(
            {shape_.batch, shape_.q_heads, shape_.kv_heads, queries, block.range.keys}, type_);
      }
      const Lenses lenses = results.lenses();
      fovea::attention_forward(query, tensors.key, tensors.value, options,
                               {.context = context, .lse = lse, .lenses = &lenses});
      rows_.add(context, lse, block.first, options_.execution);
      if (lenses_.any()) {
        lenses_.add({query, tensors.key, lse, options, block.range, block.first}, results);
      }
    });
  }

  std::int64_t number_bytes() const { return static_cast<std::int64_t>(dtype_size(type_)); }

  const DType type_;  // of partial results
  PartialRows rows_;
  RowLenses lenses_;
  const bool context_wanted_;
  std::int64_t block_queries_ = 1;
  // Results of a block.
  std::size_t lse_bytes_ = 0, context_bytes_ = 0;
  std::byte* lse_ = nullptr;
  std::byte* context_ = nullptr;
};

std::string words_of_outputs(const AttentionOutputs& outputs) {
  std::string text;
  const auto add = [&text](const char* name, const MutableTensorView& tensor) {
    if (!tensor.defined()) return;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  const auto add_sized = [&](const char* name, const MutableTensorView& tensor, int dim) {
    if (!tensor.defined()) return;
    Shape extents;
    for (; dim < tensor.rank(); ++dim) extents.push_back(tensor.extent(dim));
    add(fmt::format("{} {}", name, to_string(extents)).c_str(), tensor);
  };
  const Lenses& lenses = engine::lenses_of(outputs);
  add("context", outputs.context);
  add("lse", outputs.lse);
  add("rows.entropy", lenses.rows.entropy);
  add("rows.maximum", lenses.rows.maximum);
  add("rows.maximum_key", lenses.rows.maximum_key);
  add("rows.mean_distance", lenses.rows.mean_distance);
  add("rows.distance_variance", lenses.rows.distance_variance);
  add("rows.first_key", lenses.rows.first_key);
  add("rows.mean_offset", lenses.rows.mean_offset);
  add_sized("top.keys", lenses.top.keys, 3);
  add_sized("top.weights", lenses.top.weights, 3);
  add_sized("map.cells", lenses.map.cells, 2);
  add_sized("map.pairs", lenses.map.pairs, 2);
  return text.empty() ? "nothing" : text + fmt::format(", pool {}", pool_name(lenses.map.pool));
}

/// Checks the outputs of this rank: rows are those of its queries, and a map is that of all ranks.
void check_outputs(const ShardedInputs& inputs, const AttentionOptions& options,
                   const ProblemShape& shape, const AttentionOutputs& outputs) {
  const engine::Problem own = own_problem(inputs, options, shape);
  AttentionOutputs rows = outputs;
  Lenses of_rows = engine::lenses_of(outputs), of_map;
  of_map.map = std::exchange(of_rows.map, {});
  // Top keys may be from any rank.
  engine::Problem with_all_keys = own;
  with_all_keys.shape.kv_len = shape.kv_len;
  rows.lenses = &of_rows;
  engine::validate_outputs(with_all_keys, rows);
  if (!of_map.map.cells.defined() && !of_map.map.pairs.defined()) return;
  if (own.is_float64()) {
    fail_argument(
        "map", "expected float32, float16 or bfloat16 for a map of sharded tensors, got float64");
  }
  engine::Problem whole = own;
  whole.shape = shape;
  rows = {.lenses = &of_map};
  engine::validate_outputs(whole, rows);
}

}  // namespace

void attention_forward(Transport& transport, const ShardedInputs& inputs,
                       const AttentionOptions& options, const AttentionOutputs& outputs) {
  ProblemShape shape;
  const Lenses& lenses = engine::lenses_of(outputs);
  const bool map = lenses.map.cells.defined() || lenses.map.pairs.defined();
  AttentionOutputs first = outputs;
  Tensor lse;
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_inputs(transport, inputs, options);
    check_outputs(inputs, options, shape, outputs);
    arguments = shared_arguments("attention_forward", inputs, options, words_of_outputs(outputs));
    if (map && !outputs.lse.defined()) {
      lse = Tensor(DType::kFloat32, {shape.batch, shape.q_heads, inputs.query.extent(2)});
      first.lse = lse;
    }
  });
  if (!engine::asks_for_anything(outputs)) return;
  std::optional<ForwardPass> pass;
  do_on_all(transport, [&] { pass.emplace(transport, inputs, options, shape, first); });
  pass->run();
  pass.reset();
  if (map) {
    pool_map(transport, {inputs.query, inputs.key, first.lse, inputs.queries, inputs.keys}, options,
             shape, lenses.map);
  }
}

}  // namespace fovea::distributed
