// SPDX-License-Identifier: Apache-2.0
//
// The fused forward pass as the engine sees it: plain structures, no vector types. The kernel
// itself (forward.cc) is compiled once per SIMD target.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// The bytes that a number of a tensor takes once it is packed for the products.
std::int64_t packed_number_bytes(const ForwardSetup& setup);

/// The bytes of scratch that one thread needs, a multiple of 64.
std::size_t forward_scratch_bytes(const ForwardSetup& setup);

/// Some queries of a head: at most most_panels * panel_lanes() of them.
struct ForwardItem {
  ForwardHead head;
  std::int64_t q_begin = 0;
  std::int64_t q_end = 0;
};

/// Computes an item. `scratch` is aligned to 64 bytes. `next`, if any, is the item that the same
/// thread will probably be given then, whose first rows are fetched into the cache meanwhile.
/// Returns early, with the rows unspecified, when `stop` asks.
void forward_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
                  std::byte* scratch, const std::stop_token& stop);

}  // namespace fovea::kernels
