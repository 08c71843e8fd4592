// SPDX-License-Identifier: Apache-2.0
//
// Partitioning of a backward pass into work items, and the layout of its workspace. Blocks of keys
// depend only on the shape, so that any number of threads computes the same sums in the same order.

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
  std::int64_t chain = 0;  // index of the first item of the same head and sequence
};

/// One item of the preparation pass: some queries of one head of one sequence.
struct RowItem {
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;  // equal to begin if the item is empty
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

  /// The arrays of the workspace.
  struct Memory {
    std::atomic<std::int64_t>* progress = nullptr;       // [items]
    std::atomic<std::int64_t>* bias_progress = nullptr;  // [items]; null if not shared
    float* log2_sum = nullptr;                           // [batch, q_heads, q_len]
    float* delta = nullptr;                              // [batch, q_heads, q_len]
    kernels::KeyBounds* bounds = nullptr;                // [q_heads, entries of all sequences]
    float* query_sums = nullptr;   // [batch, q_heads, q_len, head_dim]; null: in place
    float* bias_sums = nullptr;    // contiguous, in the shape of the bias; null: in place
    float* bucket_sums = nullptr;  // [items, group, buckets]
    double* sink_sums = nullptr;   // [row items]; null if not requested
    std::byte* scratch = nullptr;  // [threads, scratch_bytes]
    std::size_t bytes = 0;
  };
  /// Returns the layout of a workspace at `base`. With a null base, only `bytes` is meaningful.
  Memory lay_out(std::byte* base) const;
  std::byte* scratch_of(const Memory& memory, int thread) const {
    return memory.scratch + static_cast<std::size_t>(thread) * scratch_bytes_;
  }

  /// Returns the offset of a head of a sequence in an array [batch, q_heads, q_len].
  std::int64_t rows_before(const SequenceSpan& span, std::int64_t head) const;
  /// Returns the offset of a head of a sequence in `bounds`.
  std::int64_t bounds_before(const SequenceSpan& span, std::int64_t sequence,
                             std::int64_t head) const;

 private:
  const Problem& problem_;
  kernels::BackwardSetup setup_;
  std::int64_t group_ = 1;
  std::int64_t row_item_ = 0;  // queries per row item
  std::int64_t most_keys_ = 0;
  std::int64_t blocks_ = 0;  // blocks of keys of the longest sequence
  std::int64_t row_parts_ = 0;
  std::int64_t items_ = 0, row_items_ = 0;
  std::int64_t bias_size_ = 0;  // 0: bias gradients are accumulated in place
  bool query_sums_ = false, shared_bias_ = false, sinks_ = false;
  std::size_t scratch_bytes_ = 0;
  int threads_ = 1;
};

}  // namespace fovea::engine
