// SPDX-License-Identifier: Apache-2.0
//
// A map of attention: the weights of one head, or of all heads together, pooled to cells, and
// statistics of its rows.

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

/// Neighbouring queries or keys, from `begin` to before `end`.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

/// Which map.
struct MapRequest {
  std::int64_t batch = 0;
  std::int64_t head = 0;           ///< of the queries
  std::optional<Pool> heads = {};  ///< kMean or kMax over all of them, in place of `head`
  IndexRange queries = {};         ///< at least one
  IndexRange keys = {};            ///< at least one
  std::int64_t rows = 1;           ///< of cells, 1 to as many as there are queries
  std::int64_t columns = 1;        ///< of cells, 1 to as many as there are keys
  Pool pool = Pool::kMean;         ///< of the weights in a cell
  bool statistics = false;         ///< RowStatistics of the queries
  std::int64_t top = 0;  ///< the largest weights of each query, up to kMaxTopKeys; 0: none
};

/// The cells of a map. Of R rows of cells over n queries, row r has those from floor(r n / R) to
/// before floor((r + 1) n / R); columns likewise.
struct MapCells {
  IndexRange queries;
  IndexRange keys;
  Pool pool = Pool::kMean;
  Tensor cells;  ///< [rows, columns]; a cell without a visible pair is 0, its mean nan
  Tensor pairs;  ///< int64 [rows, columns]: visible pairs of a query and a key, in all heads shown

  std::int64_t rows() const { return cells.extent(0); }
  std::int64_t columns() const { return cells.extent(1); }
  double value(std::int64_t row, std::int64_t column) const { return cells.value({row, column}); }
  bool masked(std::int64_t row, std::int64_t column) const {
    return pairs.at<std::int64_t>({row, column}) == 0;
  }
  /// The queries of a row of cells, and the keys of a column.
  FOVEA_API IndexRange queries_of(std::int64_t row) const;
  FOVEA_API IndexRange keys_of(std::int64_t column) const;
  /// Whether each row of cells is a single query, or each column a single key.
  bool each_query() const { return rows() == queries.size(); }
  bool each_key() const { return columns() == keys.size(); }
};

struct AttentionMap {
  MapCells map;
  /// Over all keys that a query sees, whichever keys the map shows: [1, 1, queries], and [1, 1,
  /// queries, top]; absent where not asked for. No cells.
  LensBuffers statistics;
};

/// The map that is asked for. The matrix of weights is never stored.
///
/// inputs   as those of attention_weights(); with an lse, that is used
/// request  which head, queries, keys and cells
///
/// Numbers are float32 (float64 where the inputs are) of one head, and float64 of heads together.
/// These are counted in double, one after the other:
///   cells       a mean of weights over the heads that see a pair of the cell, all else over all
///               heads; pairs are added up
///   statistics  over the heads in which the query sees a key. maximum_key is that of the head with
///               the largest weight; with heads = kMean it is -1. A query without a key has 0, or
///               nan where RowStatistics have it. No top keys.
///
/// Cost     of each head one fused pass over all keys for the queries alone, without a context; the
///          same pass and once more the rectangle where it is part of the keys. With an lse, and
///          without statistics, the rectangle alone.
/// Memory   of a few heads' cells and rows, however many heads there are. Execution::workspace is
///          not used.
/// Threads  the same bits for any number of threads. Execution::progress counts each pass from 0;
///          of heads together all of them as one.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came, before
///          anything is computed: packed sequences and dropout are not supported; Stopped after
///          Execution::stop.
FOVEA_API AttentionMap attention_map(const WeightInputs& inputs, const MapRequest& request,
                                     const AttentionOptions& options);

/// Maps of several heads made one, as attention_map() does, where all of them are there: those of
/// PooledMap for one batch item.
///
/// cells  [heads, rows, columns]  floats; at least one head
/// pairs  [heads, rows, columns]  int64, optional: heads that see none in a cell do not count there
/// how    kMean or kMax
///
/// Returns [rows, columns], float64; nan where no head counts.
FOVEA_API Tensor pool_heads(const TensorView& cells, const TensorView& pairs, Pool how);

}  // namespace fovea
