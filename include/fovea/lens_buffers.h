// SPDX-License-Identifier: Apache-2.0
//
// Tensors that lenses write to, for callers that have none of their own.

#pragma once

#include <cstdint>

#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// Which lenses there is room for.
struct LensChoice {
  bool statistics = false;                     ///< all RowStatistics
  std::int64_t top = 0;                        ///< keys of each row; 0: none
  std::int64_t map_rows = 0, map_columns = 0;  ///< cells; 0: no map
  Pool pool = Pool::kSum;
  bool pairs = true;  ///< of the map, too
};

/// The tensors of Lenses, under the same names; those that were not chosen are absent.
struct LensBuffers {
  Tensor entropy, maximum, maximum_key, mean_distance, distance_variance, first_key;
  Tensor top_keys, top_weights;
  Tensor cells, pairs;
  Pool pool = Pool::kSum;

  LensBuffers() = default;
  /// Tensors of zeros with the shapes that lenses of a problem have, float64 where `inputs`, the
  /// type of query, is, else float32; keys and pairs int64.
  FOVEA_API LensBuffers(const ProblemShape& shape, DType inputs, const LensChoice& choice);

  /// Where attention_forward writes: views of the tensors.
  FOVEA_API Lenses lenses();
};

}  // namespace fovea
