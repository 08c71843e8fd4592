// SPDX-License-Identifier: Apache-2.0
//
// Validation and kernel setup of a call's lenses, and pooled maps. A pooled map combines the
// results of the chunks of each head.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention.h"
#include "fovea/export.h"
#include "fovea/lenses.h"
#include "fovea/weights.h"

#include "engine/call/outputs.h"
#include "engine/call/problem.h"
#include "kernels/lenses/lenses.h"
#include "problem/cells.h"
#include "problem/visible_pairs.h"

namespace fovea::engine {

/// Returns the lenses of a call, or empty lenses if it has none.
const Lenses& lenses_of(const AttentionOutputs& outputs);
FOVEA_API bool asks_for_lenses(const AttentionOutputs& outputs);
FOVEA_API bool asks_for_anything(const AttentionOutputs& outputs);

/// Validates the lenses of a call. Throws InvalidArgument with the name of the lens and the
/// expected and actual values.
void validate_lenses(const Problem& problem, const Lenses& lenses, OutputChecks& checks);
/// Validates the outputs of a forward call: shape, type, strides, and that no output overlaps
/// itself, another output or an input. Throws InvalidArgument otherwise.
FOVEA_API void validate_outputs(const Problem& problem, const AttentionOutputs& outputs);
/// Validates the outputs as above, and also that none overlaps a further input recorded in
/// `checks`.
void validate_outputs(const Problem& problem, const AttentionOutputs& outputs,
                      OutputChecks& checks);

/// The number of queries and keys that a map covers.
struct MapOf {
  std::int64_t queries = 0, keys = 0;
};
/// Return how the cell rows of a map divide the queries, and its cell columns the keys.
CellDivision divide_rows(const PooledMap& map, std::int64_t queries);
CellDivision divide_columns(const PooledMap& map, std::int64_t keys);
/// Validates a map with the dimensions `before`, followed by [rows, columns].
void check_map(const PooledMap& map, const Shape& before, const MapOf& of, OutputChecks& checks);

/// Returns the kernel setup for valid lenses. Call kernels::choose_target() first.
kernels::LensSetup lens_setup(const Problem& problem, const Lenses& lenses);

/// Returns the output locations of a head's lenses, except for its map.
kernels::HeadLenses head_lenses(const Lenses& lenses, const SequenceSpan& span, std::int64_t head);

/// The pooled maps of a call.
class Maps {
 public:
  /// Initialises the cells to zero.
  Maps(const Problem& problem, const PooledMap& map, const kernels::LensSetup& setup);

  /// Sets the map output locations of a head in `to`.
  void place(std::int64_t batch, std::int64_t head, kernels::HeadLenses& to);
  /// Combines the rows of cells that span several chunks, counts pairs, and turns sums into means.
  void finish();

 private:
  void add_edges(std::int64_t batch, std::int64_t head, std::int64_t row);
  std::int64_t chunks() const;
  float* edges(std::int64_t batch, std::int64_t head);

  const Problem& problem_;
  const PooledMap& map_;
  const kernels::LensSetup& setup_;
  std::int64_t chunk_queries_ = 1;
  std::vector<float> edges_;  // [batch][q_heads][chunks][2][columns]
};

/// For each column c, adds to pairs[c] the number of keys in [begins[c], begins[c + 1]) that are
/// visible to the query of `row`. `visible` is scratch memory.
void count_row(const VisiblePairs& pairs_seen, const ScorePosition& row, std::int64_t kv_len,
               std::span<const std::int64_t> begins, std::span<std::int64_t> pairs,
               std::vector<std::uint8_t>& visible);

/// Fills map.pairs, and divides the sums by the pair counts if the pool is kMean.
void finish_maps(const Problem& problem, const PooledMap& map);
/// Same as finish_maps(), for the map [rows, columns] of a tile of one head.
void finish_tile(const Problem& problem, const WeightTile& tile, const PooledMap& map);

}  // namespace fovea::engine
