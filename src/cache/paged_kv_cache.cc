// SPDX-License-Identifier: Apache-2.0
//
// The paged cache (fovea/paged_kv_cache.h). Bookkeeping for a block starts at its first use, so
// unused blocks cost nothing. All steps that can fail come before the first change, so a failed
// call leaves the cache unchanged.

#include "fovea/paged_kv_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

#include "cache/pages.h"
#include "cache/rows.h"
#include "cache/tokens.h"
#include "core/fail.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

/// Returns tokens [begin, end) of a view [kv_heads, length, dim].
template <class View>
View tokens_of(const View& view, std::int64_t begin, std::int64_t end) {
  const Shape shape{view.extent(0), end - begin, view.extent(2)};
  if (element_count(shape) == 0) return {view.data(), view.dtype(), shape, view.strides()};
  return {view.address({0, begin, 0}), view.dtype(), shape, view.strides()};
}

/// Returns `tokens` as [kv_heads, n, dim]. Throws InvalidArgument unless the shape is
/// [kv_heads, n, dim] or [1, kv_heads, n, dim].
TensorView validated(const TensorView& tokens, std::int64_t kv_heads, std::int64_t n,
                     std::int64_t dim, std::string_view name) {
  const std::string_view dim_name = name == "key" ? "head_dim" : "value_dim";
  if (tokens.defined() && tokens.rank() == 4) {
    validate_tokens(tokens, {1, kv_heads, n, dim}, name,
                    fmt::format("[1, kv_heads, n, {}]", dim_name));
    return tokens[0];
  }
  validate_tokens(tokens, {kv_heads, n, dim}, name, fmt::format("[kv_heads, n, {}]", dim_name));
  return tokens;
}

/// Reserves capacity for `count` elements in total, so that growing to that size never fails.
template <class T>
void reserve(std::vector<T>& list, std::size_t count) {
  if (count > list.capacity()) list.reserve(std::max(count, 2 * list.capacity()));
}

}  // namespace

PagedKvCache::PagedKvCache(const PagedKvCacheOptions& options) : options_(options) {
  validate_cache_dtype(options.dtype);
  validate_at_least(options.blocks, 0, "blocks");
  validate_at_least(options.block_size, 1, "block_size");
  validate_at_least(options.kv_heads, 0, "kv_heads");
  validate_at_least(options.head_dim, 0, "head_dim");
  validate_at_least(value_dim(), 0, "value_dim");
  const auto bytes = [&](std::int64_t dim, std::string_view name) {
    return bytes_of({options.blocks, options.kv_heads, options.block_size, dim}, options.dtype,
                    name);
  };
  const std::int64_t key_bytes = bytes(options.head_dim, "key cache");
  const std::int64_t value_bytes = bytes(value_dim(), "value cache");
  key_ = allocate_pages(key_bytes);
  value_ = allocate_pages(value_bytes);
}

PagedKvCache::PagedKvCache(PagedKvCache&& other) noexcept
    : options_(other.options_),
      key_(std::move(other.key_)),
      value_(std::move(other.value_)),
      sequences_(std::move(other.sequences_)),
      next_id_(other.next_id_),
      owners_(std::move(other.owners_)),
      free_(std::move(other.free_)) {
  other.options_.blocks = 0;
  other.sequences_.clear();
  other.owners_.clear();
  other.free_.clear();
}

PagedKvCache& PagedKvCache::operator=(PagedKvCache&& other) noexcept {
  PagedKvCache taken(std::move(other));
  std::swap(options_, taken.options_);
  key_.swap(taken.key_);
  value_.swap(taken.value_);
  sequences_.swap(taken.sequences_);
  std::swap(next_id_, taken.next_id_);
  owners_.swap(taken.owners_);
  free_.swap(taken.free_);
  return *this;
}

const PagedKvCache::Sequence& PagedKvCache::sequence(SequenceId id) const {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    fail_argument("sequence", "expected one of the {} sequences, got {}{}", sequences_.size(), id,
                  id >= 0 && id < next_id_ ? ", which was removed" : "");
  }
  return found->second;
}

PagedKvCache::Sequence& PagedKvCache::sequence(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).sequence(id));
}

PagedKvCache::SequenceId PagedKvCache::add_sequence() {
  sequences_.emplace(next_id_, Sequence{});
  return next_id_++;
}

void PagedKvCache::remove_sequence(SequenceId id) {
  for (const std::int64_t block : sequence(id).blocks) release_block(block);
  sequences_.erase(id);
}

std::int64_t PagedKvCache::length(SequenceId id) const { return sequence(id).length; }

std::int64_t PagedKvCache::free_blocks() const {
  const auto used = static_cast<std::int64_t>(owners_.size() - free_.size());
  return options_.blocks - used;
}

std::int64_t PagedKvCache::bytes() const {
  const std::int64_t rows = options_.blocks * options_.kv_heads * options_.block_size;
  const auto size = static_cast<std::int64_t>(dtype_size(options_.dtype));
  return rows * options_.head_dim * size + rows * value_dim() * size;
}

std::int64_t PagedKvCache::blocks_of(std::int64_t tokens) const {
  return tokens / options_.block_size + (tokens % options_.block_size != 0 ? 1 : 0);
}

bool PagedKvCache::copies_last_block(const Sequence& of, std::int64_t tokens) const {
  return tokens > 0 && of.length % options_.block_size != 0 &&
         owners_[static_cast<std::size_t>(of.blocks.back())] > 1;
}

std::int64_t PagedKvCache::blocks_needed(const Sequence& of, std::int64_t tokens) const {
  return blocks_of(of.length + tokens) - static_cast<std::int64_t>(of.blocks.size()) +
         (copies_last_block(of, tokens) ? 1 : 0);
}

std::int64_t PagedKvCache::blocks_needed(SequenceId id, std::int64_t tokens) const {
  const Sequence& of = sequence(id);
  if (tokens < 0 || tokens > kMaxTensorBytes) {
    fail_argument("tokens", "expected 0 to {} of them, got {}", kMaxTensorBytes, tokens);
  }
  return blocks_needed(of, tokens);
}

std::vector<std::int64_t> PagedKvCache::next_blocks(std::int64_t count) {
  const auto wanted = static_cast<std::size_t>(count);
  const std::size_t again = std::min(wanted, free_.size());
  std::vector<std::int64_t> blocks(free_.rbegin(),
                                   free_.rbegin() + static_cast<std::ptrdiff_t>(again));
  blocks.reserve(wanted);
  const std::size_t ever_used = owners_.size() + wanted - again;
  for (std::size_t block = owners_.size(); block < ever_used; ++block) {
    blocks.push_back(static_cast<std::int64_t>(block));
  }
  reserve(owners_, ever_used);
  reserve(free_, ever_used);  // all blocks may become free
  return blocks;
}

void PagedKvCache::take_next_block() {
  if (free_.empty()) {
    owners_.push_back(1);
  } else {
    owners_[static_cast<std::size_t>(free_.back())] = 1;
    free_.pop_back();
  }
}

void PagedKvCache::release_block(std::int64_t block) {
  if (--owners_[static_cast<std::size_t>(block)] == 0) free_.push_back(block);
}

MutableTensorView PagedKvCache::pool(const std::shared_ptr<std::byte>& memory,
                                     std::int64_t dim) const {
  const Shape shape{options_.blocks, options_.kv_heads, options_.block_size, dim};
  return {memory.get(), options_.dtype, shape};
}

void PagedKvCache::copy_block(std::int64_t from, std::int64_t to, std::int64_t tokens) {
  for (const MutableTensorView& all : {pool(key_, options_.head_dim), pool(value_, value_dim())}) {
    write_rows(tokens_of(all[from], 0, tokens), tokens_of(all[to], 0, tokens), nullptr, {});
  }
}

void PagedKvCache::append(SequenceId id, const TensorView& key, const TensorView& value,
                          const Rotary* rotary) {
  Sequence& to = sequence(id);
  const TensorView keys = validated(key, options_.kv_heads, -1, options_.head_dim, "key");
  const std::int64_t tokens = keys.extent(1);
  const TensorView values = validated(value, options_.kv_heads, tokens, value_dim(), "value");
  std::optional<Rotation> rotation;
  if (rotary != nullptr) rotation.emplace(*rotary, options_.head_dim);
  const std::int64_t needed = blocks_needed(to, tokens);
  if (needed > free_blocks()) {
    throw CacheFull(fmt::format("cache: expected {} free blocks for {} tokens after {}, got {}",
                                needed, tokens, to.length, free_blocks()));
  }
  const std::int64_t length = to.length + tokens;
  const std::vector<std::int64_t> fresh = next_blocks(needed);
  reserve(to.blocks, static_cast<std::size_t>(blocks_of(length)));
  // All data is written first, to memory that holds no tokens yet: after the length, and in free
  // blocks.
  const bool copies = copies_last_block(to, tokens);
  const std::size_t kept = to.blocks.size() - (copies ? 1 : 0);
  if (copies) copy_block(to.blocks.back(), fresh.front(), to.length % options_.block_size);
  const MutableTensorView key_pool = pool(key_, options_.head_dim);
  const MutableTensorView value_pool = pool(value_, value_dim());
  for (std::int64_t done = 0; done < tokens;) {
    const std::int64_t at = to.length + done;
    const auto i = static_cast<std::size_t>(at / options_.block_size);
    const std::int64_t block = i < kept ? to.blocks[i] : fresh[i - kept];
    const std::int64_t begin = at % options_.block_size;
    const std::int64_t end = std::min(options_.block_size, begin + tokens - done);
    const std::int64_t next = done + end - begin;
    write_rows(tokens_of(keys, done, next), tokens_of(key_pool[block], begin, end),
               rotation ? &*rotation : nullptr, {.first = at});
    write_rows(tokens_of(values, done, next), tokens_of(value_pool[block], begin, end), nullptr,
               {});
    done = next;
  }
  // Nothing below can fail.
  if (copies) {
    release_block(to.blocks.back());
    to.blocks.pop_back();
  }
  for (const std::int64_t block : fresh) {
    take_next_block();
    to.blocks.push_back(block);
  }
  to.length = length;
}

void PagedKvCache::truncate(SequenceId id, std::int64_t length) {
  Sequence& of = sequence(id);
  validate_part(length, of.length, "length");
  const auto kept = static_cast<std::size_t>(blocks_of(length));
  for (std::size_t i = kept; i < of.blocks.size(); ++i) release_block(of.blocks[i]);
  of.blocks.resize(kept);
  of.length = length;
}

PagedKvCache::SequenceId PagedKvCache::fork(SequenceId id, std::int64_t prefix_length) {
  const Sequence& of = sequence(id);
  validate_part(prefix_length, of.length, "prefix_length");
  Sequence result{{of.blocks.begin(), of.blocks.begin() + blocks_of(prefix_length)}, prefix_length};
  const auto added = sequences_.emplace(next_id_, std::move(result)).first;
  for (const std::int64_t block : added->second.blocks) ++owners_[static_cast<std::size_t>(block)];
  return next_id_++;
}

PagedBatch PagedKvCache::view(std::span<const SequenceId> ids) const {
  std::int64_t most_blocks = 0;
  for (const SequenceId id : ids) {
    most_blocks = std::max(most_blocks, static_cast<std::int64_t>(sequence(id).blocks.size()));
  }
  const auto batch = static_cast<std::int64_t>(ids.size());
  PagedBatch result{pool(key_, options_.head_dim), pool(value_, value_dim()),
                    Tensor(DType::kInt64, {batch, most_blocks}), Tensor(DType::kInt64, {batch})};
  std::ranges::fill(result.block_table.span<std::int64_t>(), -1);
  for (std::int64_t b = 0; b < batch; ++b) {
    const Sequence& of = sequence(ids[static_cast<std::size_t>(b)]);
    const auto row = result.block_table.span<std::int64_t>().subspan(
        static_cast<std::size_t>(b * most_blocks), of.blocks.size());
    std::ranges::copy(of.blocks, row.begin());
    result.lengths.at<std::int64_t>({b}) = of.length;
  }
  return result;
}

}  // namespace fovea
