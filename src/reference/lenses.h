// SPDX-License-Identifier: Apache-2.0
//
// The lenses (fovea/lenses.h) in float64, computed from complete rows of weights. They are the
// oracle for the engine's lenses, and the engine's own implementation for float64.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fovea/lenses.h"
#include "fovea/reference.h"

#include "problem/cells.h"

namespace fovea::reference {

/// The RowStatistics of one row.
struct RowNumbers {
  double entropy = 0.0;
  double maximum = 0.0;
  std::int64_t maximum_key = -1;
  double mean_distance = 0.0;
  double distance_variance = 0.0;
  double first_key = 0.0;
  double mean_offset = 0.0;
};

/// Returns the statistics of a row of weights. weights[0] belongs to key 0 of the tensor, and
/// `place` is the row's position.
RowNumbers row_numbers(std::span<const double> weights, const ScorePosition& place);

/// Returns the keys and weights of the k largest weights. If fewer than k weights are not 0, the
/// remaining entries are -1 and 0.
std::vector<std::pair<std::int64_t, double>> top_keys(std::span<const double> weights,
                                                      std::int64_t k);

/// Computes the statistics and top keys of row `number` of `rows` in float64, and writes them to
/// the elements of `lenses` that belong to `row`.
void write_lenses(const Lenses& lenses, const Row& row, const Rows& rows, std::int64_t number);

/// Accumulates weights into one row of cells of a map.
class MapRow {
 public:
  MapRow() = default;
  MapRow(const CellDivision& columns, Pool pool)
      : pool_(pool), columns_(columns), cells_(static_cast<std::size_t>(columns.cells())) {}

  void add(std::span<const double> weights);
  std::span<const double> cells() const { return cells_; }

 private:
  Pool pool_ = Pool::kSum;
  CellDivision columns_;
  std::vector<double> cells_;
};

}  // namespace fovea::reference
