// SPDX-License-Identifier: Apache-2.0
//
// The keys and values that a model has computed so far, kept for the tokens to come. All items of
// the batch are equally long and lie in one piece of memory; sequences of different lengths that
// come and go are PagedKvCache's (fovea/paged_kv_cache.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "fovea/export.h"
#include "fovea/rotary.h"
#include "fovea/tensor.h"

namespace fovea {

/// What a KvCache holds.
struct KvCacheOptions {
  /// float32, float16 or bfloat16.
  DType dtype = DType::kFloat32;
  std::int64_t batch = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  /// head_dim when not given.
  std::optional<std::int64_t> value_dim = std::nullopt;
  /// The most tokens, whose room is set aside at once; 0: the cache grows by itself, to twice its
  /// capacity or more at a time.
  std::int64_t capacity = 0;
};

/// Keys and values of one layer, appended to as tokens come. One step of decoding:
/// \code
///   KvCache cache({.dtype = DType::kBFloat16, .kv_heads = 8, .head_dim = 128});
///   ...
///   apply_rotary(query, cache.length(), rotary, query);
///   cache.append(key, value, &rotary);
///   attention_forward(query, cache.key(), cache.value(), options, {context});
/// \endcode
///
/// Memory  each head's tokens lie one after the other, as decoding reads them, and begin at a
///         multiple of 64 bytes; in pages of 2 MB, where the system has them, from 512 KB on. A
///         capacity takes address space; the machine's memory is taken as tokens are written, and
///         given back when the cache ends or grows. So a generous capacity costs little.
/// Threads const members may be called by several threads at once, the others by one alone.
/// Errors  throws InvalidArgument naming the argument, what was expected and what came; CacheFull
///         (fovea/error.h); std::bad_alloc. The cache is then as it was.
///
/// Not copyable, as a copy is seldom meant: fork() makes one. What was moved from is an empty cache
/// with a capacity of 0.
class FOVEA_API KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache() = default;

  /// Appends n tokens, n >= 0.
  ///
  /// key    [batch, kv_heads, n, head_dim]   floats of any type, any strides; rounded once to dtype
  /// value  [batch, kv_heads, n, value_dim]  likewise
  ///
  /// With `rotary`, keys are rotated at the positions length() and on, before they are rounded, as
  /// apply_rotary does; for positions of your own rotate with that, and append without. Both may be
  /// views of tokens that the cache holds.
  ///
  /// Views that were taken before stay valid, unless the capacity changes. Throws CacheFull where
  /// KvCacheOptions::capacity was given and does not suffice.
  void append(const TensorView& key, const TensorView& value, const Rotary* rotary = nullptr);

  /// Forgets all tokens but the first `length` of them; no memory is given back. In views of what
  /// is forgotten, tokens appended later appear.
  void truncate(std::int64_t length);

  /// Makes room for `capacity` tokens in all, if there is less; then all views are invalid.
  void reserve(std::int64_t capacity);

  /// A cache of its own with a copy of the first `prefix_length` tokens: as a given capacity this
  /// one's, or else room for the prefix.
  KvCache fork(std::int64_t prefix_length) const;

  /// The tokens held, those there is room for, and the bytes of that room.
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return room_.capacity; }
  std::int64_t bytes() const;

  /// [batch, kv_heads, length, head_dim], last two dimensions contiguous. Valid until the capacity
  /// changes, or the cache ends; tokens that are appended later are not in it.
  TensorView key() const;
  /// [batch, kv_heads, length, value_dim], likewise.
  TensorView value() const;

  const KvCacheOptions& options() const { return options_; }

 private:
  /// Keys or values: [batch, kv_heads, capacity, dim], a head every `head_stride` elements.
  struct Rows {
    std::shared_ptr<std::byte> memory = nullptr;
    std::int64_t dim = 0;
    std::int64_t head_stride = 0;
  };
  struct Room {
    Rows key = {};
    Rows value = {};
    std::int64_t capacity = 0;
  };

  std::int64_t value_dim() const { return options_.value_dim.value_or(options_.head_dim); }
  Room no_room() const { return {{nullptr, options_.head_dim, 0}, {nullptr, value_dim(), 0}, 0}; }
  std::int64_t bytes_of_rows(std::int64_t head_stride) const;
  Rows make_rows(std::int64_t capacity, std::int64_t dim) const;
  void copy_rows(const Rows& from, const Rows& to, std::int64_t length) const;
  /// Room for `capacity` tokens with the first `length` of this cache's in it.
  Room make_room(std::int64_t capacity, std::int64_t length) const;
  /// The tokens from `begin` to before `end`.
  MutableTensorView view_of(const Rows& rows, std::int64_t begin, std::int64_t end) const;

  KvCacheOptions options_;
  Room room_;
  std::int64_t length_ = 0;
};

}  // namespace fovea
