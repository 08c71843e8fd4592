// SPDX-License-Identifier: Apache-2.0
//
// Head statistics (fovea/heads.h). The fused pass computes the statistics and the lse of each row.
// The weights along the diagonal are then recomputed from lse. HeadSums are computed per chunk of
// queries and then added in chunk order, so that results do not depend on the thread count.

#include "fovea/heads.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention.h"
#include "fovea/reference.h"

#include "engine/call/contiguous.h"
#include "engine/call/outputs.h"
#include "engine/call/progress.h"
#include "engine/lenses/lenses.h"
#include "engine/weights/head_sums.h"
#include "engine/weights/weights_call.h"
#include "problem/cells.h"
#include "reference/lenses.h"

namespace fovea {
namespace engine {
namespace {

// Queries per chunk: few enough to react quickly to a stop request. The reference is slow and uses
// smaller chunks.
constexpr std::int64_t kChunkQueries = 256;
constexpr std::int64_t kReferenceChunkQueries = 16;

/// All chunks of a call, with the sums of each chunk.
class Chunks {
 public:
  Chunks(const Problem& problem, std::int64_t queries)
      : problem_(problem),
        queries_(queries),
        each_((problem.shape.q_len + queries - 1) / queries),
        sums_(static_cast<std::size_t>(problem.shape.batch * problem.shape.q_heads * each_)) {}

  std::int64_t count() const { return static_cast<std::int64_t>(sums_.size()); }
  HeadSums& sums(std::int64_t number) { return sums_[static_cast<std::size_t>(number)]; }

  QueryChunk chunk(std::int64_t number) const {
    const ProblemShape& shape = problem_.shape;
    const std::int64_t batch = number / (shape.q_heads * each_);
    const std::int64_t begin = number % each_ * queries_;
    return {.origin = {.batch = batch,
                       .head = number / each_ % shape.q_heads,
                       .offset = query_offset(problem_.options, shape, batch)},
            .begin = begin,
            .end = std::min(begin + queries_, shape.q_len)};
  }

  void write(const HeadSummary& summary) const {
    const ProblemShape& shape = problem_.shape;
    auto from = sums_.begin();
    for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
      for (std::int64_t head = 0; head < shape.q_heads; ++head) {
        HeadSums all;
        for (std::int64_t c = 0; c < each_; ++c) all.add(*from++);
        all.write(summary, batch, head);
      }
    }
  }

 private:
  const Problem& problem_;
  std::int64_t queries_;
  std::int64_t each_;  // chunks of a head
  std::vector<HeadSums> sums_;
};

/// Per-row results of the fused pass. Optional statistics that are not requested are undefined.
struct RowsTold {
  RowsTold(const ProblemShape& shape, const HeadSummary& summary) {
    const auto make = [&shape] {
      return Tensor(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len});
    };
    lse = make();
    entropy = make();
    maximum = make();
    if (summary.mean_distance.defined()) mean_distance = make();
    if (summary.first_key.defined()) first_key = make();
  }

  reference::RowNumbers at(const Index& row) const {
    reference::RowNumbers numbers;
    numbers.entropy = entropy.value(row);
    numbers.maximum = maximum.value(row);
    if (mean_distance.defined()) numbers.mean_distance = mean_distance.value(row);
    if (first_key.defined()) numbers.first_key = first_key.value(row);
    return numbers;
  }

  Tensor lse, entropy, maximum, mean_distance, first_key;
};

void summarize(const Problem& problem, const HeadSummary& summary) {
  const ProblemShape& shape = problem.shape;
  RowsTold told(shape, summary);
  Chunks chunks(problem, kChunkQueries);

  JoinedProgress joined(problem.options.execution);
  AttentionOptions options = problem.options;
  options.execution = joined.next(chunks.count());
  options.execution.workspace = {};
  Lenses lenses;
  lenses.rows = {.entropy = told.entropy, .maximum = told.maximum};
  if (told.mean_distance.defined()) lenses.rows.mean_distance = told.mean_distance;
  if (told.first_key.defined()) lenses.rows.first_key = told.first_key;
  attention_forward(problem.query, problem.key, problem.value, options,
                    {.lse = told.lse, .lenses = &lenses});

  options.execution = joined.next(0);
  options.execution.workspace = {};
  const WeightInputs inputs{problem.query, problem.key, told.lse};
  const Problem second = problem.with_options(options);
  const WeightsCall call(inputs, second);
  const bool neighbours =
      summary.previous_key.defined() || summary.own_key.defined() || summary.next_key.defined();
  call.run(chunks.count(), [&](std::int64_t number, std::byte* scratch) {
    const QueryChunk chunk = chunks.chunk(number);
    EvenEntropy even(problem.options, problem.shape.kv_len, summary);
    HeadSums sums;
    ScorePosition row = chunk.origin;
    for (row.query = chunk.begin; row.query < chunk.end; ++row.query) {
      if (options.execution.stop.stop_requested()) return;
      if (sums.add(told.at({row.batch, row.head, row.query}))) sums.of[kEvenEntropy] += even(row);
    }
    // Rows that see no key add nothing here, because their weights are 0.
    Diagonal diagonal(call, chunk, shape.kv_len, scratch);
    if (neighbours) diagonal.add_neighbours(sums);
    if (summary.block_diagonal.defined())
      diagonal.add_blocks(blocks_of(summary, problem.shape.kv_len), sums);
    chunks.sums(number) = sums;
  });
  chunks.write(summary);
}

void summarize_float64(const Problem& problem, const HeadSummary& summary) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const std::int64_t kv_len = problem.shape.kv_len;
  const std::int64_t blocks = blocks_of(summary, problem.shape.kv_len);
  const Execution& execution = problem.options.execution;
  Chunks chunks(problem, kReferenceChunkQueries);
  const int threads = thread_count(execution, chunks.count());
  for_each_item(execution, threads, chunks.count(), [&](std::int64_t number, int) {
    const QueryChunk chunk = chunks.chunk(number);
    EvenEntropy even(problem.options, problem.shape.kv_len, summary);
    HeadSums& sums = chunks.sums(number);
    for (std::int64_t q = chunk.begin; q < chunk.end; ++q) {
      if (execution.stop.stop_requested()) return;
      const reference::Row row{chunk.origin.batch, chunk.origin.head, q};
      const reference::Rows found =
          reference::attention_rows(all, problem.options, std::span(&row, 1));
      const std::span<const double> weights = found.weights.span<double>();
      const ScorePosition& place = found.places.front();
      if (!sums.add(reference::row_numbers(weights, place))) continue;
      sums.of[kEvenEntropy] += even(place);
      const std::int64_t at = place.query + place.offset;
      const auto add = [&](HeadPlace to, std::int64_t from, std::int64_t end) {
        for (std::int64_t j = std::max<std::int64_t>(from, 0); j < std::min(end, kv_len); ++j) {
          sums.of[to] += weights[static_cast<std::size_t>(j)];
        }
      };
      add(kPreviousKey, at - 1, at);
      add(kOwnKey, at, at + 1);
      add(kNextKey, at + 1, at + 2);
      if (at < 0 || at >= kv_len) continue;
      const std::int64_t block = cell_of(at, kv_len, blocks);
      add(kBlockDiagonal, cell_begin(block, kv_len, blocks), cell_begin(block + 1, kv_len, blocks));
    }
  });
  chunks.write(summary);
}

}  // namespace
}  // namespace engine

void attention_heads(const WeightInputs& inputs, const AttentionOptions& options,
                     const HeadSummary& summary) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  engine::check_summary(problem, summary);
  const bool wanted = std::any_of(kHeadNumbers.begin(), kHeadNumbers.end(), [&](const auto& field) {
    return (summary.*field.output).defined();
  });
  if (!wanted) return;
  if (problem.shape.q_len == 0 || problem.shape.kv_len == 0) {
    engine::Chunks(problem, engine::kChunkQueries).write(summary);
  } else if (problem.is_float64()) {
    engine::summarize_float64(problem, summary);
  } else {
    engine::summarize(problem, summary);
  }
}

}  // namespace fovea
