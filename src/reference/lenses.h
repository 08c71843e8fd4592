// SPDX-License-Identifier: Apache-2.0
//
// The lenses (fovea/lenses.h) in float64, from weights that are there: what the engine's are judged
// by, and its own for float64.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fovea/lenses.h"
#include "fovea/reference.h"

namespace fovea::reference {

/// RowStatistics of one row.
struct RowNumbers {
  double entropy = 0.0;
  double maximum = 0.0;
  std::int64_t maximum_key = -1;
  double mean_distance = 0.0;
  double distance_variance = 0.0;
  double first_key = 0.0;
};

/// Of a row of weights, whose first key is key 0 of the tensor; `place` is the row's.
RowNumbers row_numbers(std::span<const double> weights, const ScorePosition& place);

/// Keys and weights of the k largest; -1 and 0 where there are fewer than k that are not 0.
std::vector<std::pair<std::int64_t, double>> top_keys(std::span<const double> weights,
                                                      std::int64_t k);

/// Writes statistics and top keys of row `number` of `rows` to their place, in float64.
void write_lenses(const Lenses& lenses, const Row& row, const Rows& rows, std::int64_t number);

/// A row of cells of a map in the making.
class MapRow {
 public:
  MapRow(std::int64_t columns, Pool pool)
      : pool_(pool), cells_(static_cast<std::size_t>(columns)) {}

  void add(std::span<const double> weights);
  std::span<const double> cells() const { return cells_; }

 private:
  Pool pool_;
  std::vector<double> cells_;
};

}  // namespace fovea::reference
