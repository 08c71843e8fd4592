// SPDX-License-Identifier: Apache-2.0
//
// How a problem is cut. Panels of queries and blocks of keys, which decide how numbers are rounded,
// follow from the shape and the caches alone; the number of threads only decides how many panels
// make a work item, so that every number of threads computes the same bits.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/call/problem.h"
#include "kernels/forward/forward.h"

namespace fovea::engine {

/// One work item: some queries of one head of one sequence.
struct WorkItem {
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t q_begin = 0;
  std::int64_t q_end = 0;
};

class ForwardPlan {
 public:
  /// `context`: whether the context is asked for; without it only lse and lenses are computed.
  ForwardPlan(const Problem& problem, bool context, const kernels::LensSetup& lenses = {});

  const kernels::ForwardSetup& setup() const { return setup_; }
  std::int64_t items() const { return items_; }
  int threads() const { return threads_; }

  /// The bytes of workspace: the list of items before each sequence, then each thread's scratch.
  std::size_t workspace_bytes() const;
  std::byte* scratch_of(std::byte* workspace, int thread) const;

  /// Writes into the workspace what item() reads. Nothing unless sequences are packed.
  void prepare(std::byte* workspace) const;
  /// Within a head later queries come first: under a causal mask they have more to do, and what is
  /// short should come last.
  WorkItem item(const std::byte* workspace, std::int64_t number) const;

 private:
  std::int64_t items_per_head(std::int64_t q_len) const;
  std::int64_t chunks(std::int64_t q_len) const {
    return (q_len + chunk_queries_ - 1) / chunk_queries_;
  }
  std::size_t list_bytes() const;

  const Problem& problem_;
  kernels::ForwardSetup setup_;
  std::int64_t chunk_queries_ = 0;    // what no cut divides: a panel, or a chunk of a map
  std::int64_t chunks_per_item_ = 0;  // about
  std::int64_t items_ = 0;
  std::size_t scratch_bytes_ = 0;
  int cut_for_ = 1;  // threads; what decides about the cut is settled before the first item
  int threads_ = 1;  // no more than there are items
};

}  // namespace fovea::engine
