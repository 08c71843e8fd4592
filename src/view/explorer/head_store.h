// SPDX-License-Identifier: Apache-2.0
//
// The stored results of one head: the lse of its rows, the cells of its row blocks, and the
// progress of the pass.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/weights.h"

#include "problem/part.h"
#include "view/explorer/explorer.h"
#include "view/explorer/pyramid.h"

namespace fovea::view {

/// The head is a problem of its own, [1, 1, queries, ...]. Unless stated otherwise, functions that
/// are not const, and those that return lse or cells, are for the scheduler's thread.
class HeadStore {
 public:
  /// The layer must outlive this object. `most_cell_bytes` as for Pyramid.
  HeadStore(const HeadPlace& place, const Layer& layer, std::int64_t most_cell_bytes);

  // For any thread.
  const HeadPlace& place() const { return place_; }
  const Pyramid& pyramid() const { return pyramid_; }
  const AttentionOptions& options() const { return part_.options(); }
  AttentionOptions options(const Execution& execution) const;
  /// The type of weights: float64 for float64 inputs, else float32.
  DType dtype() const { return dtype_; }
  /// Returns the place of a pair, for masks.
  ScorePosition at(std::int64_t query, std::int64_t key) const;
  Visibility classify(const IndexRange& queries, const IndexRange& keys) const;
  /// Returns whether a file has the lse.
  bool lse_recorded() const { return !lse_.defined(); }
  HeadStatus status() const;
  /// Returns the bytes of lse and cells.
  std::int64_t bytes() const { return lse_bytes() + cell_bytes(); }
  std::int64_t lse_bytes() const;
  std::int64_t cell_bytes() const { return cell_bytes_; }
  bool paused() const { return paused_; }
  void set_paused(bool paused) { paused_ = paused; }
  void set_running(bool running) { running_ = running; }
  bool complete() const;
  /// Takes note of the cells of a tile or row block, for HeadStatus::largest and smallest.
  void note_cells(int level, const std::vector<Code>& codes);
  /// Returns the cells that are known of all row blocks.
  BlockList cells() const;

  /// Returns the query, key and lse of the head. Rows of blocks without lse have lse 0.
  WeightInputs inputs() const;
  bool has_lse(std::int64_t block) const;
  /// Returns what is known about the cells of a block.
  RowState cells_state(std::int64_t block) const;
  bool has_cells(std::int64_t block) const { return cells_state(block) == RowState::kFinal; }
  /// Returns whether the pass has nothing to do for the block.
  bool block_done(std::int64_t block) const {
    return has_lse(block) && (!pyramid_.stores() || has_cells(block));
  }

  /// Store the results of a row block. Final cells replace a preview.
  void store_lse(std::int64_t block, const Tensor& lse);
  void store_cells(std::int64_t block, std::shared_ptr<const BlockCells> cells);
  /// Takes note of the time that a row block took, for PassProgress::seconds_left.
  void note_time(std::int64_t block, double seconds);
  void drop_cells();

 private:
  /// Returns the pairs of a row block, an estimate of its share of the time.
  double cost(std::int64_t block) const;
  void count_done();

  const HeadPlace place_;
  const ProblemPart part_;
  const DType dtype_;
  const TensorView query_, key_;
  const TensorView recorded_lse_;
  const Pyramid pyramid_;
  Tensor lse_;  // undefined if it is recorded
  std::vector<bool> lse_known_;
  BlockList cells_;  // written by the scheduler's thread alone, with the lock
  std::atomic<std::int64_t> cell_bytes_ = 0;
  std::atomic<bool> paused_ = false, running_ = false;

  mutable std::mutex mutex_;  // of the members below
  std::int64_t done_ = 0, lse_blocks_ = 0;
  std::string states_;  // HeadStatus::blocks
  double seconds_ = 0.0, cost_timed_ = 0.0, cost_left_ = 0.0;
  std::vector<Code> largest_, smallest_;  // positive codes of each level; 0: none yet
};

}  // namespace fovea::view
