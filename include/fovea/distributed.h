// SPDX-License-Identifier: Apache-2.0
//
// Attention on tensors that are sharded along their length over several processes, called ranks:
// keys and values circulate among the ranks, and results equal those of one process. The ranks
// communicate through a Transport, for example that of fovea/mpi.h. docs/distributed.md is the
// guide.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/heads.h"
#include "fovea/map.h"
#include "fovea/tensor.h"
#include "fovea/weights.h"

namespace fovea::distributed {

/// The positions in [begin, end).
struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

/// The division of the positions of a sequence among ranks. A rank may own none. The part of a rank
/// is the concatenation of its ranges, in ascending order.
class FOVEA_API Sharding {
 public:
  /// Rank r owns [floor(r length / ranks), floor((r + 1) length / ranks)). Throws InvalidArgument
  /// if `length` is negative or `ranks` is less than 1.
  static Sharding contiguous(std::int64_t length, int ranks);
  /// Cuts the positions into 2 * ranks chunks, as contiguous() does; rank r owns chunks r and 2 *
  /// ranks - 1 - r. Under a causal mask, all ranks then have about the same work. Throws as
  /// contiguous() does.
  static Sharding zigzag(std::int64_t length, int ranks);
  /// Rank r owns the lengths[r] positions after those of the ranks before it. Throws
  /// InvalidArgument if there are no lengths or if one is negative.
  static Sharding lengths(const std::vector<std::int64_t>& lengths);

  /// No positions, on one rank.
  Sharding() : ranges_(1) {}

  /// Returns the number of positions of all ranks.
  std::int64_t length() const { return length_; }
  int ranks() const { return static_cast<int>(ranges_.size()); }
  /// Returns the ranges of a rank: ascending, none empty, none adjacent to the next.
  const std::vector<PositionRange>& ranges(int rank) const;
  /// Returns the number of positions of a rank.
  std::int64_t length(int rank) const;
  /// Returns the rank that owns `position`.
  int owner(std::int64_t position) const;
  /// Returns the index of `position` in the part of its owner.
  std::int64_t index(std::int64_t position) const;

  /// Returns the sharding of the positions in a range, numbered from 0. The rows of a rank in the
  /// range are consecutive in its part.
  Sharding part(PositionRange range) const;

  /// Returns text such as "zigzag(16, 2)" or "lengths(3, 0, 2)".
  const std::string& to_string() const { return text_; }
  friend bool operator==(const Sharding& a, const Sharding& b) { return a.ranges_ == b.ranges_; }

 private:
  void add(int rank, PositionRange range);

  std::vector<std::vector<PositionRange>> ranges_;
  std::int64_t length_ = 0;
  std::string text_ = "lengths(0)";
};

/// A rank from which nothing came, or a deadlock. The communication cannot go on: end the job, for
/// example with MPI_Abort.
class FOVEA_API CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An error on another rank that is neither InvalidArgument nor Stopped. The message names the
/// rank.
class FOVEA_API RankError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A message to one rank and a message from another, at the same time.
struct Exchange {
  int to = -1;  ///< -1: send nothing
  std::span<const std::byte> send = {};
  int from = -1;  ///< -1: receive nothing
  std::span<std::byte> receive = {};
};

/// The communication of one rank with the others. All ranks make the same calls in the same order.
/// Messages between two ranks arrive in the order in which they were sent.
class FOVEA_API Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Starts an exchange. There is at most one at a time. Its memory must stay valid until wait()
  /// has returned true.
  virtual void begin_exchange(const Exchange& exchange) = 0;
  /// Waits for the end of the exchange, but at most for this time, and returns whether there is no
  /// exchange under way. With 0 it advances the exchange and returns at once; it may then be called
  /// from any thread, but not concurrently. Throws CommunicationError.
  virtual bool wait(std::chrono::nanoseconds at_most) = 0;
  /// Copies the `own.size()` bytes of every rank to `all`, in the order of ranks. No exchange may
  /// be under way. Throws CommunicationError.
  virtual void all_gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
};

/// Returns a copy of the part of a rank of a tensor [batch, heads, length, ...], which is sharded
/// along its length. Throws InvalidArgument if the lengths differ.
FOVEA_API Tensor shard(const TensorView& whole, const Sharding& sharding, int rank);

/// Returns this rank's part of a tensor [batch, heads, length, ...] of rank `root`. `whole` is
/// ignored on other ranks. Collective. All ranks throw InvalidArgument if an argument of one is
/// invalid, or if arguments differ among ranks.
FOVEA_API Tensor scatter(Transport& transport, const Sharding& sharding, const TensorView& whole,
                         int root = 0);
/// Returns the tensor of which each rank has a part, on rank `root`; an undefined tensor on other
/// ranks. Collective. Throws as scatter() does.
FOVEA_API Tensor gather(Transport& transport, const Sharding& sharding, const TensorView& part,
                        int root = 0);

/// This rank's parts of query, key and value, and the shardings of queries and keys.
struct ShardedInputs {
  TensorView query;
  TensorView key;
  TensorView value;
  Sharding queries;
  Sharding keys;
};

/// Computes attention_forward on sharded tensors, with q_len = queries.length() and kv_len =
/// keys.length().
///
/// query    [batch, q_heads,  queries.length(rank), head_dim]   as in attention_forward
/// key      [batch, kv_heads, keys.length(rank),    head_dim]
/// value    [batch, kv_heads, keys.length(rank),    value_dim]
/// context  [batch, q_heads,  queries.length(rank), value_dim]
/// lse      [batch, q_heads,  queries.length(rank)]
///
/// Options  describe the whole problem: lengths, positions, document ids, biases and dense masks
///          cover all ranks. A rank reads only the rows of biases and dense masks that belong to
///          its queries. Packed sequences are not supported. Progress counts the pairs of a query
///          and a key, of all batch items and heads.
/// Lenses   rows and top keys are those of this rank's queries, with positions in the
///          whole context.
///          A map, [batch, q_heads, R, C], is that of the whole problem, and every rank gets it;
///          float64 has no maps.
/// Numerics error bounds are those of attention_forward. The bits depend on the shapes and the
///          shardings, not on timing or threads.
/// Cost     each rank computes its queries with all keys, except pairs of ranges in which no query
///          sees a key. While the ranks compute, keys and values travel from rank to rank, as far
///          as a rank sees them. Memory: two parts of keys and values, and 8 MB, or 512 queries of
///          all heads if these are more. Statistics take 56 bytes per row, top keys 16 each. A map
///          takes a second trip of the keys and another product of queries and keys, and 16 bytes
///          per cell. Execution::workspace is not used.
/// Errors   collective. The ranks compare their arguments before any work, except the contents of
///          biases, dense masks and custom score functions. All ranks throw InvalidArgument if an
///          argument of one is invalid or differs among ranks. If a rank fails later, all ranks
///          throw, and outputs are unspecified: Stopped if the rank was stopped, otherwise its
///          error, or RankError.
FOVEA_API void attention_forward(Transport& transport, const ShardedInputs& inputs,
                                 const AttentionOptions& options, const AttentionOutputs& outputs);

/// This rank's parts of query, key and lse. The lse is that of attention_forward with the same
/// options, float32 [batch, q_heads, queries.length(rank)].
struct ShardedWeightInputs {
  TensorView query;
  TensorView key;
  TensorView lse = {};
  Sharding queries;
  Sharding keys;
};

/// Computes the weights of a rectangle of the whole matrix. Returns them on rank `root`, float32
/// [tile.queries, tile.keys], and an undefined tensor on other ranks.
///
/// Numerics those of fovea::attention_weights, with the given lse.
/// Cost     the queries and keys of the rectangle travel to `root`, which computes the weights.
/// Errors   as attention_forward. Float64 and dropout are not supported.
FOVEA_API Tensor attention_weights(Transport& transport, const ShardedWeightInputs& inputs,
                                   const WeightTile& tile, const AttentionOptions& options,
                                   int root = 0);

/// Computes a map of the whole problem, as fovea::attention_map does. inputs.lse may be undefined.
/// All ranks get the cells and pairs; rank `root` alone gets the statistics, which are undefined on
/// other ranks.
///
/// Cost     a forward pass of the requested queries without a context, unless inputs.lse is defined
///          and nothing else needs it; then a trip of the requested keys and their product.
/// Errors   as attention_forward. Float64 and dropout are not supported.
FOVEA_API AttentionMap attention_map(Transport& transport, const ShardedWeightInputs& inputs,
                                     const MapRequest& request, const AttentionOptions& options,
                                     int root = 0);

/// Computes statistics of all heads, [batch, q_heads] as in fovea::attention_heads. All ranks get
/// those of the whole problem. inputs.lse is ignored.
///
/// Cost     a forward pass without a context, and a second trip of the keys if weights near the
///          diagonal are wanted. 20 bytes per query and head of this rank.
/// Errors   as attention_forward. Float64 and dropout are not supported.
FOVEA_API void attention_heads(Transport& transport, const ShardedWeightInputs& inputs,
                               const AttentionOptions& options, const HeadSummary& summary);

/// Computes the attention that each key receives over the queries of all ranks. sum, largest and
/// recent are those of this rank's keys, [batch, q_heads, keys.length(rank)]; all ranks get the
/// histogram of the whole problem.
///
/// Numerics those of fovea::attention_received; sums of ranks are added in float32, in the order of
///          ranks from the owner of a key on.
/// Cost     a trip of the keys, with their sums one step behind, and another product of queries and
///          keys.
/// Errors   as attention_forward. Float64 and dropout are not supported.
FOVEA_API void attention_received(Transport& transport, const ShardedWeightInputs& inputs,
                                  const AttentionOptions& options,
                                  const ReceivedAttention& received);

/// This rank's part of a cache of keys and values, and the queries that all ranks have.
struct ShardedCache {
  TensorView query;  ///< [batch, q_heads, q_len, head_dim], the same on all ranks
  TensorView key;
  TensorView value;
  Sharding keys;
};

/// Computes attention_decode on a sharded cache. All ranks get the whole context and lse.
///
/// Numerics error bounds are those of attention_decode. Results of ranks are merged in their order.
/// Cost     each rank reads its keys and values once; one message of a float32 context and lse of
///          all queries from each rank to each.
/// Errors   as attention_forward. Lenses are not supported.
FOVEA_API void attention_decode(Transport& transport, const ShardedCache& inputs,
                                const AttentionOptions& options, const AttentionOutputs& outputs);

/// The inputs of attention_backward, of which this rank has a part.
struct ShardedBackwardInputs {
  BackwardInputs tensors;
  Sharding queries;
  Sharding keys;
};

/// Computes attention_backward on sharded tensors.
///
/// grad_query, grad_key, grad_value  of this rank's parts
/// grad_bias                         the bias' shape: if it has a row for each query, a rank writes
///                                   only the rows of its queries; otherwise all ranks get the
///                                   whole
/// grad_relative, grad_sinks         all ranks get the whole
///
/// Options  those of the forward call. Lenses and float64 are not supported.
/// Numerics error bounds are those of attention_backward. Gradients of keys and values are added in
///          float32, in the order of ranks from the owner on, so that the bits depend on the shapes
///          and the shardings, not on timing or threads; the others in float64, in the order of
///          ranks.
/// Cost     as attention_forward, with gradients that travel with the keys and values; 8 bytes per
///          element of grad_bias and grad_relative.
/// Errors   as attention_forward.
FOVEA_API void attention_backward(Transport& transport, const ShardedBackwardInputs& inputs,
                                  const AttentionOptions& options,
                                  const AttentionGradients& gradients);

}  // namespace fovea::distributed
