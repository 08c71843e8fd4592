// SPDX-License-Identifier: Apache-2.0
//
// Plain structures that describe a call and one of its heads, for all passes over tiles.

#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

#include "kernels/simd/rows_of.h"
#include "problem/cells.h"

namespace fovea::kernels {

/// The additive bias of a head: the offset of the element for query 0 and key 0, and the strides
/// along heads, queries and keys, which are 0 for broadcast dimensions. The unit is one element.
struct BiasRows {
  std::int64_t offset = 0, head_stride = 0, query_stride = 0, key_stride = 0;
};

/// The storage types of queries, keys and values, which determine the arithmetic.
struct StorageTypes {
  DType query = DType::kFloat32;
  DType key = DType::kFloat32;
  DType value = DType::kFloat32;

  bool all(DType type) const { return query == type && key == type && value == type; }
};

/// The lenses (fovea/lenses.h) requested for all heads of a call.
struct LensSetup {
  bool statistics = false;
  std::int64_t top = 0;  // keys per row
  bool map = false;
  Pool pool = Pool::kSum;
  CellDivision map_rows, map_columns;
  /// The number of panels in a chunk. The sums of a chunk are added in a fixed order, independent
  /// of the number of threads. Work items consist of whole chunks.
  std::int64_t chunk_panels = 1;

  bool any() const { return statistics || top > 0 || map; }
};

/// The lens outputs of a head; null unless requested. A row of statistics has one element, a row of
/// top keys has LensSetup::top.
struct HeadLenses {
  OutputRows entropy, maximum, maximum_key, mean_distance, distance_variance, first_key,
      mean_offset;
  OutputRows top_keys, top_weights;
  float* map = nullptr;         // rows of the map, one element per column, initially zero
  std::int64_t map_stride = 0;  // the distance between rows
  /// The contributions of a chunk to map rows that it shares with adjacent chunks,
  /// [chunks][2][columns]: first to a row that begins before the chunk, then to one that begins
  /// in it. Initially zero.
  float* map_edges = nullptr;
  std::int64_t q_len = 0;
};

/// The parameters that all heads of a call share.
struct ForwardSetup {
  const AttentionOptions* options = nullptr;
  StorageTypes types;
  std::int64_t q_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;         // 0 if no context is requested
  std::int64_t most_keys = 0;         // the largest kv_len of all sequences
  std::int64_t block_keys = 0;        // keys per block, a multiple of kTileRows for every target
  std::int64_t usual_block_keys = 0;  // the same for float32 arithmetic
  std::int64_t most_panels = 0;       // panels of queries per work item
  double scale = 1.0;
  bool prefetches = false;  // whether items prefetch the inputs of the next item
  LensSetup lenses = {};
};

/// One head of one sequence, or a few heads with the same keys. Row r is query r % q_len of head
/// origin.head + r / q_len.
struct ForwardHead {
  ScorePosition origin;  // batch, first head, offset and sequence starts; query and key are 0
  std::int64_t kv_len = 0;
  InputRows query, key, value;         // of the first head
  OutputRows context;                  // null unless requested
  OutputRows lse;                      // one float per row; null unless requested
  const HeadLenses* lenses = nullptr;  // null unless LensSetup::any()
  BiasRows bias;
  std::int64_t heads = 1;
  // For several heads: the queries of each, and the distances between heads.
  std::int64_t q_len = 0;
  std::int64_t query_head_stride = 0, context_head_stride = 0, lse_head_stride = 0;

  ScorePosition place(std::int64_t row, std::int64_t key_number) const {
    ScorePosition at = origin;
    at.head += head_of(row);
    at.query = query_of(row);
    at.key = key_number;
    return at;
  }
  std::int64_t head_of(std::int64_t row) const { return heads == 1 ? 0 : row / q_len; }
  std::int64_t query_of(std::int64_t row) const { return heads == 1 ? row : row % q_len; }

  /// Calls act(row, count) for the runs of rows in [begin, end) that belong to one head each.
  template <class Act>
  void for_each_head(std::int64_t begin, std::int64_t end, const Act& act) const {
    while (begin < end) {
      const std::int64_t count =
          heads == 1 ? end - begin : std::min(q_len - begin % q_len, end - begin);
      act(begin, count);
      begin += count;
    }
  }

  /// Returns the rows of a tensor, indexed by query, of the head that has row `row`.
  InputRows query_rows(std::int64_t row) const {
    return {query.at(head_of(row) * query_head_stride), query.stride, query.dtype};
  }
  template <class T>
  T* context_row(std::int64_t row) const {
    return context.row_as<T>(query_of(row)) + head_of(row) * context_head_stride;
  }
  float& lse_of(std::int64_t row) const {
    return lse.row_as<float>(query_of(row))[head_of(row) * lse_head_stride];
  }
  /// Whether adjacent rows of the context have the same distance, between heads too.
  bool context_is_even() const {
    return heads == 1 || context_head_stride == q_len * context.stride;
  }
};

/// Returns the number of queries in a panel for the active target, one per lane; forward passes may
/// have others (ForwardSizes). Defined in forward/forward.cc, which is compiled for all targets.
std::int64_t panel_lanes();

}  // namespace fovea::kernels
