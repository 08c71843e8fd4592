// SPDX-License-Identifier: Apache-2.0
//
// Common code of the calls that recompute weights (fovea/weights.h): validation, and running work
// items in parallel.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "fovea/weights.h"

#include "engine/call/outputs.h"
#include "engine/call/parallel.h"
#include "engine/call/problem.h"
#include "engine/call/workspace.h"
#include "kernels/weights/weights.h"
#include "problem/cells.h"

namespace fovea::engine {

/// Keys per block, and keys per work item for per-key sums. The packed keys and the accumulators of
/// a block share the L2 cache with a panel of scores.
inline constexpr std::int64_t kWeightBlockKeys = 512;

/// Validates the inputs, except for lse. Throws InvalidArgument if any of them is invalid.
Problem weights_problem(const WeightInputs& inputs, const AttentionOptions& options);
Problem weights_problem(const WeightInputs& inputs, const AttentionOptions&& options) = delete;
void check_lse(const Problem& problem, const TensorView& lse);
/// Throws InvalidArgument unless 0 <= index < most. `name` and `most_name` are the names of the
/// index and of its bound in the message.
void check_index(std::string_view name, std::int64_t index, std::string_view most_name,
                 std::int64_t most);

/// Throws InvalidArgument unless the tile is within the problem.
void check_tile(const ProblemShape& shape, const WeightTile& tile);

/// Throws InvalidArgument if an output is invalid.
void check_received(const Problem& problem, const ReceivedAttention& received,
                    OutputChecks& checks);

/// Setup and scratch memory of a call that recomputes weights.
class WeightsCall {
 public:
  /// Keeps references to both arguments, which must outlive this object.
  WeightsCall(const WeightInputs& inputs, const Problem& problem);
  WeightsCall(const WeightInputs& inputs, const Problem&& problem) = delete;

  /// Returns a kernel item with all queries and keys of a head.
  kernels::WeightsItem item(std::int64_t batch, std::int64_t head) const;

  /// Calls work(number, scratch) in parallel, for each number in [0, items).
  template <class Work>
  void run(std::int64_t items, const Work& work) const {
    const Execution& execution = problem_.options.execution;
    const int threads = thread_count(execution, items);
    const Workspace workspace({}, static_cast<std::size_t>(threads) * scratch_bytes_);
    for_each_item(execution, threads, items, [&](std::int64_t number, int thread) {
      work(number, workspace.data() + static_cast<std::size_t>(thread) * scratch_bytes_);
    });
  }
  void run_item(const kernels::WeightsItem& item, std::byte* scratch) const;

 private:
  const WeightInputs& inputs_;
  const Problem& problem_;
  kernels::WeightsSetup setup_;
  std::size_t scratch_bytes_ = 0;
};

/// The cells that pool a tile: those of the tile alone, or of a larger matrix of which it is a
/// part.
struct TileCells {
  CellDivision rows, columns;
  Pool pool = Pool::kSum;
  std::int64_t first_query = 0, first_key = 0;  ///< of the tile, in these divisions
};

/// Adds a weight, or a sum or maximum of weights, to a cell. NaN propagates.
inline void add_to_cell(Pool pool, double weight, double& cell) {
  if (pool != Pool::kMax) {
    cell += weight;
  } else if (!(weight <= cell) && !std::isnan(cell)) {
    cell = weight;
  }
}

/// Receives some rows of cells, [rows, columns]: sums of weights for kSum and kMean, maxima for
/// kMax.
using WriteCells = std::function<void(std::int64_t first_row, std::int64_t first_column,
                                      std::int64_t columns, std::span<const double> cells)>;

/// Pools the weights of a tile. Calls `write` for each row of cells that the tile has a part of
/// once, in parallel. The tile must not be empty; not for float64.
void pool_tile(const WeightInputs& inputs, const Problem& problem, const WeightTile& tile,
               const TileCells& cells, const WriteCells& write);

}  // namespace fovea::engine
