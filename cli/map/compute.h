// SPDX-License-Identifier: Apache-2.0
//
// The numbers of `fovea map`: the cells of a map, and what is told of each row, of one head or
// of all heads together.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/attention_options.h"
#include "fovea/lenses.h"
#include "fovea/tensor.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"
#include "problem/cells.h"

namespace fovea::cli {

/// From `begin` to before `end`.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

/// What is wanted; it fits the problem.
struct MapRequest {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::optional<Pool> heads = {};  ///< kMean or kMax over all of them, in place of `head`
  Span queries;
  Span keys;
  std::int64_t rows = 1;  ///< of cells, at most as many as queries
  std::int64_t columns = 1;
  Pool pool = Pool::kMean;
  bool statistics = false;
  std::int64_t top = 0;  ///< how many keys of each row are named; 0: none
};

/// A map, whose cell (r, c) has the weights of some neighbouring queries and keys.
struct MapCells {
  Span queries;
  Span keys;
  Pool pool = Pool::kMean;
  Tensor cells;  ///< [rows, columns], float32 or float64
  Tensor pairs;  ///< int64, how many pairs the mask lets be seen, in all heads that are shown

  std::int64_t rows() const { return cells.extent(0); }
  std::int64_t columns() const { return cells.extent(1); }
  double value(std::int64_t row, std::int64_t column) const { return cells.value({row, column}); }
  bool masked(std::int64_t row, std::int64_t column) const {
    return pairs.at<std::int64_t>({row, column}) == 0;
  }
  Span queries_of(std::int64_t row) const { return part(queries, row, rows()); }
  Span keys_of(std::int64_t column) const { return part(keys, column, columns()); }
  /// Whether a row, or column, of cells is a single query, or key.
  bool each_query() const { return rows() == queries.size(); }
  bool each_key() const { return columns() == keys.size(); }

 private:
  static Span part(Span all, std::int64_t i, std::int64_t parts) {
    return {all.begin + cell_begin(i, all.size(), parts),
            all.begin + cell_begin(i + 1, all.size(), parts)};
  }
};

/// What is told of each query's row, over all keys that it sees: [1, 1, queries] each, and [1, 1,
/// queries, top]. Absent where it was not asked for.
struct MapStatistics {
  Tensor entropy, maximum, maximum_key, mean_distance, distance_variance, first_key;
  Tensor top_keys, top_weights;
};

struct MapResult {
  MapCells map;
  MapStatistics statistics;
  int threads = 1;
  double seconds = 0.0;
};

/// What a tile shows: weights, or the scores that softmax makes them of.
enum class TileOf : std::uint8_t { kWeights, kScores };

/// The rectangle of the request's queries and keys, [queries, keys], float32 or float64. Throws as
/// compute_map.
Tensor compute_tile(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                    TileOf what, int threads, Progress& progress);

/// Computes, with rules that fit the problem. Throws InvalidArgument, in words of options.
MapResult compute_map(const AttendInputs& inputs, const AttendRules& rules,
                      const MapRequest& request, int threads, Progress& progress);

}  // namespace fovea::cli
