// SPDX-License-Identifier: Apache-2.0
//
// attention_heads on sharded tensors (fovea/distributed.h): each rank adds up the statistics of its
// rows, which the forward pass tells, and the weights near the diagonal, which a second trip of the
// keys recomputes. Sums are float64 and are added in the order of ranks.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/distributed.h"

#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/reduce.h"
#include "distributed/weights_pass.h"
#include "engine/call/parallel.h"
#include "engine/weights/head_sums.h"

namespace fovea::distributed {
namespace {

constexpr std::int64_t kChunkQueries = 256;

bool wants_neighbours(const HeadSummary& summary) {
  return summary.previous_key.defined() || summary.own_key.defined() || summary.next_key.defined();
}

/// The statistics of this rank's rows.
struct OwnRows {
  Tensor lse, entropy, maximum, mean_distance, first_key;

  OwnRows(const ProblemShape& shape, std::int64_t queries) {
    for (Tensor* tensor : {&lse, &entropy, &maximum, &mean_distance, &first_key}) {
      *tensor = Tensor(DType::kFloat32, {shape.batch, shape.q_heads, queries});
    }
  }
  Lenses lenses() {
    Lenses lenses;
    lenses.rows = {.entropy = entropy,
                   .maximum = maximum,
                   .mean_distance = mean_distance,
                   .first_key = first_key};
    return lenses;
  }
  reference::RowNumbers at(const Index& row) const {
    reference::RowNumbers numbers;
    numbers.entropy = entropy.value(row);
    numbers.maximum = maximum.value(row);
    numbers.mean_distance = mean_distance.value(row);
    numbers.first_key = first_key.value(row);
    return numbers;
  }
};

class Heads {
 public:
  Heads(const AttentionOptions& options, const ProblemShape& shape, const HeadSummary& summary)
      : options_(options),
        shape_(shape),
        summary_(summary),
        sums_(static_cast<std::size_t>(shape.batch * shape.q_heads)) {}

  void add_rows(const OwnRows& rows, const PositionRange& queries, std::int64_t first) {
    const Execution silent{.threads = options_.execution.threads};
    engine::for_each_item(silent, engine::thread_count(silent, heads()), heads(),
                          [&](std::int64_t head, int) {
                            engine::EvenEntropy even(options_, shape_.kv_len, summary_);
                            ScorePosition row = position(head, options_, shape_);
                            for (std::int64_t i = 0; i < queries.size(); ++i) {
                              row.query = queries.begin + i;
                              if (sums(head).add(rows.at({row.batch, row.head, first + i}))) {
                                sums(head).of[engine::kEvenEntropy] += even(row);
                              }
                            }
                          });
  }

  /// Adds the weights near the diagonal.
  void add_part(const WeightsPass::Part& part) {
    const engine::WeightsCall call(part.inputs, part.problem);
    const std::int64_t chunks = (part.range.queries + kChunkQueries - 1) / kChunkQueries;
    std::vector<engine::HeadSums> found(static_cast<std::size_t>(heads() * chunks));
    call.run(heads() * chunks, [&](std::int64_t number, std::byte* scratch) {
      const std::int64_t begin = number % chunks * kChunkQueries;
      const engine::QueryChunk chunk{
          .origin = position(number / chunks, part.problem.options, part.problem.shape),
          .begin = begin,
          .end = std::min(begin + kChunkQueries, part.range.queries)};
      engine::Diagonal diagonal(call, chunk, part.range.keys, scratch, part.range.first_key,
                                shape_.kv_len);
      engine::HeadSums& to = found[static_cast<std::size_t>(number)];
      if (wants_neighbours(summary_)) diagonal.add_neighbours(to);
      if (summary_.block_diagonal.defined()) {
        diagonal.add_blocks(engine::blocks_of(summary_, shape_.kv_len), to);
      }
    });
    for (std::size_t i = 0; i < found.size(); ++i) {
      sums_[i / static_cast<std::size_t>(chunks)].add(found[i]);
    }
  }

  /// Adds the sums of all ranks and writes their means. Collective.
  void finish(Transport& transport) {
    reduce(transport, std::span(sums_), [](engine::HeadSums before, const engine::HeadSums& own) {
      before.add(own);
      return before;
    });
    for (std::int64_t head = 0; head < heads(); ++head) {
      sums(head).write(summary_, head / shape_.q_heads, head % shape_.q_heads);
    }
  }

 private:
  std::int64_t heads() const { return shape_.batch * shape_.q_heads; }
  engine::HeadSums& sums(std::int64_t head) { return sums_[static_cast<std::size_t>(head)]; }
  static ScorePosition position(std::int64_t head, const AttentionOptions& options,
                                const ProblemShape& shape) {
    ScorePosition row{.batch = head / shape.q_heads, .head = head % shape.q_heads};
    row.offset = query_offset(options, shape, row.batch);
    return row;
  }

  const AttentionOptions& options_;
  const ProblemShape& shape_;
  const HeadSummary& summary_;
  std::vector<engine::HeadSums> sums_;
};

}  // namespace

void attention_heads(Transport& transport, const ShardedWeightInputs& inputs,
                     const AttentionOptions& options, const HeadSummary& summary) {
  ProblemShape shape;
  const ShardedInputs keys{inputs.query, inputs.key, inputs.key, inputs.queries, inputs.keys};
  std::optional<OwnRows> rows;
  bool wanted = false;
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_weight_inputs(transport, keys, options);
    engine::check_summary(own_problem(keys, options, shape), summary);
    std::string names = "statistics";
    for (const HeadNumber& number : kHeadNumbers) {
      if (!(summary.*number.output).defined()) continue;
      wanted = true;
      names += " " + std::string(number.name);
    }
    arguments = shared_arguments("attention_heads", keys, options,
                                 names + " of " + std::to_string(summary.blocks) + " blocks");
    rows.emplace(shape, inputs.query.extent(2));
  });
  if (!wanted) return;
  AttentionOptions own = options;
  own.execution.workspace = {};
  const Lenses lenses = rows->lenses();
  const ShardedInputs rows_alone{inputs.query, inputs.key, no_value(inputs.key), inputs.queries,
                                 inputs.keys};
  attention_forward(transport, rows_alone, own, {.lse = rows->lse, .lenses = &lenses});
  std::optional<Heads> heads;
  std::optional<WeightsPass> pass;
  do_on_all(transport, [&] {
    heads.emplace(own, shape, summary);
    std::int64_t first = 0;
    for (const PositionRange& queries : inputs.queries.ranges(transport.rank())) {
      heads->add_rows(*rows, queries, first);
      first += queries.size();
    }
    ShardedWeightInputs known = inputs;
    known.lse = rows->lse;
    pass.emplace(transport, known, own, shape);
  });
  if (wants_neighbours(summary) || summary.block_diagonal.defined()) {
    pass->run([&](const WeightsPass::Part& part) { heads->add_part(part); });
  }
  heads->finish(transport);
}

}  // namespace fovea::distributed
