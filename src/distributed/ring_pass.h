// SPDX-License-Identifier: Apache-2.0
//
// Common code of the passes over the ring: the pairs of ranges to compute, messages of
// keys and values, errors and progress.

#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/distributed.h"

#include "distributed/ring.h"
#include "problem/part.h"

namespace fovea::distributed {

// A message begins with a byte that tells whether a rank has failed; tensors start at a cache line.
inline constexpr std::size_t kHeaderBytes = 64;

inline std::size_t aligned(std::size_t bytes) {
  return (bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}
inline std::size_t bytes_of(const TensorView& tensor) {
  return static_cast<std::size_t>(tensor.size()) * dtype_size(tensor.dtype());
}

class RingPass {
 public:
  /// The arguments must be valid, and outlive the pass.
  RingPass(Transport& transport, const ShardedInputs& inputs, const AttentionOptions& options,
           const ProblemShape& shape);

 protected:
  /// Keys and values of a piece.
  struct PieceTensors {
    TensorView key, value;
  };
  /// Some queries of one range and the keys of a piece. `first` is the index of the first query in
  /// the part of this rank.
  struct Block {
    PairRange range;
    std::int64_t first;
  };

  int ranks() const { return transport_.size(); }
  int rank() const { return transport_.rank(); }
  /// Returns the rank `steps` ranks further.
  int rank_after(int steps) const { return ((rank() + steps) % ranks() + ranks()) % ranks(); }

  /// Finds out which keys each rank needs. Reports that nothing is done yet. Collective.
  RingPlan make_plan();
  bool failed() const { return failure_ || others_failed_; }

  /// Does some work, unless a rank has failed. Keeps its error for share(), so that this rank takes
  /// part in the communication until then.
  void attempt(const std::function<void()>& work);
  /// Throws the errors of all ranks, if there are any. Collective.
  void share() const;
  /// Does some work while an exchange is under way, if one is given.
  void exchange_during(const Exchange& exchange, const std::function<void()>& work);
  /// Marks a message with the state of this rank, or takes over that of a message.
  void mark(std::byte& header) const { header = failed() ? std::byte{1} : std::byte{0}; }
  void take_mark(std::byte header) { others_failed_ = others_failed_ || header != std::byte{0}; }

  /// Returns the keys and values of a piece of this rank.
  PieceTensors own_piece(const KeyPiece& piece) const;
  /// Returns the keys and values of a piece in a message, from `at` on, and moves `at` behind them.
  PieceTensors piece_at(const KeyPiece& piece, const std::byte*& at) const;
  /// Returns the size of keys and values in a message, without the header.
  std::size_t piece_bytes(const std::vector<KeyPiece>& pieces) const;
  /// Copies keys and values of pieces of this rank to a message.
  void pack(const std::vector<KeyPiece>& pieces, std::byte* at) const;

  /// Returns the size of the longest message with keys and values.
  std::size_t message_bytes(const RingPlan& plan) const;
  /// Calls `work` with every piece that reaches this rank, those of its own first, while further
  /// pieces travel. `outgoing` and `incoming` have message_bytes() each; outgoing has the packed
  /// pieces of this rank.
  void circulate(
      const RingPlan& plan, std::span<std::byte> outgoing, std::span<std::byte> incoming,
      const std::function<void(const KeyPiece& piece, const PieceTensors& tensors)>& work);

  /// Divides the queries of this rank that see keys of the piece into blocks of at most
  /// `most_queries`, and calls `compute` for each, in ascending order. The options are those of the
  /// block, without sinks, which would count once per piece. Reports progress.
  void for_each_block(const KeyPiece& piece, std::int64_t most_queries,
                      const std::function<void(const Block&, const AttentionOptions&)>& compute);
  Transport& transport_;
  const ShardedInputs& inputs_;
  const AttentionOptions& options_;
  const ProblemShape shape_;

 private:
  bool sees(const PositionRange& queries, const PositionRange& keys) const;
  PositionRange queries_that_see(const PositionRange& queries, const PositionRange& keys) const;
  PositionRange keys_seen_by(const PositionRange& queries, const PositionRange& keys) const;
  std::int64_t pairs(std::int64_t queries, std::int64_t keys) const {
    return shape_.batch * shape_.q_heads * queries * keys;
  }
  void report(std::int64_t done) const {
    if (options_.execution.progress) options_.execution.progress(done, pairs_total_);
  }

  std::int64_t pairs_done_ = 0, pairs_total_ = 0;
  std::exception_ptr failure_;
  bool others_failed_ = false;
};

}  // namespace fovea::distributed
