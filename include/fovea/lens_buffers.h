// SPDX-License-Identifier: Apache-2.0
//
// Owning output tensors for lenses, for callers that have none of their own.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// The lenses to allocate tensors for.
struct LensChoice {
  bool statistics = false;                     ///< all tensors of RowStatistics but mean_offset
  std::int64_t top = 0;                        ///< keys per row in TopKeys; 0: no top keys
  std::int64_t map_rows = 0, map_columns = 0;  ///< extents of the map; 0: no map
  Pool pool = Pool::kSum;
  bool pairs = true;  ///< whether the map also gets a tensor of pair counts
};

/// Owning tensors with the member names of Lenses. The tensors of lenses that were not chosen are
/// undefined.
struct LensBuffers {
  Tensor entropy, maximum, maximum_key, mean_distance, distance_variance, first_key;
  Tensor top_keys, top_weights;
  Tensor cells, pairs;
  Pool pool = Pool::kSum;

  LensBuffers() = default;
  /// Allocates zeroed tensors with the shapes that the lenses of a problem need. Keys and pair
  /// counts are int64. All other tensors are float64 if `inputs` (the query's type) is float64,
  /// else float32.
  FOVEA_API LensBuffers(const ProblemShape& shape, DType inputs, const LensChoice& choice);

  /// Returns views of the tensors, for attention_forward to write to.
  FOVEA_API Lenses lenses();
};

}  // namespace fovea
