// SPDX-License-Identifier: Apache-2.0
//
// A key/value cache for many sequences in one pool of blocks (vLLM's paged attention, Kwon et al.
// 2023). Sequences can be added, extended, forked and removed. No sequence needs contiguous memory,
// and sequences with a common prefix share its blocks.

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

/// The element type and extents of a PagedKvCache.
struct PagedKvCacheOptions {
  /// float32, float16 or bfloat16.
  DType dtype = DType::kFloat32;
  /// The number of blocks in the pool, shared by all sequences.
  std::int64_t blocks = 0;
  /// Tokens per block.
  std::int64_t block_size = 16;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  /// Defaults to head_dim.
  std::optional<std::int64_t> value_dim = std::nullopt;
};

/// Selected sequences of a PagedKvCache as a batch. The block table and the lengths are owned
/// copies. Keys and values are views of the cache, valid until the cache changes.
struct PagedBatch {
  TensorView key;
  TensorView value;
  Tensor block_table;
  Tensor lengths;

  /// Returns views, valid during the lifetime of this object.
  PagedKeyValue view() const { return {key, value, block_table, lengths}; }
  operator PagedKeyValue() const { return view(); }  // NOLINT: implicit on purpose
};

/// A key/value cache of one layer, for many sequences. One serving step:
/// \code
///   PagedKvCache cache({.dtype = DType::kBFloat16, .blocks = 4096, .kv_heads = 8,
///                       .head_dim = 128});
///   const auto prompt = cache.add_sequence();
///   cache.append(prompt, prompt_key, prompt_value, &rotary);
///   const auto answer = cache.fork(prompt, cache.length(prompt));  // shares the prompt's blocks
///   ...
///   if (cache.blocks_needed(answer, 1) > cache.free_blocks()) { /* wait or evict a sequence */ }
///   cache.append(answer, key, value, &rotary);
///   const PagedBatch batch = cache.view(std::array{answer, other_answer});
/// \endcode
///
/// Blocks  are allocated when a sequence first stores a token in them, and are freed when no
///         sequence uses them. A fork shares the blocks of its prefix. A shared block that is not
///         full is copied when a sequence first appends to it (copy on write), so the other
///         sequences do not change.
/// Memory  address space for all blocks is reserved at once, in 2 MB pages if the system has them.
///         Physical memory is allocated when a block is first written, and released when the cache
///         is destroyed. Freed blocks are reused before untouched ones.
/// Threads several threads may call const members at the same time; other members need exclusive
///         access.
/// Errors  throws InvalidArgument naming the argument, the expected and the actual value; CacheFull
///         (fovea/error.h); std::bad_alloc. A failed call leaves the cache unchanged.
///
/// Not copyable. A moved-from cache has no blocks and no sequences.
class FOVEA_API PagedKvCache {
 public:
  /// Never reused, so the id of a removed sequence stays invalid.
  using SequenceId = std::int64_t;

  explicit PagedKvCache(const PagedKvCacheOptions& options);
  PagedKvCache(PagedKvCache&& other) noexcept;
  PagedKvCache& operator=(PagedKvCache&& other) noexcept;
  ~PagedKvCache() = default;

  /// Adds an empty sequence.
  SequenceId add_sequence();
  /// Removes a sequence and frees its blocks, except those shared with other sequences.
  void remove_sequence(SequenceId id);

  /// Appends n tokens to a sequence, n >= 0.
  ///
  /// key    [kv_heads, n, head_dim] or [1, kv_heads, n, head_dim]    any float type, any strides;
  ///                                                                 rounded once to dtype
  /// value  [kv_heads, n, value_dim] or [1, kv_heads, n, value_dim]  as key
  ///
  /// If `rotary` is not null, keys are rotated at positions length(id), length(id) + 1, ... before
  /// they are rounded, as apply_rotary does. Throws CacheFull if blocks_needed(id, n) >
  /// free_blocks().
  void append(SequenceId id, const TensorView& key, const TensorView& value,
              const Rotary* rotary = nullptr);

  /// Removes all tokens of a sequence except the first `length`, and frees the blocks that are no
  /// longer needed.
  void truncate(SequenceId id, std::int64_t length);

  /// Adds a sequence with the first `prefix_length` tokens of this one, in the same blocks. A fork
  /// allocates no blocks until one of the two sequences appends.
  SequenceId fork(SequenceId id, std::int64_t prefix_length);

  std::int64_t length(SequenceId id) const;
  /// Returns the number of sequences.
  std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }

  /// Returns the number of free blocks needed to append `tokens` tokens, including the copy of a
  /// shared block.
  std::int64_t blocks_needed(SequenceId id, std::int64_t tokens) const;
  std::int64_t free_blocks() const;

  /// Returns the size of the pool in bytes.
  std::int64_t bytes() const;

  /// Returns these sequences as a batch, in this order. A sequence may occur more than once. Unused
  /// entries of the block table are -1.
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
  /// Returns the blocks that the next `count` calls of take_next_block will take. Reserves memory
  /// for the bookkeeping of these blocks, so that taking and freeing them cannot fail.
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
  /// The number of sequences that share each block. Has entries only for blocks that have ever been
  /// in use; these are the first blocks of the pool.
  std::vector<std::int64_t> owners_;
  /// Blocks that were used and have been freed.
  std::vector<std::int64_t> free_;
};

}  // namespace fovea
