// SPDX-License-Identifier: Apache-2.0
//
// The lenses of a call: their checks, what kernels have to know of them, and maps, to which the
// chunks of a head are added up.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention.h"
#include "fovea/lenses.h"
#include "fovea/weights.h"

#include "engine/call/outputs.h"
#include "engine/call/problem.h"
#include "kernels/lenses/lenses.h"

namespace fovea::engine {

/// Those of a call; none where it has none.
const Lenses& lenses_of(const AttentionOutputs& outputs);
bool asks_for_lenses(const AttentionOutputs& outputs);
bool asks_for_anything(const AttentionOutputs& outputs);

/// Checks the lenses against their problem. Throws InvalidArgument naming the lens, what was
/// expected and what came.
void validate_lenses(const Problem& problem, const Lenses& lenses, OutputChecks& checks);
/// Checks the outputs of a forward call against its problem: shape, type, strides, and that no
/// output shares memory with itself, another output or an input.
void validate_outputs(const Problem& problem, const AttentionOutputs& outputs);

/// What a map is of.
struct MapOf {
  std::int64_t queries = 0, keys = 0;
};
/// The same for a map, [..., rows, columns] after the dimensions `before`.
void check_map(const PooledMap& map, const Shape& before, const MapOf& of, OutputChecks& checks);

/// Of valid lenses. kernels::choose_target() comes first.
kernels::LensSetup lens_setup(const Problem& problem, const Lenses& lenses);

/// Where a head's lenses write, but for its map.
kernels::HeadLenses head_lenses(const Lenses& lenses, const SequenceSpan& span, std::int64_t head);

/// The maps of a call.
class Maps {
 public:
  /// Sets the cells to zero.
  Maps(const Problem& problem, const PooledMap& map, const kernels::LensSetup& setup);

  /// Says where a head's pass is to add.
  void place(std::int64_t batch, std::int64_t head, kernels::HeadLenses& to);
  /// Adds up what chunks share, counts pairs, and makes means of sums.
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

/// Adds to pairs[column] how many keys a query sees from begins[column] to before the next.
/// `visible` is memory to work in.
void count_row(const Mask& mask, const ScorePosition& row, std::int64_t kv_len,
               std::span<const std::int64_t> begins, std::span<std::int64_t> pairs,
               std::vector<std::uint8_t>& visible);

/// Fills in map.pairs, and makes means of sums where they are asked for.
void finish_maps(const Problem& problem, const PooledMap& map);
/// The same for the map, [rows, columns], of a part of one head.
void finish_map(const Problem& problem, const WeightTile& tile, const PooledMap& map);

}  // namespace fovea::engine
