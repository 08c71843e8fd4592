// SPDX-License-Identifier: Apache-2.0
//
// The contiguous cache: random operations against a plain model, validity of views, memory that
// must not change, and memory use. Errors are tested in kv_cache_errors_test.cc.

#include "fovea/kv_cache.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fovea/error.h"
#include "fovea/random.h"

#include "support/cache_calls.h"

namespace fovea::test {
namespace {

static_assert(!std::is_copy_constructible_v<KvCache> && !std::is_copy_assignable_v<KvCache>);
static_assert(std::is_nothrow_move_constructible_v<KvCache>);
static_assert(std::is_nothrow_move_assignable_v<KvCache>);

/// The tokens in order, each [batch, kv_heads, 1, dim] in the cache's type.
struct Model {
  KvCacheOptions options;
  std::vector<Tensor> keys;
  std::vector<Tensor> values;

  void append(const TensorView& key, const TensorView& value, const Rotary* rotary) {
    for (std::int64_t t = 0; t < key.extent(2); ++t) {
      Tensor one(options.dtype, {key.extent(0), key.extent(1), 1, key.extent(3)});
      if (rotary != nullptr) {
        apply_rotary(token(key, t), static_cast<std::int64_t>(keys.size()), *rotary, one);
        keys.push_back(one);
      } else {
        keys.push_back(convert(token(key, t), options.dtype));
      }
      values.push_back(convert(token(value, t), options.dtype));
    }
  }

  void truncate(std::int64_t length) {
    keys.resize(static_cast<std::size_t>(length));
    values.resize(static_cast<std::size_t>(length));
  }

  static TensorView token(const TensorView& tensor, std::int64_t t) {
    if (tensor.size() == 0) {
      return {nullptr,
              tensor.dtype(),
              {tensor.extent(0), tensor.extent(1), 1, tensor.extent(3)},
              tensor.strides()};
    }
    return {tensor.address({0, 0, t, 0}),
            tensor.dtype(),
            {tensor.extent(0), tensor.extent(1), 1, tensor.extent(3)},
            tensor.strides()};
  }
};

void expect_same(const KvCache& cache, const Model& model) {
  ASSERT_EQ(cache.length(), static_cast<std::int64_t>(model.keys.size()));
  ASSERT_GE(cache.capacity(), cache.length());
  const TensorView key = cache.key();
  const TensorView value = cache.value();
  const KvCacheOptions& o = model.options;
  ASSERT_EQ(key.shape(), (Shape{o.batch, o.kv_heads, cache.length(), o.head_dim}));
  ASSERT_EQ(value.shape(),
            (Shape{o.batch, o.kv_heads, cache.length(), o.value_dim.value_or(o.head_dim)}));
  for (std::int64_t t = 0; t < cache.length(); ++t) {
    expect_equal(Model::token(key, t), model.keys[static_cast<std::size_t>(t)]);
    expect_equal(Model::token(value, t), model.values[static_cast<std::size_t>(t)]);
  }
}

/// Tokens of any type, as [batch, kv_heads, n, dim] or a view of [batch, n, kv_heads, dim].
struct Tokens {
  Tokens(RandomState& random, const KvCacheOptions& o, std::int64_t n)
      : swapped(random.rand() < 0.5),
        key_memory(make(random, o, n, o.head_dim)),
        value_memory(make(random, o, n, o.value_dim.value_or(o.head_dim))) {}

  Tensor make(RandomState& random, const KvCacheOptions& o, std::int64_t n,
              std::int64_t dim) const {
    const Shape shape =
        swapped ? Shape{o.batch, n, o.kv_heads, dim} : Shape{o.batch, o.kv_heads, n, dim};
    return random_tokens(random, random_float(random), shape);
  }
  TensorView key() const {
    return swapped ? key_memory.view().transposed(1, 2) : key_memory.view();
  }
  TensorView value() const {
    return swapped ? value_memory.view().transposed(1, 2) : value_memory.view();
  }

  bool swapped;
  Tensor key_memory;
  Tensor value_memory;
};

TEST(KvCache, RandomOperationsMatchTheModel) {
  const KvCacheOptions kinds[] = {
      {.batch = 2, .kv_heads = 3, .head_dim = 6, .value_dim = 5},
      {.dtype = DType::kFloat16, .kv_heads = 2, .head_dim = 4},
      {.dtype = DType::kBFloat16, .batch = 3, .head_dim = 2, .value_dim = 0},
      {.dtype = DType::kBFloat16, .kv_heads = 2, .head_dim = 8, .capacity = 150},
      {.batch = 0, .kv_heads = 2, .head_dim = 4},
      {.kv_heads = 0, .head_dim = 4},
      {.head_dim = 0, .value_dim = 3},
  };
  const Rotary rotary{.base = 100.0, .pairs = Rotary::Pairs::kInterleaved};
  std::uint64_t seed = 0;
  for (const KvCacheOptions& options : kinds) {
    RandomState random(++seed);
    KvCache cache(options);
    Model model{options, {}, {}};
    for (int step = 0; step < 200; ++step) {
      const double what = random.rand();
      if (what < 0.6) {
        const Tokens tokens(random, options, random_below(random, 20));
        const Rotary* const turned = random.rand() < 0.5 ? &rotary : nullptr;
        if (options.capacity != 0 && cache.length() + tokens.key().extent(2) > options.capacity) {
          EXPECT_THROW(cache.append(tokens.key(), tokens.value(), turned), CacheFull);
        } else {
          cache.append(tokens.key(), tokens.value(), turned);
          model.append(tokens.key(), tokens.value(), turned);
        }
      } else if (what < 0.8) {
        const std::int64_t length = random_below(random, cache.length() + 1);
        cache.truncate(length);
        model.truncate(length);
      } else if (what < 0.9) {
        // The original is replaced by its fork.
        const std::int64_t length = random_below(random, cache.length() + 1);
        KvCache fork = cache.fork(length);
        expect_same(cache, model);
        cache = std::move(fork);
        model.truncate(length);
      } else if (options.capacity == 0) {
        cache.reserve(random_below(random, 400));
      }
      expect_same(cache, model);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(KvCache, ForkIsIndependent) {
  RandomState random(1);
  const KvCacheOptions options{.kv_heads = 2, .head_dim = 4};
  KvCache cache(options);
  Model model{options, {}, {}};
  const Tokens tokens(random, options, 70);
  cache.append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  KvCache fork = cache.fork(30);
  Model fork_model = model;
  fork_model.truncate(30);
  const Tokens more(random, options, 9);
  fork.append(more.key(), more.value());
  fork_model.append(more.key(), more.value(), nullptr);
  expect_same(cache, model);
  expect_same(fork, fork_model);
  cache.truncate(20);
  cache.append(tokens.key(), tokens.value());
  expect_same(fork, fork_model);
  EXPECT_EQ(cache.fork(0).length(), 0);
}

TEST(KvCache, CapacityDoubles) {
  RandomState random(2);
  const KvCacheOptions options{.head_dim = 4};
  KvCache cache(options);
  EXPECT_EQ(cache.capacity(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  std::vector<std::int64_t> capacities;
  const Tokens one(random, options, 1);
  for (int i = 0; i < 300; ++i) {
    cache.append(one.key(), one.value());
    if (capacities.empty() || capacities.back() != cache.capacity()) {
      capacities.push_back(cache.capacity());
    }
  }
  EXPECT_EQ(capacities, (std::vector<std::int64_t>{64, 128, 256, 512}));
  EXPECT_EQ(cache.bytes(), 2 * 512 * 4 * 4);
  const Tokens many(random, options, 2000);
  cache.append(many.key(), many.value());
  EXPECT_EQ(cache.capacity(), 2300);
  cache.reserve(100);
  EXPECT_EQ(cache.capacity(), 2300);
  cache.reserve(2301);
  EXPECT_EQ(cache.capacity(), 2301);
  cache.truncate(0);
  EXPECT_EQ(cache.capacity(), 2301);
}

TEST(KvCache, FixedCapacityIsALimitAndKeepsViewsValid) {
  RandomState random(3);
  const KvCacheOptions options{.kv_heads = 2, .head_dim = 4, .capacity = 10};
  KvCache cache(options);
  Model model{options, {}, {}};
  const void* const data = cache.key().data();
  const Tokens tokens(random, options, 6);
  cache.append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  const TensorView key = cache.key();
  EXPECT_EQ(full_message_of([&] { cache.append(tokens.key(), tokens.value()); }),
            "cache: expected room for 6 tokens after 6, got a capacity of 10; reserve() makes "
            "room");
  expect_same(cache, model);
  const Tokens four(random, options, 4);
  cache.append(four.key(), four.value());
  EXPECT_EQ(cache.key().data(), data);
  expect_equal(key, tokens.key().dtype() == DType::kFloat32
                        ? tokens.key()
                        : TensorView(convert(tokens.key(), DType::kFloat32)));
  model.append(four.key(), four.value(), nullptr);
  // A fork has the same limit; reserve() raises it.
  KvCache fork = cache.fork(9);
  const Tokens one(random, options, 1);
  fork.append(one.key(), one.value());
  EXPECT_THROW(fork.append(one.key(), one.value()), CacheFull);
  cache.reserve(11);
  expect_same(cache, model);
  cache.append(one.key(), one.value());
  EXPECT_THROW(cache.append(one.key(), one.value()), CacheFull);
}

TEST(KvCache, AppendsItsOwnTokens) {
  RandomState random(4);
  const KvCacheOptions options{.batch = 2, .kv_heads = 2, .head_dim = 4};
  KvCache cache(options);
  Model model{options, {}, {}};
  const Tokens tokens(random, options, 50);
  cache.append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  for (int i = 0; i < 3; ++i) {  // most of these appends reallocate
    model.append(Tensor(cache.key()), Tensor(cache.value()), nullptr);
    cache.append(cache.key(), cache.value());
    expect_same(cache, model);
  }
}

TEST(KvCache, AppendsTokensItHasRemoved) {
  RandomState random(6);
  const KvCacheOptions options{.batch = 2, .kv_heads = 2, .head_dim = 4};
  const Tokens tokens(random, options, 9);
  for (const std::int64_t first : {0, 1, 2, 3, 5}) {
    for (const std::int64_t kept : {0, 2, 4}) {
      KvCache cache(options);
      Model model{options, {}, {}};
      cache.append(tokens.key(), tokens.value());
      model.append(tokens.key(), tokens.value(), nullptr);
      const auto part = [&](const TensorView& all) {
        return TensorView(all.address({0, 0, first, 0}), all.dtype(), {2, 2, 4, 4}, all.strides());
      };
      const TensorView key = part(cache.key()), value = part(cache.value());
      const Tensor key_before(key), value_before(value);
      cache.truncate(kept);
      model.truncate(kept);
      cache.append(value, key);  // the values' memory becomes keys, and the keys' memory values
      model.append(value_before, key_before, nullptr);
      expect_same(cache, model);
    }
  }
}

TEST(KvCache, MovedFromIsEmpty) {
  RandomState random(5);
  const KvCacheOptions options{.kv_heads = 2, .head_dim = 4, .value_dim = 3};
  KvCache cache(options);
  Model model{options, {}, {}};
  const Tokens tokens(random, options, 5);
  cache.append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  KvCache moved = std::move(cache);
  expect_same(moved, model);
  expect_same(cache, {options, {}, {}});  // NOLINT: tests the moved-from state
  EXPECT_EQ(cache.capacity(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  cache.append(tokens.key(), tokens.value());
  expect_same(cache, model);
  KvCache& self = cache;
  cache = std::move(self);
  expect_same(cache, model);
}

TEST(KvCache, HeadsAreAlignedAndContiguous) {
  // Heads begin on a cache line even for odd sizes.
  const KvCache cache({.dtype = DType::kFloat16,
                       .batch = 2,
                       .kv_heads = 3,
                       .head_dim = 7,
                       .value_dim = 1,
                       .capacity = 13});
  for (const TensorView& view : {cache.key(), cache.value()}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % 64, 0U);
    EXPECT_EQ(view.strides()[1] * 2 % 64, 0);
    EXPECT_EQ(view.strides()[0], 3 * view.strides()[1]);
    EXPECT_EQ(view.strides()[2], view.extent(3));
    EXPECT_EQ(view.strides()[3], 1);
  }
  const KvCache large({.head_dim = 64, .capacity = 2048});  // 512 KB
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.key().data()) % (2U << 20), 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.value().data()) % (2U << 20), 0U);
}

/// Returns the resident memory of this process in bytes.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t in_memory = 0;
  file >> all >> in_memory;
  return in_memory * sysconf(_SC_PAGESIZE);
}

TEST(KvCache, TerabyteCapacityUsesNoMemoryUntilWritten) {
  const KvCacheOptions options{
      .dtype = DType::kBFloat16, .kv_heads = 8, .head_dim = 128, .capacity = std::int64_t{1} << 29};
  const std::int64_t before = resident();
  std::optional<KvCache> cache;
  try {
    cache.emplace(options);
  } catch (const std::bad_alloc&) {
    GTEST_SKIP() << "this system gives out no addresses beyond its memory";
  }
  EXPECT_EQ(cache->bytes(), std::int64_t{1} << 41);
  Model model{options, {}, {}};
  RandomState random(6);
  const Tokens tokens(random, options, 3);
  cache->append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  expect_same(*cache, model);
  KvCache fork = cache->fork(2);
  fork.append(tokens.key(), tokens.value());
  // 32 heads, each in 2 MB pages, plus the memory of the test itself.
  EXPECT_LT(resident() - before, std::int64_t{100} << 20);
}

TEST(KvCache, FailedAllocationLeavesTheCacheUnchanged) {
  RandomState random(7);
  const KvCacheOptions options{.kv_heads = 2, .head_dim = 4};
  KvCache cache(options);
  Model model{options, {}, {}};
  const Tokens tokens(random, options, 50);
  cache.append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  // 2^48 bytes: within the size limit, but more than a process can address.
  EXPECT_THROW(cache.reserve(std::int64_t{1} << 43), std::bad_alloc);
  expect_same(cache, model);
  cache.append(tokens.key(), tokens.value());
  model.append(tokens.key(), tokens.value(), nullptr);
  expect_same(cache, model);
}

TEST(KvCache, AppendingNoTokens) {
  KvCache cache({.batch = 2, .head_dim = 4});
  const Tensor none(DType::kFloat32, {2, 1, 0, 4});
  cache.append(none, none);
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.capacity(), 0);
  EXPECT_EQ(cache.key().shape(), (Shape{2, 1, 0, 4}));
  // With no items, tokens are only counted.
  KvCache empty({.batch = 0, .head_dim = 4});
  const TensorView tokens(nullptr, DType::kFloat32, {0, 1, 1000, 4}, {4000, 4000, 4, 1});
  empty.append(tokens, tokens);
  EXPECT_EQ(empty.length(), 1000);
  EXPECT_EQ(empty.bytes(), 0);
  EXPECT_EQ(empty.key().shape(), (Shape{0, 1, 1000, 4}));
}

}  // namespace
}  // namespace fovea::test
