// SPDX-License-Identifier: Apache-2.0
//
// Division of a call into decoding and tiles, and of the latter into work items. Panels of queries
// and blocks of keys determine the rounding, and depend on the shape, types, options and target.
// The thread count only determines the number of panels per work item, so it does not affect
// results.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/call/heads_together.h"
#include "engine/call/problem.h"
#include "kernels/forward/forward.h"

namespace fovea::engine {

/// One work item: some rows of one or several heads of one sequence, each a query of a head.
struct WorkItem {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t head = 0;  // the first
  std::int64_t heads = 1;
  std::int64_t q_begin = 0;  // rows
  std::int64_t q_end = 0;
  bool in_place = false;  // ForwardItem::in_place
};

/// The passes of a call: sequences with few queries are decoded, the others computed in tiles.
struct Passes {
  bool decode = false;
  bool tiles = false;

  static Passes of(const Problem& problem);
};

class ForwardPlan {
 public:
  /// Plans the sequences that are not decoded, or if `decoded` is true, those that are: decoding
  /// computes no lenses. Passes::of() must contain the pass. If `context` is false, only lse and
  /// lenses are computed.
  ForwardPlan(const Problem& problem, bool decoded, bool context,
              const kernels::LensSetup& lenses = {});

  const kernels::ForwardSetup& setup() const { return setup_; }
  std::int64_t items() const { return items_; }
  int threads() const { return threads_; }

  /// Returns the size of the workspace in bytes. The workspace holds the index of the first item of
  /// each packed sequence, followed by the scratch memory of each thread.
  std::size_t workspace_bytes() const;
  std::byte* scratch_of(std::byte* workspace, int thread) const;

  /// Writes to the workspace the list that item() reads. Does nothing without packed sequences.
  void prepare(std::byte* workspace) const;
  /// Returns work item `number`. Within a group of heads, later rows come first: under a causal
  /// mask they take longer, and short items should come last.
  WorkItem item(const std::byte* workspace, std::int64_t number) const;

 private:
  /// The division of a sequence's heads and rows.
  struct Division {
    std::int64_t q_len = 0, kv_len = 0;
    std::int64_t parts = 1;   // of the heads of each key head (heads_together.h)
    std::int64_t groups = 0;  // the parts of all heads
    std::int64_t chunks = 0;  // of the rows of the largest part
  };
  /// Returns the division of a sequence, without queries if it is not planned.
  Division divide(std::int64_t sequence) const;
  /// Calls visit(division, count) for all sequences. Those of a batch have the same division, which
  /// is visited once.
  template <class Visit>
  void for_each_division(const Visit& visit) const;
  /// Returns the number of work items of each group.
  std::int64_t items_per_group(const Division& division) const;
  /// Returns the rows of a panel or map chunk, which is never split.
  std::int64_t chunk_rows(std::int64_t rows) const;
  std::int64_t chunks(std::int64_t rows) const {
    return (rows + chunk_rows(rows) - 1) / chunk_rows(rows);
  }
  std::size_t list_bytes() const;

  const Problem& problem_;
  const bool decoded_;
  kernels::ForwardSetup setup_;
  std::int64_t in_place_vector_ = 0;  // ForwardSizes::in_place_vector; 0: one head per item
  std::int64_t chunk_rows_ = 0;
  std::int64_t in_place_rows_ = 0;    // chunk_rows_ if keys and values are read in place
  std::int64_t chunks_per_item_ = 0;  // approximate
  // The same for all batch items; unused with packed sequences.
  Division batch_division_;
  std::int64_t batch_items_per_group_ = 0;
  std::int64_t items_ = 0;
  std::size_t scratch_bytes_ = 0;
  int cut_for_ = 1;  // the thread count that determines the item size
  int threads_ = 1;  // at most the number of items
};

}  // namespace fovea::engine
