// SPDX-License-Identifier: Apache-2.0
//
// The paged cache: random operations against a plain model, block sharing between forks, and block
// counts. Errors are tested in paged_kv_cache_errors_test.cc.

#include "fovea/paged_kv_cache.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/random.h"

#include "support/cache_calls.h"

namespace fovea::test {
namespace {

using Id = PagedKvCache::SequenceId;

static_assert(!std::is_copy_constructible_v<PagedKvCache>);
static_assert(std::is_nothrow_move_constructible_v<PagedKvCache>);
static_assert(std::is_nothrow_move_assignable_v<PagedKvCache>);

/// The key and value of one token, head by head.
struct Token {
  std::vector<double> key;
  std::vector<double> value;
  bool operator==(const Token&) const = default;
};
using PagedModel = std::map<Id, std::vector<Token>>;

/// Returns token t of [kv_heads, n, dim], rounded to the cache's type.
std::vector<double> token_of(const TensorView& tokens, std::int64_t t, DType dtype,
                             const Rotary* rotary, std::int64_t position) {
  Tensor one(DType::kFloat64, {tokens.extent(0), 1, tokens.extent(2)});
  for_each_index(one.shape(), [&](const Index& at) {
    one.at<double>(at) = tokens.value({at[0], t, at[2]});
  });
  Tensor stored = convert(one, dtype);
  if (rotary != nullptr) apply_rotary(convert(one, tokens.dtype()), position, *rotary, stored);
  const Tensor numbers = convert(stored, DType::kFloat64);
  return {numbers.span<double>().begin(), numbers.span<double>().end()};
}

std::vector<Token> tokens_of(const TensorView& key, const TensorView& value, DType dtype,
                             const Rotary* rotary, std::int64_t first) {
  std::vector<Token> tokens;
  for (std::int64_t t = 0; t < key.extent(1); ++t) {
    tokens.push_back(
        {token_of(key, t, dtype, rotary, first + t), token_of(value, t, dtype, nullptr, 0)});
  }
  return tokens;
}

/// Returns the tokens of batch item b, read as attention_decode does.
std::vector<Token> tokens_of(const PagedKeyValue& paged, std::int64_t b) {
  std::vector<Token> tokens;
  const std::int64_t block_size = paged.key.extent(2);
  for (std::int64_t t = 0; t < paged.lengths.at<std::int64_t>({b}); ++t) {
    const std::int64_t block = paged.block_table.at<std::int64_t>({b, t / block_size});
    const auto read = [&](const TensorView& pool) {
      std::vector<double> numbers;
      for (std::int64_t head = 0; head < pool.extent(1); ++head) {
        for (std::int64_t i = 0; i < pool.extent(3); ++i) {
          numbers.push_back(pool.value({block, head, t % block_size, i}));
        }
      }
      return numbers;
    };
    tokens.push_back({read(paged.key), read(paged.value)});
  }
  return tokens;
}

void expect_same_pages(const PagedKvCache& cache, const PagedModel& model) {
  ASSERT_EQ(cache.sequences(), static_cast<std::int64_t>(model.size()));
  std::vector<Id> ids;
  for (const auto& [id, tokens] : model) {
    ids.push_back(id);
    ASSERT_EQ(cache.length(id), static_cast<std::int64_t>(tokens.size()));
  }
  const PagedBatch batch = cache.view(ids);
  validate(batch);
  const PagedKeyValue paged = batch;
  std::set<std::int64_t> used;
  for (std::size_t b = 0; b < ids.size(); ++b) {
    const auto item = static_cast<std::int64_t>(b);
    ASSERT_EQ(tokens_of(paged, item), model.at(ids[b])) << "sequence " << ids[b];
    for (std::int64_t i = 0; i < paged.block_table.extent(1); ++i) {
      const bool needed = i * cache.options().block_size < cache.length(ids[b]);
      const std::int64_t block = paged.block_table.at<std::int64_t>({item, i});
      ASSERT_EQ(block >= 0, needed);
      if (needed) used.insert(block);
    }
  }
  // Blocks that no sequence uses are free.
  ASSERT_EQ(cache.free_blocks(), cache.options().blocks - static_cast<std::int64_t>(used.size()));
}

/// Tokens [kv_heads, n, dim] of any type in one of three layouts.
struct PagedTokens {
  PagedTokens(RandomState& random, const PagedKvCacheOptions& o, std::int64_t n)
      : layout(random_below(random, 3)),
        key_memory(make(random, o.kv_heads, n, o.head_dim)),
        value_memory(make(random, o.kv_heads, n, o.value_dim.value_or(o.head_dim))) {}

  Tensor make(RandomState& random, std::int64_t heads, std::int64_t n, std::int64_t dim) const {
    const Shape shape = layout == 0   ? Shape{heads, n, dim}
                        : layout == 1 ? Shape{n, heads, dim}
                                      : Shape{1, heads, n, dim};
    return random_tokens(random, random_float(random), shape);
  }
  TensorView of(const Tensor& memory) const {
    return layout == 1 ? memory.view().transposed(0, 1) : memory.view();
  }
  TensorView key() const { return of(key_memory); }
  TensorView value() const { return of(value_memory); }
  /// Returns the tokens as a view of rank 3.
  TensorView plain(const TensorView& tokens) const { return layout == 2 ? tokens[0] : tokens; }

  std::int64_t layout;
  Tensor key_memory;
  Tensor value_memory;
};

/// A cache and its model, which perform the same operations.
struct Both {
  explicit Both(const PagedKvCacheOptions& options) : cache(options) {}

  Id add() {
    const Id id = cache.add_sequence();
    EXPECT_TRUE(model.emplace(id, std::vector<Token>{}).second);
    return id;
  }
  void remove(Id id) {
    cache.remove_sequence(id);
    model.erase(id);
  }
  void truncate(Id id, std::int64_t length) {
    cache.truncate(id, length);
    model.at(id).resize(static_cast<std::size_t>(length));
  }
  Id fork(Id id, std::int64_t length) {
    const std::int64_t free = cache.free_blocks();
    const Id result = cache.fork(id, length);
    EXPECT_EQ(cache.free_blocks(), free);
    std::vector<Token> tokens = model.at(id);
    tokens.resize(static_cast<std::size_t>(length));
    EXPECT_TRUE(model.emplace(result, std::move(tokens)).second);
    return result;
  }
  /// Appends if there is room, checking blocks_needed(); otherwise expects CacheFull.
  void append(Id id, RandomState& random, std::int64_t n, const Rotary* rotary = nullptr) {
    const PagedTokens tokens(random, cache.options(), n);
    const std::int64_t free = cache.free_blocks();
    const std::int64_t needed = cache.blocks_needed(id, n);
    if (needed > free) {
      EXPECT_THROW(cache.append(id, tokens.key(), tokens.value(), rotary), CacheFull);
      EXPECT_EQ(cache.free_blocks(), free);
      return;
    }
    const std::vector<Token> more =
        tokens_of(tokens.plain(tokens.key()), tokens.plain(tokens.value()), cache.options().dtype,
                  rotary, cache.length(id));
    cache.append(id, tokens.key(), tokens.value(), rotary);
    EXPECT_EQ(cache.free_blocks(), free - needed);
    std::vector<Token>& all = model.at(id);
    all.insert(all.end(), more.begin(), more.end());
  }

  PagedKvCache cache;
  PagedModel model;
};

TEST(PagedKvCache, RandomOperationsMatchTheModel) {
  const PagedKvCacheOptions kinds[] = {
      {.blocks = 40, .block_size = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 3},
      {.dtype = DType::kBFloat16, .blocks = 12, .block_size = 16, .head_dim = 2},
      {.dtype = DType::kFloat16, .blocks = 100, .block_size = 1, .kv_heads = 2, .head_dim = 2},
      {.blocks = 20, .block_size = 3, .kv_heads = 0, .head_dim = 2},
      {.blocks = 20, .block_size = 3, .head_dim = 0, .value_dim = 1},
      {.blocks = 0, .head_dim = 2},
  };
  const Rotary rotary{.base = 50.0};
  std::uint64_t seed = 0;
  for (const PagedKvCacheOptions& options : kinds) {
    RandomState random(++seed);
    Both both(options);
    for (int step = 0; step < 400; ++step) {
      const double what = random.rand();
      if (both.model.empty() || what < 0.1) {
        both.add();
      } else {
        auto at = both.model.begin();
        std::advance(at, random_below(random, static_cast<std::int64_t>(both.model.size())));
        const Id id = at->first;
        const std::int64_t part = random_below(random, both.cache.length(id) + 1);
        if (what < 0.6) {
          both.append(id, random, random_below(random, 12),
                      random.rand() < 0.5 ? &rotary : nullptr);
        } else if (what < 0.75) {
          both.fork(id, part);
        } else if (what < 0.88) {
          both.truncate(id, part);
        } else {
          both.remove(id);
        }
      }
      expect_same_pages(both.cache, both.model);
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!both.model.empty()) both.remove(both.model.begin()->first);
    EXPECT_EQ(both.cache.free_blocks(), options.blocks);
  }
}

TEST(PagedKvCache, ForksShareBlocksAndCopyTheLastOnWrite) {
  RandomState random(1);
  Both both({.blocks = 20, .block_size = 4, .kv_heads = 2, .head_dim = 4});
  const Id parent = both.add();
  both.append(parent, random, 10);  // 2.5 blocks
  EXPECT_EQ(both.cache.free_blocks(), 17);
  const Id child = both.fork(parent, 10);
  const Id other = both.fork(parent, 5);
  EXPECT_EQ(both.cache.free_blocks(), 17);
  // The child needs its own block for tokens from 8 on; the parent's block is then unshared.
  EXPECT_EQ(both.cache.blocks_needed(child, 0), 0);
  EXPECT_EQ(both.cache.blocks_needed(child, 1), 1);
  EXPECT_EQ(both.cache.blocks_needed(child, 2), 1);
  EXPECT_EQ(both.cache.blocks_needed(child, 3), 2);
  both.append(child, random, 1);
  EXPECT_EQ(both.cache.free_blocks(), 16);
  EXPECT_EQ(both.cache.blocks_needed(parent, 2), 0);
  both.append(parent, random, 2);
  EXPECT_EQ(both.cache.free_blocks(), 16);
  expect_same_pages(both.cache, both.model);
  // All three sequences share the block of token 5: a sequence truncated within this block would
  // copy the block on append.
  both.append(other, random, 3);
  EXPECT_EQ(both.cache.free_blocks(), 15);
  both.truncate(parent, 7);
  EXPECT_EQ(both.cache.free_blocks(), 16);
  EXPECT_EQ(both.cache.blocks_needed(parent, 1), 1);
  both.append(parent, random, 1);
  EXPECT_EQ(both.cache.blocks_needed(child, 1), 0);
  expect_same_pages(both.cache, both.model);
  // A block is freed with the last sequence that uses it.
  both.remove(parent);
  EXPECT_EQ(both.cache.free_blocks(), 16);  // the copy is freed; block 0 is still shared
  both.remove(child);
  EXPECT_EQ(both.cache.free_blocks(), 18);
  expect_same_pages(both.cache, both.model);
  both.remove(other);
  EXPECT_EQ(both.cache.free_blocks(), 20);
}

TEST(PagedKvCache, ForkAtABlockBoundaryCopiesNothing) {
  RandomState random(2);
  Both both({.blocks = 4, .block_size = 4, .head_dim = 2});
  const Id parent = both.add();
  both.append(parent, random, 8);
  const Id child = both.fork(parent, 8);
  EXPECT_EQ(both.cache.blocks_needed(child, 4), 1);
  both.append(child, random, 4);
  both.append(parent, random, 4);
  EXPECT_EQ(both.cache.free_blocks(), 0);
  expect_same_pages(both.cache, both.model);
}

TEST(PagedKvCache, FullPoolThrowsAndChangesNothing) {
  RandomState random(3);
  Both both({.blocks = 4, .block_size = 4, .head_dim = 2});
  const Id first = both.add();
  const Id second = both.add();
  both.append(first, random, 6);
  both.append(second, random, 4);
  const Tensor tokens = random_tokens(random, DType::kFloat32, {1, 9, 2});
  EXPECT_EQ(both.cache.blocks_needed(second, 9), 3);
  EXPECT_EQ(full_message_of([&] { both.cache.append(second, tokens, tokens); }),
            "cache: expected 3 free blocks for 9 tokens after 4, got 1");
  expect_same_pages(both.cache, both.model);
  // Copying a shared block needs a free block as well.
  const Id fork = both.fork(first, 6);
  both.append(second, random, 4);
  const TensorView one(tokens.view().data(), DType::kFloat32, {1, 1, 2}, {2, 2, 1});
  EXPECT_EQ(full_message_of([&] { both.cache.append(fork, one, one); }),
            "cache: expected 1 free blocks for 1 tokens after 6, got 0");
  expect_same_pages(both.cache, both.model);
  // The fork's last block still has free slots, and is unshared once the other sequence is removed.
  both.remove(first);
  both.append(fork, random, 2);
  EXPECT_EQ(both.cache.length(fork), 8);
  expect_same_pages(both.cache, both.model);
}

TEST(PagedKvCache, FreedBlocksAreReusedFirst) {
  RandomState random(4);
  Both both({.blocks = 1000, .block_size = 2, .head_dim = 2});
  for (int i = 0; i < 20; ++i) {
    const Id id = both.add();
    both.append(id, random, 20);
    const PagedBatch batch = both.cache.view(std::vector<Id>{id});
    const auto table = batch.block_table.span<std::int64_t>();
    EXPECT_LT(*std::ranges::max_element(table), 10);
    both.remove(id);
  }
}

TEST(PagedKvCache, AppendsItsOwnTokens) {
  RandomState random(5);
  Both both({.blocks = 8, .block_size = 4, .kv_heads = 2, .head_dim = 2});
  const Id id = both.add();
  both.append(id, random, 6);
  const PagedBatch batch = both.cache.view(std::vector<Id>{id});
  // Appends the first block again, crossing the end of the second.
  std::vector<Token>& tokens = both.model.at(id);
  const std::vector<Token> again(tokens.begin(), tokens.begin() + 4);
  tokens.insert(tokens.end(), again.begin(), again.end());
  const std::int64_t block = batch.block_table.at<std::int64_t>({0, 0});
  both.cache.append(id, batch.key[block], batch.value[block]);
  expect_same_pages(both.cache, both.model);
}

TEST(PagedKvCache, BatchView) {
  RandomState random(6);
  Both both({.dtype = DType::kFloat16,
             .blocks = 10,
             .block_size = 4,
             .kv_heads = 2,
             .head_dim = 6,
             .value_dim = 5});
  const Id long_one = both.add();
  const Id empty = both.add();
  both.append(long_one, random, 9);
  const PagedBatch batch = both.cache.view(std::vector<Id>{empty, long_one, long_one});
  EXPECT_EQ(batch.key.shape(), (Shape{10, 2, 4, 6}));
  EXPECT_EQ(batch.value.shape(), (Shape{10, 2, 4, 5}));
  EXPECT_EQ(batch.key.dtype(), DType::kFloat16);
  EXPECT_EQ(batch.block_table.shape(), (Shape{3, 3}));
  expect_equal(
      batch.block_table,
      Tensor::from<std::int64_t>({3, 3}, std::vector<std::int64_t>{-1, -1, -1, 0, 1, 2, 0, 1, 2}));
  expect_equal(batch.lengths, Tensor::from<std::int64_t>({3}, std::vector<std::int64_t>{0, 9, 9}));
  EXPECT_EQ(tokens_of(batch, 2), both.model.at(long_one));
  // Batches can be copied and moved.
  PagedBatch moved = PagedBatch(batch);
  const PagedBatch last = std::move(moved);
  EXPECT_EQ(tokens_of(last, 1), both.model.at(long_one));
  const PagedBatch none = both.cache.view({});
  EXPECT_EQ(none.block_table.shape(), (Shape{0, 0}));
  validate(none);
  const PagedBatch empties = both.cache.view(std::vector<Id>{empty});
  EXPECT_EQ(empties.block_table.shape(), (Shape{1, 0}));
  validate(empties);
}

TEST(PagedKvCache, MovedFromIsEmpty) {
  RandomState random(7);
  Both both({.blocks = 10, .block_size = 4, .head_dim = 2});
  const Id id = both.add();
  both.append(id, random, 7);
  PagedKvCache moved = std::move(both.cache);
  expect_same_pages(moved, both.model);
  EXPECT_EQ(both.cache.sequences(), 0);  // NOLINT: tests the moved-from state
  EXPECT_EQ(both.cache.free_blocks(), 0);
  EXPECT_EQ(both.cache.bytes(), 0);
  const Id other = both.cache.add_sequence();
  EXPECT_NE(other, id);
  const Tensor one(DType::kFloat32, {1, 1, 2});
  EXPECT_THROW(both.cache.append(other, one, one), CacheFull);
  both.cache = std::move(moved);
  expect_same_pages(both.cache, both.model);
  PagedKvCache& self = both.cache;
  both.cache = std::move(self);
  expect_same_pages(both.cache, both.model);
}

TEST(PagedKvCache, TerabytePoolUsesNoMemoryUntilWritten) {
  std::optional<PagedKvCache> cache;
  const PagedKvCacheOptions options{.dtype = DType::kFloat16,
                                    .blocks = std::int64_t{1} << 28,
                                    .block_size = 4,
                                    .kv_heads = 4,
                                    .head_dim = 128};
  try {
    cache.emplace(options);
  } catch (const std::bad_alloc&) {
    GTEST_SKIP() << "this system gives out no addresses beyond its memory";
  }
  EXPECT_EQ(cache->bytes(), std::int64_t{1} << 41);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(cache->view({}).key.data()) % (2U << 20), 0U);
  RandomState random(8);
  Both both(options);
  both.append(both.add(), random, 50);
  expect_same_pages(both.cache, both.model);
}

TEST(PagedKvCache, PoolLargerThanTheAddressSpace) {
  // 2^47 bytes of keys: within the size limit, but more than a process can address.
  EXPECT_THROW(PagedKvCache({.blocks = std::int64_t{1} << 38, .block_size = 16, .head_dim = 8}),
               std::bad_alloc);
}

TEST(PagedKvCache, AppendingNoTokens) {
  RandomState random(9);
  Both both({.blocks = 3, .block_size = 4, .kv_heads = 2, .head_dim = 2});
  const Id id = both.add();
  both.append(id, random, 0);
  both.append(id, random, 3);
  const Id fork = both.fork(id, 3);
  both.append(fork, random, 0);  // copies nothing
  EXPECT_EQ(both.cache.free_blocks(), 2);
  expect_same_pages(both.cache, both.model);
}

}  // namespace
}  // namespace fovea::test
