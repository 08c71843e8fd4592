// SPDX-License-Identifier: Apache-2.0
//
// The contiguous cache (fovea/kv_cache.h). All steps that can fail come before the length changes,
// and tokens before the length are never overwritten, so a failed call leaves the cache unchanged.

#include "fovea/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

#include "cache/pages.h"
#include "cache/rows.h"
#include "cache/tokens.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

/// Initial capacity of a growing cache, in tokens.
constexpr std::int64_t kMinCapacity = 64;
/// Alignment of each head in bytes: the size of a cache line and of the longest SIMD vector.
constexpr std::int64_t kHeadAlignment = 64;

}  // namespace

KvCache::KvCache(const KvCacheOptions& options) : options_(options) {
  validate_cache_dtype(options.dtype);
  validate_at_least(options.batch, 0, "batch");
  validate_at_least(options.kv_heads, 0, "kv_heads");
  validate_at_least(options.head_dim, 0, "head_dim");
  validate_at_least(value_dim(), 0, "value_dim");
  validate_at_least(options.capacity, 0, "capacity");
  room_ = make_room(options.capacity, 0);
}

KvCache::KvCache(KvCache&& other) noexcept
    : options_(other.options_),
      room_(std::exchange(other.room_, other.no_room())),
      length_(std::exchange(other.length_, 0)) {}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  if (this == &other) return *this;
  options_ = other.options_;
  room_ = std::exchange(other.room_, other.no_room());
  length_ = std::exchange(other.length_, 0);
  return *this;
}

std::int64_t KvCache::bytes_of_rows(std::int64_t head_stride) const {
  return options_.batch * options_.kv_heads * head_stride *
         static_cast<std::int64_t>(dtype_size(options_.dtype));
}

std::int64_t KvCache::bytes() const {
  return bytes_of_rows(room_.key.head_stride) + bytes_of_rows(room_.value.head_stride);
}

KvCache::Rows KvCache::make_rows(std::int64_t capacity, std::int64_t dim) const {
  const std::int64_t line = kHeadAlignment / static_cast<std::int64_t>(dtype_size(options_.dtype));
  const std::int64_t head_stride = (capacity * dim + line - 1) / line * line;
  return {allocate_pages(bytes_of_rows(head_stride)), dim, head_stride};
}

void KvCache::copy_rows(const Rows& from, const Rows& to, std::int64_t length) const {
  const auto size = static_cast<std::int64_t>(dtype_size(options_.dtype));
  const auto bytes = static_cast<std::size_t>(length * from.dim * size);
  if (bytes == 0) return;
  for (std::int64_t head = 0; head < options_.batch * options_.kv_heads; ++head) {
    std::memcpy(to.memory.get() + head * to.head_stride * size,
                from.memory.get() + head * from.head_stride * size, bytes);
  }
}

KvCache::Room KvCache::make_room(std::int64_t capacity, std::int64_t length) const {
  const Shape keys{options_.batch, options_.kv_heads, capacity, options_.head_dim};
  const Shape values{options_.batch, options_.kv_heads, capacity, value_dim()};
  // Both sizes are checked before either is allocated. No product below overflows.
  bytes_of(keys, options_.dtype, "key cache");
  bytes_of(values, options_.dtype, "value cache");
  Room room{make_rows(capacity, keys[3]), make_rows(capacity, values[3]), capacity};
  copy_rows(room_.key, room.key, length);
  copy_rows(room_.value, room.value, length);
  return room;
}

MutableTensorView KvCache::view_of(const Rows& rows, std::int64_t begin, std::int64_t end) const {
  std::byte* at = rows.memory.get();
  if (at != nullptr) at += begin * rows.dim * static_cast<std::int64_t>(dtype_size(options_.dtype));
  return {at,
          options_.dtype,
          {options_.batch, options_.kv_heads, end - begin, rows.dim},
          {options_.kv_heads * rows.head_stride, rows.head_stride, rows.dim, 1}};
}

TensorView KvCache::key() const { return view_of(room_.key, 0, length_); }

TensorView KvCache::value() const { return view_of(room_.value, 0, length_); }

void KvCache::append(const TensorView& key, const TensorView& value, const Rotary* rotary) {
  validate_tokens(key, {options_.batch, options_.kv_heads, -1, options_.head_dim}, "key",
                  "[batch, kv_heads, n, head_dim]");
  const std::int64_t tokens = key.extent(2);
  validate_tokens(value, {options_.batch, options_.kv_heads, tokens, value_dim()}, "value",
                  "[batch, kv_heads, n, value_dim]");
  std::optional<Rotation> rotation;
  if (rotary != nullptr) rotation.emplace(*rotary, options_.head_dim);
  const std::int64_t needed = length_ + tokens;
  Room room = room_;
  if (needed > room.capacity) {
    if (options_.capacity != 0) {
      throw CacheFull(
          fmt::format("cache: expected room for {} tokens after {}, got a capacity of {}; "
                      "reserve() makes room",
                      tokens, length_, room.capacity));
    }
    room = make_room(std::max({needed, 2 * room.capacity, kMinCapacity}), length_);
  }
  const MutableTensorView new_keys = view_of(room.key, length_, needed);
  const MutableTensorView new_values = view_of(room.value, length_, needed);
  // `key` and `value` may be views of removed tokens, which the new tokens overwrite.
  const auto apart = [&](const TensorView& given, const char* name) {
    const Memory memory = memory_of(given, name);
    const bool overwritten = memory.overlaps(memory_of(new_keys, "cache")) ||
                             memory.overlaps(memory_of(new_values, "cache"));
    return overwritten ? std::make_unique<Tensor>(given) : nullptr;
  };
  const auto key_copy = apart(key, "key"), value_copy = apart(value, "value");
  write_rows(key_copy ? key_copy->view() : key, new_keys, rotation ? &*rotation : nullptr,
             {.first = length_});
  write_rows(value_copy ? value_copy->view() : value, new_values, nullptr, {});
  // The old memory is not released earlier, because `key` and `value` may be views of it.
  room_ = std::move(room);
  length_ = needed;
}

void KvCache::truncate(std::int64_t length) {
  validate_part(length, length_, "length");
  length_ = length;
}

void KvCache::reserve(std::int64_t capacity) {
  validate_at_least(capacity, 0, "capacity");
  if (capacity > room_.capacity) room_ = make_room(capacity, length_);
}

KvCache KvCache::fork(std::int64_t prefix_length) const {
  validate_part(prefix_length, length_, "prefix_length");
  KvCacheOptions options = options_;
  options.capacity = 0;
  KvCache result(options);
  result.options_.capacity = options_.capacity;
  result.room_ = make_room(options_.capacity == 0 ? prefix_length : room_.capacity, prefix_length);
  result.length_ = prefix_length;
  return result;
}

}  // namespace fovea
