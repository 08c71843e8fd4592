// SPDX-License-Identifier: Apache-2.0
//
// A contiguous key/value cache for decoding. All batch items have the same length. For sequences of
// different lengths that are added and removed see PagedKvCache (fovea/paged_kv_cache.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "fovea/export.h"
#include "fovea/rotary.h"
#include "fovea/tensor.h"

namespace fovea {

/// The element type, extents and capacity of a KvCache.
struct KvCacheOptions {
  /// float32, float16 or bfloat16.
  DType dtype = DType::kFloat32;
  std::int64_t batch = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  /// Defaults to head_dim.
  std::optional<std::int64_t> value_dim = std::nullopt;
  /// The maximum number of tokens, reserved at construction. 0: the cache grows on demand, at least
  /// doubling its capacity each time.
  std::int64_t capacity = 0;
};

/// A growing sequence of the keys and values of one layer. One decoding step:
/// \code
///   KvCache cache({.dtype = DType::kBFloat16, .kv_heads = 8, .head_dim = 128});
///   ...
///   apply_rotary(query, cache.length(), rotary, query);
///   cache.append(key, value, &rotary);
///   attention_forward(query, cache.key(), cache.value(), options, {context});
/// \endcode
///
/// Memory  the tokens of each head are contiguous, in the order in which decoding reads them, and
///         start at a multiple of 64 bytes. From 512 KB on, 2 MB pages are used if the system has
///         them. A capacity reserves only address space. Physical memory is allocated page by page
///         as tokens are written, and released when the cache grows or is destroyed. Each head has
///         pages of its own, so a generous capacity costs at most one page per head.
/// Threads several threads may call const members at the same time; other members need exclusive
///         access.
/// Errors  throws InvalidArgument naming the argument, the expected and the actual value; CacheFull
///         (fovea/error.h); std::bad_alloc. A failed call leaves the cache unchanged.
///
/// Not copyable, to prevent accidental copies; fork() copies explicitly. A moved-from cache is
/// empty and has capacity 0.
class FOVEA_API KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache() = default;

  /// Appends n tokens, n >= 0.
  ///
  /// key    [batch, kv_heads, n, head_dim]   any float type, any strides; rounded once to dtype
  /// value  [batch, kv_heads, n, value_dim]  as key
  ///
  /// If `rotary` is not null, keys are rotated at positions length(), length() + 1, ... before they
  /// are rounded, as apply_rotary does. To rotate at other positions, call apply_rotary first and
  /// append without `rotary`. `key` and `value` may be views of tokens in this cache.
  ///
  /// Existing views stay valid unless the capacity changes. Throws CacheFull if
  /// KvCacheOptions::capacity is not 0 and the tokens do not fit into capacity().
  void append(const TensorView& key, const TensorView& value, const Rotary* rotary = nullptr);

  /// Removes all tokens except the first `length`, without releasing memory. Tokens appended later
  /// overwrite the removed ones, including in existing views.
  void truncate(std::int64_t length);

  /// Increases the capacity to at least `capacity` tokens. If the capacity changes, all views
  /// become invalid.
  void reserve(std::int64_t capacity);

  /// Returns a separate cache with a copy of the first `prefix_length` tokens. Its capacity equals
  /// capacity() if KvCacheOptions::capacity is not 0, and `prefix_length` otherwise.
  KvCache fork(std::int64_t prefix_length) const;

  /// Return the number of tokens, the capacity in tokens, and the reserved size in bytes.
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return room_.capacity; }
  std::int64_t bytes() const;

  /// Returns the keys, [batch, kv_heads, length, head_dim], last two dimensions contiguous. Valid
  /// until the capacity changes or the cache is destroyed; does not include tokens appended later.
  TensorView key() const;
  /// Returns the values, [batch, kv_heads, length, value_dim]; otherwise as key().
  TensorView value() const;

  const KvCacheOptions& options() const { return options_; }

 private:
  /// The keys or the values: [batch, kv_heads, capacity, dim], with heads `head_stride` elements
  /// apart.
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
  /// Allocates memory for `capacity` tokens and copies the first `length` tokens of this cache.
  Room make_room(std::int64_t capacity, std::int64_t length) const;
  /// Returns a view of the tokens in [begin, end).
  MutableTensorView view_of(const Rows& rows, std::int64_t begin, std::int64_t end) const;

  KvCacheOptions options_;
  Room room_;
  std::int64_t length_ = 0;
};

}  // namespace fovea
