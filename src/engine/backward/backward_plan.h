// SPDX-License-Identifier: Apache-2.0
//
// How a backward pass is cut and its workspace divided. Blocks of keys follow from the shape alone,
// so that every number of threads computes the same sums in the same order.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fovea/attention_backward.h"

#include "engine/call/problem.h"
#include "kernels/backward/backward.h"

namespace fovea::engine {

/// One work item: a block of keys of one head of one sequence.
struct KeyItem {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_key = 0;
  std::int64_t chain = 0;  // number of the first item of the same head and sequence
};

/// One item of what comes before: some queries of one head of one sequence.
struct RowItem {
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;  // the same where there are none
};

class BackwardPlan {
 public:
  BackwardPlan(const Problem& problem, const BackwardInputs& inputs,
               const AttentionGradients& gradients);

  const kernels::BackwardSetup& setup() const { return setup_; }
  std::int64_t items() const { return items_; }
  std::int64_t row_items() const { return row_items_; }
  int threads() const { return threads_; }
  std::int64_t group() const { return group_; }

  KeyItem item(std::int64_t number) const;
  RowItem row_item(std::int64_t number) const;

  /// The parts of the workspace. What an item or thread has several of lies one after the other.
  struct Memory {
    std::atomic<std::int64_t>* progress = nullptr;       // [items]
    std::atomic<std::int64_t>* bias_progress = nullptr;  // [items]; null where none is shared
    float* log2_sum = nullptr;                           // [batch, q_heads, q_len]
    float* delta = nullptr;                              // [batch, q_heads, q_len]
    kernels::KeyBounds* bounds = nullptr;                // [q_heads, panels of all sequences]
    float* query_sums = nullptr;   // [batch, q_heads, q_len, head_dim]; null: in place
    float* bias_sums = nullptr;    // the bias', without gaps; null: in place
    float* bucket_sums = nullptr;  // [items, group, buckets]
    double* sink_sums = nullptr;   // [row items]; null where not asked for
    std::byte* scratch = nullptr;  // [threads, scratch_bytes]
    std::size_t bytes = 0;
  };
  /// From `base` on, or to count the bytes only.
  Memory lay_out(std::byte* base) const;
  std::byte* scratch_of(const Memory& memory, int thread) const {
    return memory.scratch + static_cast<std::size_t>(thread) * scratch_bytes_;
  }

  /// The numbers of [batch, q_heads, q_len] before those of a head of a sequence.
  std::int64_t rows_before(const SequenceSpan& span, std::int64_t head) const;
  /// The panels of `bounds` before those of a head of a sequence.
  std::int64_t panels_before(const SequenceSpan& span, std::int64_t sequence,
                             std::int64_t head) const;

 private:
  const Problem& problem_;
  kernels::BackwardSetup setup_;
  std::int64_t group_ = 1;
  std::int64_t lanes_ = 0;  // queries per panel
  std::int64_t most_keys_ = 0;
  std::int64_t blocks_ = 0;  // of the longest sequence
  std::int64_t row_parts_ = 0;
  std::int64_t items_ = 0, row_items_ = 0;
  std::int64_t bias_size_ = 0;  // 0: sums are made in place
  bool query_sums_ = false, shared_bias_ = false, sinks_ = false;
  std::size_t scratch_bytes_ = 0;
  int threads_ = 1;
};

}  // namespace fovea::engine
