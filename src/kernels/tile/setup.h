// SPDX-License-Identifier: Apache-2.0
//
// A call and one of its heads, as plain structures: what all passes over tiles are given.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

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

/// The lenses (fovea/lenses.h) of all heads of a call.
struct LensSetup {
  bool statistics = false;
  std::int64_t top = 0;  // keys per row
  bool map = false;
  Pool pool = Pool::kSum;
  std::int64_t map_rows = 0, map_columns = 0;
  /// Panels whose sums are added up in one order, whatever the number of threads; work items are
  /// made of whole chunks.
  std::int64_t chunk_panels = 1;

  bool any() const { return statistics || top > 0 || map; }
};

/// The outputs of the lenses of a head; null where nothing is asked for. Rows of statistics are one
/// number, of top keys LensSetup::top.
struct HeadLenses {
  OutputRows entropy, maximum, maximum_key, mean_distance, distance_variance, first_key;
  OutputRows top_keys, top_weights;
  float* map = nullptr;         // [map_rows] rows of map_columns, zeros to begin with
  std::int64_t map_stride = 0;  // from one of them to the next
  /// What a chunk adds to rows of the map that it shares with its neighbours, [chunks][2]
  /// [map_columns]: to one that began before it, and to one that does not. Zeros to begin with.
  float* map_edges = nullptr;
  std::int64_t q_len = 0;
};

/// The parameters that all heads of a call share.
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

/// Returns the number of queries in a panel, which the active target computes side by side. Defined
/// with the forward pass (forward/forward.cc), for that is compiled for all targets.
std::int64_t panel_lanes();

}  // namespace fovea::kernels
