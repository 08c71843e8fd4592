// SPDX-License-Identifier: Apache-2.0
//
// Attention maps: the weights of one head, or of all heads together, pooled to cells, with
// statistics of the rows.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/lens_buffers.h"
#include "fovea/lenses.h"
#include "fovea/tensor.h"
#include "fovea/weights.h"

namespace fovea {

/// A half-open range [begin, end) of queries or keys.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

/// The part of the weight matrix that a map shows, and its resolution.
struct MapRequest {
  std::int64_t batch = 0;
  std::int64_t head = 0;           ///< index of a query head
  std::optional<Pool> heads = {};  ///< if set: pools all heads, by kMean or kMax; ignores `head`
  IndexRange queries = {};         ///< must not be empty
  IndexRange keys = {};            ///< must not be empty
  std::int64_t rows = 1;           ///< cell rows, from 1 to the number of queries
  std::int64_t columns = 1;        ///< cell columns, from 1 to the number of keys
  Pool pool = Pool::kMean;         ///< pooling operation for the weights in a cell
  bool statistics = false;         ///< whether to compute RowStatistics of the queries
  std::int64_t top = 0;            ///< number of top keys per query, up to kMaxTopKeys; 0: none
};

/// The cells of a map. With R cell rows over n queries, row r covers the queries in the half-open
/// range [floor(r n / R), floor((r + 1) n / R)). Cell columns divide the keys in the same way.
struct MapCells {
  IndexRange queries;
  IndexRange keys;
  Pool pool = Pool::kMean;
  Tensor cells;  ///< [rows, columns]; a cell without visible pairs is 0, or NaN with kMean
  Tensor pairs;  ///< int64 [rows, columns]: visible (query, key) pairs, summed over the heads shown

  std::int64_t rows() const { return cells.extent(0); }
  std::int64_t columns() const { return cells.extent(1); }
  double value(std::int64_t row, std::int64_t column) const { return cells.value({row, column}); }
  bool masked(std::int64_t row, std::int64_t column) const {
    return pairs.at<std::int64_t>({row, column}) == 0;
  }
  /// Return the queries of a cell row and the keys of a cell column.
  FOVEA_API IndexRange queries_of(std::int64_t row) const;
  FOVEA_API IndexRange keys_of(std::int64_t column) const;
  /// Return whether every cell row is one query, and whether every cell column is one key.
  bool each_query() const { return rows() == queries.size(); }
  bool each_key() const { return columns() == keys.size(); }
};

struct AttentionMap {
  MapCells map;
  /// Covers all keys that a query sees, even if the map shows only some of them. Shapes are
  /// [1, 1, queries], and [1, 1, queries, top] for top keys. `cells`, `pairs` and all tensors that
  /// were not requested are undefined.
  LensBuffers statistics;
};

/// Computes the requested map without storing the weight matrix.
///
/// inputs   as those of attention_weights(); if lse is defined, it is used instead of recomputed
/// request  head, queries, keys and cells
///
/// The result for one head is float32 (float64 for float64 inputs). The result for all heads is
/// float64; heads are accumulated in double, one after another:
///   cells       with kMean, a cell is pooled over the heads with a visible pair in that cell;
///               sums and maxima are pooled over all heads; pair counts are summed
///   statistics  pooled over the heads in which the query sees a key. With kMax, maximum_key comes
///               from the head with the largest weight; with kMean it is -1. For a query that sees
///               no key in any head, values are 0 or NaN as in RowStatistics. Top keys are not
///               supported.
///
/// Cost     per head, one fused pass over all keys for the requested queries, without a context. If
///          the map shows only some of the keys, their rectangle is computed in addition. If lse is
///          defined, and neither statistics nor top keys are requested, only the rectangle is
///          computed.
/// Memory   the cells and rows of a few heads, independent of the head count. Execution::workspace
///          is not used.
/// Threads  bit-identical for any number of threads. Execution::progress counts each pass from 0;
///          for all heads together, all passes count as one.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value, before
///          anything is computed. Packed sequences and dropout are not supported. Throws Stopped
///          after Execution::stop.
FOVEA_API AttentionMap attention_map(const WeightInputs& inputs, const MapRequest& request,
                                     const AttentionOptions& options);

/// Pools the maps of several heads into one, as attention_map() does. The maps are those of a
/// PooledMap for one batch item.
///
/// cells  [heads, rows, columns]  floats; at least one head
/// pairs  [heads, rows, columns]  int64, optional: a head without visible pairs in a cell is
///                                skipped for that cell
/// how    kMean or kMax
///
/// Returns float64 [rows, columns]; a cell that every head skips is NaN.
FOVEA_API Tensor pool_heads(const TensorView& cells, const TensorView& pairs, Pool how);

}  // namespace fovea
