// SPDX-License-Identifier: Apache-2.0
//
// The fused forward pass as the engine sees it: plain structures, no vector types. The kernel
// itself (forward.cc) is compiled once per SIMD target.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "fovea/attention_options.h"
#include "fovea/mask.h"

namespace fovea::kernels {

/// Rows of numbers: row r begins at data + r * stride.
template <class T>
struct RowsOf {
  T* data = nullptr;
  std::int64_t stride = 0;
};

/// What all heads of a call have in common.
struct ForwardSetup {
  const AttentionOptions* options = nullptr;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;    // 0 where no context is asked for
  std::int64_t most_keys = 0;    // kv_len, of the longest sequence
  std::int64_t block_keys = 0;   // keys per block, a multiple of every tile's rows
  std::int64_t most_panels = 0;  // panels of queries per work item
  double scale = 1.0;
};

/// One head of one sequence.
struct ForwardHead {
  ScorePosition origin;  // batch, head, offset and starts; query and key are 0
  std::int64_t kv_len = 0;
  RowsOf<const float> query, key, value;
  RowsOf<float> context;  // null where it is not asked for
  RowsOf<float> lse;      // one number per row; null where it is not asked for
  /// The additive bias of query 0 and key 0 of this head, as an index into its tensor, and its
  /// distances along both; 0 where it repeats.
  std::int64_t bias_offset = 0, bias_query_stride = 0, bias_key_stride = 0;
  double alibi_slope = 0.0;

  ScorePosition place(std::int64_t query_number, std::int64_t key_number) const {
    ScorePosition at = origin;
    at.query = query_number;
    at.key = key_number;
    return at;
  }
};

/// The queries that the active target computes side by side.
std::int64_t panel_lanes();

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
