// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of many sequences that come, grow, branch and go, in one pool of blocks (vLLM's
// paged attention, Kwon et al. 2023): no sequence needs memory that lies together, and those that
// begin alike share it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fovea/export.h"
#include "fovea/paged_key_value.h"
#include "fovea/rotary.h"
#include "fovea/tensor.h"

namespace fovea {

/// What a PagedKvCache holds.
struct PagedKvCacheOptions {
  /// float32, float16 or bfloat16.
  DType dtype = DType::kFloat32;
  /// How many blocks there are, for all sequences together.
  std::int64_t blocks = 0;
  /// Tokens in each.
  std::int64_t block_size = 16;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  /// head_dim when not given.
  std::optional<std::int64_t> value_dim = std::nullopt;
};

/// Some sequences of a PagedKvCache as the items of a batch. Owns the table and the lengths as they
/// were; keys and values are the cache's, and valid as long as that does not change.
struct PagedBatch {
  TensorView key;
  TensorView value;
  Tensor block_table;
  Tensor lengths;

  /// Valid as long as this is.
  PagedKeyValue view() const { return {key, value, block_table, lengths}; }
  operator PagedKeyValue() const { return view(); }  // NOLINT: implicit on purpose
};

/// Keys and values of one layer, of many sequences, in a pool of blocks. One step of serving:
/// \code
///   PagedKvCache cache({.dtype = DType::kBFloat16, .blocks = 4096, .kv_heads = 8,
///                       .head_dim = 128});
///   const auto prompt = cache.add_sequence();
///   cache.append(prompt, prompt_key, prompt_value, &rotary);
///   const auto answer = cache.fork(prompt, cache.length(prompt));  // shares the prompt's blocks
///   ...
///   if (cache.blocks_needed(answer, 1) > cache.free_blocks()) { /* wait, or let one go */ }
///   cache.append(answer, key, value, &rotary);
///   const PagedBatch batch = cache.view(std::array{answer, other_answer});
/// \endcode
///
/// Blocks  belong to a sequence as soon as it has a token in them, and are free again when no
///         sequence has. Those of a fork are shared; a shared block in which there is room left is
///         copied for the one that first appends to it, so that the others never see it.
/// Memory  all blocks are set aside at once, in pages of 2 MB where the system has them; the
///         machine's memory is taken as blocks are first written, and given back when the cache
///         ends. Blocks that were used before are used first.
/// Threads const members may be called by several threads at once, the others by one alone.
/// Errors  throws InvalidArgument naming the argument, what was expected and what came; CacheFull
///         (fovea/error.h); std::bad_alloc. The cache is then as it was.
///
/// Not copyable. What was moved from is a cache of no blocks and no sequences.
class FOVEA_API PagedKvCache {
 public:
  /// Never given twice, so that one that is gone is told from all others.
  using SequenceId = std::int64_t;

  explicit PagedKvCache(const PagedKvCacheOptions& options);
  PagedKvCache(PagedKvCache&& other) noexcept;
  PagedKvCache& operator=(PagedKvCache&& other) noexcept;
  ~PagedKvCache() = default;

  /// A sequence of no tokens.
  SequenceId add_sequence();
  /// Frees those of its blocks that no other sequence shares.
  void remove_sequence(SequenceId id);

  /// Appends n tokens, n >= 0, to a sequence.
  ///
  /// key    [kv_heads, n, head_dim] or [1, kv_heads, n, head_dim]   floats of any type, any
  ///                                                    strides; rounded once to dtype
  /// value  [kv_heads, n, value_dim] or [1, kv_heads, n, value_dim] likewise
  ///
  /// With `rotary`, keys are rotated at the positions length(id) and on, before they are rounded,
  /// as apply_rotary does. Throws CacheFull where blocks_needed(id, n) > free_blocks().
  void append(SequenceId id, const TensorView& key, const TensorView& value,
              const Rotary* rotary = nullptr);

  /// Forgets all tokens of a sequence but the first `length`, and frees the blocks behind them.
  void truncate(SequenceId id, std::int64_t length);

  /// A new sequence with the first `prefix_length` tokens of this one, in the same blocks: it takes
  /// none of its own until one of the two appends.
  SequenceId fork(SequenceId id, std::int64_t prefix_length);

  std::int64_t length(SequenceId id) const;
  /// The sequences there are.
  std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }

  /// How many free blocks appending `tokens` would take, the copy of a shared one included.
  std::int64_t blocks_needed(SequenceId id, std::int64_t tokens) const;
  std::int64_t free_blocks() const;

  /// The bytes of the pool.
  std::int64_t bytes() const;

  /// These sequences as a batch, in this order; one may come twice. Entries of the table that are
  /// not needed are -1.
  PagedBatch view(std::span<const SequenceId> ids) const;

  const PagedKvCacheOptions& options() const { return options_; }

 private:
  struct Sequence {
    std::vector<std::int64_t> blocks;
    std::int64_t length = 0;
  };

  const Sequence& sequence(SequenceId id) const;
  Sequence& sequence(SequenceId id);
  std::int64_t value_dim() const { return options_.value_dim.value_or(options_.head_dim); }
  std::int64_t blocks_of(std::int64_t tokens) const;
  bool copies_last_block(const Sequence& of, std::int64_t tokens) const;
  std::int64_t blocks_needed(const Sequence& of, std::int64_t tokens) const;
  /// The blocks that take_next_block will take, that often; makes room to note that they are taken
  /// and, some day, free.
  std::vector<std::int64_t> next_blocks(std::int64_t count);
  void take_next_block();
  void release_block(std::int64_t block);
  void copy_block(std::int64_t from, std::int64_t to, std::int64_t tokens);
  MutableTensorView pool(const std::shared_ptr<std::byte>& memory, std::int64_t dim) const;

  PagedKvCacheOptions options_;
  std::shared_ptr<std::byte> key_;
  std::shared_ptr<std::byte> value_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 0;
  /// How many sequences have a block; of those that were ever used, which are the first ones.
  std::vector<std::int64_t> owners_;
  /// Used before, and free.
  std::vector<std::int64_t> free_;
};

}  // namespace fovea
