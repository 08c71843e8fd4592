// SPDX-License-Identifier: Apache-2.0
//
// Sums of head statistics (head_sums.h).

#include "engine/weights/head_sums.h"

#include "core/fail.h"
#include "engine/call/outputs.h"
#include "problem/cells.h"

namespace fovea::engine {

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

Diagonal::Diagonal(const WeightsCall& call, const QueryChunk& chunk, std::int64_t keys,
                   std::byte* scratch, std::int64_t first_key, std::int64_t kv_len)
    : call_(call),
      chunk_(chunk),
      keys_(keys),
      scratch_(scratch),
      first_key_(first_key),
      kv_len_(kv_len),
      item_(call.item(chunk.origin.batch, chunk.origin.head)) {}

/// Each panel of queries is computed with the keys from the first query's previous key to the last
/// query's next key.
void Diagonal::add_neighbours(HeadSums& sums) {
  const std::int64_t lanes = kernels::panel_lanes();
  const std::int64_t offset = chunk_.origin.offset;
  std::vector<float> weights(static_cast<std::size_t>(lanes * (lanes + 2)));
  for (std::int64_t query = chunk_.begin; query < chunk_.end; query += lanes) {
    item_.q_begin = query;
    item_.q_end = std::min(query + lanes, chunk_.end);
    item_.k_begin = std::max<std::int64_t>(query + offset - 1, 0);
    item_.k_end = std::min(item_.q_end + offset + 1, keys_);
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

void Diagonal::add_blocks(std::int64_t blocks, HeadSums& sums) {
  const std::int64_t offset = chunk_.origin.offset + first_key_;  // of positions among all keys
  const std::int64_t end = std::min(chunk_.end + offset, kv_len_);
  std::vector<float> columns;
  for (std::int64_t at = std::max<std::int64_t>(chunk_.begin + offset, 0); at < end;) {
    const std::int64_t block = cell_of(at, kv_len_, blocks);
    const std::int64_t block_end = cell_begin(block + 1, kv_len_, blocks);
    item_.k_begin = std::max<std::int64_t>(cell_begin(block, kv_len_, blocks) - first_key_, 0);
    item_.k_end = std::min(block_end - first_key_, keys_);
    item_.q_begin = at - offset;
    at = std::min(block_end, end);
    item_.q_end = at - offset;
    if (item_.k_begin >= item_.k_end) continue;
    columns.resize(static_cast<std::size_t>(item_.k_end - item_.k_begin));
    item_.sums = columns.data();
    call_.run_item(item_, scratch_);
    for (const float sum : columns) sums.of[kBlockDiagonal] += static_cast<double>(sum);
  }
  item_.sums = nullptr;
}

}  // namespace fovea::engine
