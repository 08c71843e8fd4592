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
#include "fovea/tensor.h"

#include "kernels/lenses/lenses.h"
#include "kernels/simd/rows_of.h"

namespace fovea::kernels {

/// The additive bias of a head: its number for query 0 and key 0, and distances along heads,
/// queries and keys, 0 where it repeats; in elements of its tensor.
struct BiasRows {
  std::int64_t offset = 0, head_stride = 0, query_stride = 0, key_stride = 0;
};

/// What the queries, keys and values of a call are stored as, which decides how it is computed.
struct StorageTypes {
  DType query = DType::kFloat32;
  DType key = DType::kFloat32;
  DType value = DType::kFloat32;

  bool all(DType type) const { return query == type && key == type && value == type; }
};

/// What all heads of a call have in common.
struct ForwardSetup {
  const AttentionOptions* options = nullptr;
  StorageTypes types;
  std::int64_t q_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;    // 0 where no context is asked for
  std::int64_t most_keys = 0;    // kv_len, of the longest sequence
  std::int64_t block_keys = 0;   // keys per block, a multiple of every tile's rows
  std::int64_t most_panels = 0;  // panels of queries per work item
  double scale = 1.0;
  LensSetup lenses = {};
};

/// One head of one sequence.
struct ForwardHead {
  ScorePosition origin;  // batch, head, offset and starts; query and key are 0
  std::int64_t kv_len = 0;
  InputRows query, key, value;
  OutputRows context;                  // null where it is not asked for
  OutputRows lse;                      // one float per row; null where it is not asked for
  const HeadLenses* lenses = nullptr;  // where LensSetup::any() alone
  BiasRows bias;

  ScorePosition place(std::int64_t query_number, std::int64_t key_number) const {
    ScorePosition at = origin;
    at.query = query_number;
    at.key = key_number;
    return at;
  }
};

/// The queries that the active target computes side by side.
std::int64_t panel_lanes();

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
