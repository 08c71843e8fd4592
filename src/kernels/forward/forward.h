// SPDX-License-Identifier: Apache-2.0
//
// Interface of the fused forward pass for the engine, without vector types. The kernel
// (forward.cc) is compiled once per SIMD target.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// Sizes that the forward pass requires of the plan.
struct ForwardSizes {
  std::int64_t panel_lanes = 0;     // queries of a panel
  std::int64_t in_place_lanes = 0;  // the same for items in place
  /// Lanes of a vector of queries, if keys and values may be read in place, otherwise 0.
  std::int64_t in_place_vector = 0;
  std::int64_t number_bytes = 0;  // of a tensor element once it is packed for the products
  /// Unless 0, the keys of a block. Then many blocks are packed together, and items may be large.
  std::int64_t block_keys = 0;
  std::int64_t item_panels = 1;  // items end at multiples of so many panels
};
/// Returns the sizes for the types, options and lenses of `setup`; the other members may be unset.
ForwardSizes forward_sizes(const ForwardSetup& setup);

/// Returns the bytes of scratch memory that one thread needs, a multiple of 64.
std::size_t forward_scratch_bytes(const ForwardSetup& setup);

/// A work item: at most most_panels panels of rows of one head, or in place of several heads. It
/// may have no rows.
struct ForwardItem {
  ForwardHead head;
  std::int64_t q_begin = 0;  // the first row
  std::int64_t q_end = 0;
  /// Whether keys and values are read in place (key_rows-inl.h) instead of packed; ignored by the
  /// bfloat16 pass.
  bool in_place = false;
};

/// Computes an item. `scratch` must be aligned to 64 bytes. `next`, unless null, is the item that
/// the same thread will probably process next; its first rows are prefetched. If `stop` is
/// requested, returns early and leaves the output rows unspecified.
void forward_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
                  std::byte* scratch, const std::stop_token& stop);

}  // namespace fovea::kernels
