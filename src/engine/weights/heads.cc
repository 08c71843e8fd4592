// SPDX-License-Identifier: Apache-2.0
//
// Head statistics (fovea/heads.h). The fused pass computes the statistics and the lse of each row.
// The weights along the diagonal are then recomputed from lse. Sums are computed per chunk of
// queries and then added in chunk order, so that results do not depend on the thread count.

#include "fovea/heads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fovea/attention.h"
#include "fovea/reference.h"

#include "core/fail.h"
#include "engine/call/contiguous.h"
#include "engine/call/outputs.h"
#include "engine/lenses/lenses.h"
#include "engine/weights/head_names.h"
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

void check_summary(const Problem& problem, const HeadSummary& summary) {
  const ProblemShape& shape = problem.shape;
  OutputChecks checks(problem);
  for (const HeadNumber& number : kHeadNumbers) {
    checks.add(summary.*number.output, {.name = number.name,
                                        .shape = {shape.batch, shape.q_heads},
                                        .shape_name = "[batch, q_heads]",
                                        .type = OutputType::kSums,
                                        .contiguous_rows = false});
  }
  if (summary.blocks < 1) fail_argument("blocks", "expected 1 or more, got {}", summary.blocks);
}

/// Sums over some rows of a head.
struct Sums {
  std::array<double, kHeadNumbers.size()> of{};
  std::int64_t rows = 0;  // counted rows: those that see a key
  bool spoilt = false;    // whether any row is NaN

  /// Adds the statistics of one row. Returns whether the row is counted.
  bool add(const reference::RowNumbers& row) {
    spoilt = spoilt || std::isnan(row.entropy);
    if (std::isnan(row.entropy) || std::isnan(row.mean_distance)) return false;
    ++rows;
    of[kEntropy] += row.entropy;
    of[kMaximum] += row.maximum;
    of[kMeanDistance] += row.mean_distance;
    of[kFirstKey] += row.first_key;
    return true;
  }

  void add(const Sums& more) {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] += more.of[i];
    rows += more.rows;
    spoilt = spoilt || more.spoilt;
  }

  double mean(std::size_t number) const {
    if (spoilt || rows == 0) return std::numeric_limits<double>::quiet_NaN();
    return of[number] / static_cast<double>(rows);
  }
};

/// Some consecutive queries of a head.
struct Chunk {
  ScorePosition origin;  // of query 0
  std::int64_t begin = 0, end = 0;
};

/// All chunks of a call, with the sums of each chunk.
class Chunks {
 public:
  Chunks(const Problem& problem, std::int64_t queries)
      : problem_(problem),
        queries_(queries),
        each_((problem.shape.q_len + queries - 1) / queries),
        sums_(static_cast<std::size_t>(problem.shape.batch * problem.shape.q_heads * each_)) {}

  std::int64_t count() const { return static_cast<std::int64_t>(sums_.size()); }
  Sums& sums(std::int64_t number) { return sums_[static_cast<std::size_t>(number)]; }

  Chunk chunk(std::int64_t number) const {
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
        Sums all;
        for (std::int64_t c = 0; c < each_; ++c) all.add(*from++);
        for (std::size_t i = 0; i < kHeadNumbers.size(); ++i) {
          const MutableTensorView& output = summary.*kHeadNumbers[i].output;
          if (output.defined()) set_value(output, {batch, head}, all.mean(i));
        }
      }
    }
  }

 private:
  const Problem& problem_;
  std::int64_t queries_;
  std::int64_t each_;  // chunks of a head
  std::vector<Sums> sums_;
};

/// Computes the entropy of equal weights: the logarithm of a row's number of visible keys.
class EvenEntropy {
 public:
  EvenEntropy(const Problem& problem, const HeadSummary& summary)
      : mask_(problem.options.mask),
        ends_{0, problem.shape.kv_len},
        wanted_(summary.even_entropy.defined()) {}

  double operator()(const ScorePosition& row) {
    if (!wanted_) return 0.0;
    std::int64_t keys = 0;
    count_row(mask_, row, ends_[1], ends_, std::span(&keys, 1), visible_);
    return std::log(static_cast<double>(keys));
  }

 private:
  const Mask& mask_;
  std::array<std::int64_t, 2> ends_;
  bool wanted_;
  std::vector<std::uint8_t> visible_;
};

/// Recomputes the weights of a chunk along the diagonal.
class Diagonal {
 public:
  Diagonal(const WeightsCall& call, const Chunk& chunk, std::int64_t kv_len, std::byte* scratch)
      : call_(call),
        chunk_(chunk),
        kv_len_(kv_len),
        scratch_(scratch),
        item_(call.item(chunk.origin.batch, chunk.origin.head)) {}

  /// Adds the weights of the previous, own and next keys. Each panel of queries is computed with
  /// the keys from the first query's previous key to the last query's next key.
  void add_neighbours(Sums& sums) {
    const std::int64_t lanes = kernels::panel_lanes();
    const std::int64_t offset = chunk_.origin.offset;
    std::vector<float> weights(static_cast<std::size_t>(lanes * (lanes + 2)));
    for (std::int64_t query = chunk_.begin; query < chunk_.end; query += lanes) {
      item_.q_begin = query;
      item_.q_end = std::min(query + lanes, chunk_.end);
      item_.k_begin = std::max<std::int64_t>(query + offset - 1, 0);
      item_.k_end = std::min(item_.q_end + offset + 1, kv_len_);
      if (item_.k_begin >= item_.k_end) continue;
      item_.numbers = weights.data();
      item_.stride = item_.k_end - item_.k_begin;
      call_.run_item(item_, scratch_);
      for (std::int64_t q = query; q < item_.q_end; ++q) {
        const float* const row = weights.data() + (q - query) * item_.stride;
        const auto weight = [&](std::int64_t key) {
          return key >= item_.k_begin && key < item_.k_end
                     ? static_cast<double>(row[key - item_.k_begin])
                     : 0.0;
        };
        sums.of[kPreviousKey] += weight(q + offset - 1);
        sums.of[kOwnKey] += weight(q + offset);
        sums.of[kNextKey] += weight(q + offset + 1);
      }
    }
    item_.numbers = nullptr;
  }

  /// Adds the weights of the diagonal blocks. A diagonal block contains all keys of a range of
  /// positions, and the chunk's queries at these positions.
  void add_blocks(std::int64_t blocks, Sums& sums) {
    const std::int64_t offset = chunk_.origin.offset;
    const std::int64_t end = std::min(chunk_.end + offset, kv_len_);
    std::vector<float> columns;
    for (std::int64_t at = std::max<std::int64_t>(chunk_.begin + offset, 0); at < end;) {
      const std::int64_t block = cell_of(at, kv_len_, blocks);
      item_.k_begin = cell_begin(block, kv_len_, blocks);
      item_.k_end = cell_begin(block + 1, kv_len_, blocks);
      item_.q_begin = at - offset;
      at = std::min(item_.k_end, end);
      item_.q_end = at - offset;
      columns.resize(static_cast<std::size_t>(item_.k_end - item_.k_begin));
      item_.sums = columns.data();
      call_.run_item(item_, scratch_);
      for (const float sum : columns) sums.of[kBlockDiagonal] += static_cast<double>(sum);
    }
    item_.sums = nullptr;
  }

 private:
  const WeightsCall& call_;
  const Chunk& chunk_;
  std::int64_t kv_len_;
  std::byte* scratch_;
  kernels::WeightsItem item_;
};

std::int64_t blocks_of(const Problem& problem, const HeadSummary& summary) {
  return std::min(summary.blocks, problem.shape.kv_len);
}

/// Per-row results of the fused pass. Optional statistics that are not requested are undefined.
struct RowsTold {
  RowsTold(const ProblemShape& shape, const HeadSummary& summary) {
    const auto make = [&shape] {
      return Tensor(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len});
    };
    lse = make();
    entropy = make();
    mean_distance = make();
    if (summary.maximum.defined()) maximum = make();
    if (summary.first_key.defined()) first_key = make();
  }

  reference::RowNumbers at(const Index& row) const {
    reference::RowNumbers numbers;
    numbers.entropy = entropy.value(row);
    numbers.mean_distance = mean_distance.value(row);
    if (maximum.defined()) numbers.maximum = maximum.value(row);
    if (first_key.defined()) numbers.first_key = first_key.value(row);
    return numbers;
  }

  Tensor lse, entropy, mean_distance, maximum, first_key;
};

void summarize(const Problem& problem, const HeadSummary& summary) {
  const ProblemShape& shape = problem.shape;
  RowsTold told(shape, summary);
  Chunks chunks(problem, kChunkQueries);

  // Report the progress of both passes as one.
  AttentionOptions options = problem.options;
  options.execution.workspace = {};
  const auto& progress = problem.options.execution.progress;
  std::int64_t rows_items = 0;
  if (progress) {
    options.execution.progress = [&](std::int64_t done, std::int64_t total) {
      rows_items = total;
      progress(done, total + chunks.count());
    };
  }
  Lenses lenses;
  lenses.rows = {.entropy = told.entropy, .mean_distance = told.mean_distance};
  if (told.maximum.defined()) lenses.rows.maximum = told.maximum;
  if (told.first_key.defined()) lenses.rows.first_key = told.first_key;
  attention_forward(problem.query, problem.key, problem.value, options,
                    {.lse = told.lse, .lenses = &lenses});
  if (progress) {
    options.execution.progress = [&](std::int64_t done, std::int64_t total) {
      if (done > 0) progress(rows_items + done, rows_items + total);
    };
  }

  const WeightInputs inputs{problem.query, problem.key, told.lse};
  const Problem second{problem.query, problem.key, problem.value, options, shape};
  const WeightsCall call(inputs, second);
  const bool neighbours =
      summary.previous_key.defined() || summary.own_key.defined() || summary.next_key.defined();
  call.run(chunks.count(), [&](std::int64_t number, std::byte* scratch) {
    const Chunk chunk = chunks.chunk(number);
    EvenEntropy even(problem, summary);
    Sums sums;
    ScorePosition row = chunk.origin;
    for (row.query = chunk.begin; row.query < chunk.end; ++row.query) {
      if (options.execution.stop.stop_requested()) return;
      if (sums.add(told.at({row.batch, row.head, row.query}))) sums.of[kEvenEntropy] += even(row);
    }
    // Rows that see no key add nothing here, because their weights are 0.
    Diagonal diagonal(call, chunk, shape.kv_len, scratch);
    if (neighbours) diagonal.add_neighbours(sums);
    if (summary.block_diagonal.defined()) diagonal.add_blocks(blocks_of(problem, summary), sums);
    chunks.sums(number) = sums;
  });
  chunks.write(summary);
}

void summarize_float64(const Problem& problem, const HeadSummary& summary) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const std::int64_t kv_len = problem.shape.kv_len;
  const std::int64_t blocks = blocks_of(problem, summary);
  const Execution& execution = problem.options.execution;
  Chunks chunks(problem, kReferenceChunkQueries);
  const int threads = thread_count(execution, chunks.count());
  for_each_item(execution, threads, chunks.count(), [&](std::int64_t number, int) {
    const Chunk chunk = chunks.chunk(number);
    EvenEntropy even(problem, summary);
    Sums& sums = chunks.sums(number);
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
