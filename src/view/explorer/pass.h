// SPDX-License-Identifier: Apache-2.0
//
// The pass over the rows of a head: computes the lse of row blocks where no file has it, and the
// cells of the base level; and the cells of tiles below it, from query, key and lse.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/execution.h"
#include "fovea/map.h"
#include "fovea/weights.h"

#include "problem/part.h"
#include "view/explorer/head_store.h"

namespace fovea::view {

/// Computes and stores the lse of a row block, and its cells if `cells` and the pyramid stores
/// any. Does nothing that is done.
///
/// Cost     one product of the block's queries and the keys they see. If that is less than an
///          eighth of all keys, two products, but no cells of the other keys.
/// Errors   throws Stopped; what was stored before remains.
void compute_block(HeadStore& head, std::int64_t block, bool cells, const Execution& execution);

/// Computes the cells of the middle query of a row block, which stand for the block until it is
/// computed. The pyramid must store cells.
///
/// Cost     two products of one query and the keys that the block sees, or all keys.
/// Errors   throws Stopped; nothing is stored.
void compute_preview(HeadStore& head, std::int64_t block, const Execution& execution);

/// A unit of work of the pass.
struct PassUnit {
  std::int64_t block = 0;
  bool preview = false;  ///< otherwise compute_block()

  friend bool operator==(const PassUnit&, const PassUnit&) = default;
};
/// Returns what the pass computes next; nothing if all blocks are done. The blocks of `queries`,
/// which are those asked for last, come before the others. Of both, previews come first, in an
/// order that soon has some of them everywhere; then the block nearest to the queries.
std::optional<PassUnit> next_unit(const HeadStore& head, const IndexRange& queries);

/// Returns the codes of a tile of a level that the pyramid does not store. The lse of its rows must
/// be known.
std::vector<Code> compute_tile(const HeadStore& head, const TilePlace& tile,
                               const Execution& execution);

/// Returns the header of a tile's frame, without flags.
FrameHeader header_of(const Pyramid& pyramid, const TilePlace& tile);
/// Returns the frame of a tile of which no pair is visible; null if some may be.
FrameBytes hidden_tile(const HeadStore& head, const TilePlace& tile);

/// One row of a head as a problem of its own, of which query 0 is the row. An lse that no file has
/// is computed for this row alone, as `fovea tile` does; its last bit may differ from that of the
/// row's block.
class RowProblem {
 public:
  RowProblem(const HeadStore& head, std::int64_t query, const Execution& execution);

  const WeightInputs& inputs() const { return inputs_; }
  const AttentionOptions& options() const { return part_.options(); }
  double lse() const { return inputs_.lse.value({0, 0, 0}); }

 private:
  ProblemPart part_;
  Tensor lse_;  // undefined if it is recorded
  WeightInputs inputs_;
};

/// Returns the codes of pooled cells, [.., rows, columns] with their pair counts.
std::vector<Code> encode_cells(const Tensor& cells, const Tensor& pairs);

}  // namespace fovea::view
