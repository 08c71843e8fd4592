// SPDX-License-Identifier: Apache-2.0
//
// Errors of the paged cache: their messages, and that the cache is unchanged.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/paged_kv_cache.h"

#include "support/bad_value.h"
#include "support/cache_calls.h"
#include "support/limits.h"
#include "support/message_of.h"

namespace fovea::test {
namespace {

using Id = PagedKvCache::SequenceId;

/// Blocks of 4 tokens, 3 heads, dims 4 and 6; sequence 0 is removed, sequence 1 has 5 tokens.
struct PagedCall {
  PagedCall() {
    cache.remove_sequence(cache.add_sequence());
    id = cache.add_sequence();
    cache.append(id, Tensor(DType::kFloat32, {3, 5, 4}), Tensor(DType::kFloat32, {3, 5, 6}));
  }
  void append() { cache.append(id, key, value, rotary ? &*rotary : nullptr); }

  PagedKvCacheOptions options{
      .blocks = 10, .block_size = 4, .kv_heads = 3, .head_dim = 4, .value_dim = 6};
  PagedKvCache cache{options};
  Id id = 0;
  Tensor key_memory{DType::kFloat32, {3, 3, 4}};
  Tensor value_memory{DType::kFloat32, {3, 3, 6}};
  TensorView key = key_memory;
  TensorView value = value_memory;
  std::optional<Rotary> rotary;
};

/// Changes the options by `spoil`, then creates a cache with them.
std::function<void(PagedCall&)> with_options(
    const std::function<void(PagedKvCacheOptions&)>& spoil) {
  return [spoil](PagedCall& c) {
    spoil(c.options);
    PagedKvCache cache(c.options);
  };
}

const std::vector<Bad<PagedCall>> kBadPagedCalls{
    {"dtype float64", with_options([](auto& o) { o.dtype = DType::kFloat64; }),
     "dtype: expected float32, float16 or bfloat16, got float64"},
    {"dtype bool", with_options([](auto& o) { o.dtype = DType::kBool; }),
     "dtype: expected float32, float16 or bfloat16, got bool"},
    {"negative blocks", with_options([](auto& o) { o.blocks = -1; }),
     "blocks: expected 0 or more, got -1"},
    {"blocks of no tokens", with_options([](auto& o) { o.block_size = 0; }),
     "block_size: expected 1 or more, got 0"},
    {"negative kv_heads", with_options([](auto& o) { o.kv_heads = -2; }),
     "kv_heads: expected 0 or more, got -2"},
    {"negative head_dim", with_options([](auto& o) { o.head_dim = -3; }),
     "head_dim: expected 0 or more, got -3"},
    {"negative value_dim", with_options([](auto& o) { o.value_dim = -4; }),
     "value_dim: expected 0 or more, got -4"},
    {"too many keys", with_options([](auto& o) { o.blocks = kMaxInt; }),
     "key cache: expected at most 281474976710656 bytes, got [9223372036854775807, 3, 4, 4] of "
     "float32"},
    {"too many values", with_options([](auto& o) { o.value_dim = kMaxInt; }),
     "value cache: expected at most 281474976710656 bytes, got [10, 3, 4, 9223372036854775807] of "
     "float32"},
    {"tokens of no sequence", [](PagedCall& c) { c.id = 2; },
     "sequence: expected one of the 1 sequences, got 2"},
    {"tokens of a sequence that was removed", [](PagedCall& c) { c.id = 0; },
     "sequence: expected one of the 1 sequences, got 0, which was removed"},
    {"removed twice", [](PagedCall& c) { c.cache.remove_sequence(0); },
     "sequence: expected one of the 1 sequences, got 0, which was removed"},
    {"length of no sequence", [](PagedCall& c) { c.cache.length(-1); },
     "sequence: expected one of the 1 sequences, got -1"},
    {"truncating no sequence", [](PagedCall& c) { c.cache.truncate(7, 0); },
     "sequence: expected one of the 1 sequences, got 7"},
    {"fork of no sequence", [](PagedCall& c) { c.cache.fork(7, 0); },
     "sequence: expected one of the 1 sequences, got 7"},
    {"blocks for no sequence", [](PagedCall& c) { c.cache.blocks_needed(7, 0); },
     "sequence: expected one of the 1 sequences, got 7"},
    {"view of no sequence",
     [](PagedCall& c) {
       c.cache.view(std::vector<Id>{1, 7});
     },
     "sequence: expected one of the 1 sequences, got 7"},
    {"blocks for fewer than no tokens", [](PagedCall& c) { c.cache.blocks_needed(1, -1); },
     "tokens: expected 0 to 281474976710656 of them, got -1"},
    {"blocks for too many tokens", [](PagedCall& c) { c.cache.blocks_needed(1, kMaxInt); },
     "tokens: expected 0 to 281474976710656 of them, got 9223372036854775807"},
    {"truncated to more", [](PagedCall& c) { c.cache.truncate(1, 6); },
     "length: expected 0 to 5 tokens, got 6"},
    {"truncated to less than nothing", [](PagedCall& c) { c.cache.truncate(1, -1); },
     "length: expected 0 to 5 tokens, got -1"},
    {"fork of more", [](PagedCall& c) { c.cache.fork(1, 6); },
     "prefix_length: expected 0 to 5 tokens, got 6"},
    {"no key", [](PagedCall& c) { c.key = {}; },
     "key: expected [kv_heads, n, head_dim] = [3, n, 4], got nothing"},
    {"no value", [](PagedCall& c) { c.value = {}; },
     "value: expected [kv_heads, n, value_dim] = [3, 3, 6], got nothing"},
    {"key of rank 2", [](PagedCall& c) { c.key = c.key[0]; },
     "key: expected [kv_heads, n, head_dim] = [3, n, 4], got [3, 4]"},
    {"keys of two sequences",
     [](PagedCall& c) {
       c.key = zeros(DType::kFloat32, {2, 3, 3, 4});
     },
     "key: expected [1, kv_heads, n, head_dim] = [1, 3, n, 4], got [2, 3, 3, 4]"},
    {"values of two sequences",
     [](PagedCall& c) {
       c.value = zeros(DType::kFloat32, {2, 3, 3, 6});
     },
     "value: expected [1, kv_heads, n, value_dim] = [1, 3, 3, 6], got [2, 3, 3, 6]"},
    {"heads of key",
     [](PagedCall& c) {
       c.key = zeros(DType::kFloat32, {2, 3, 4});
     },
     "key: expected [kv_heads, n, head_dim] = [3, n, 4], got [2, 3, 4]"},
    {"dim of value", [](PagedCall& c) { c.value = c.key; },
     "value: expected [kv_heads, n, value_dim] = [3, 3, 6], got [3, 3, 4]"},
    {"fewer values than keys",
     [](PagedCall& c) {
       c.value = zeros(DType::kFloat32, {3, 2, 6});
     },
     "value: expected [kv_heads, n, value_dim] = [3, 3, 6], got [3, 2, 6]"},
    {"key of int64",
     [](PagedCall& c) {
       c.key = zeros(DType::kInt64, {3, 3, 4});
     },
     "key: expected float32, float64, float16 or bfloat16, got int64"},
    {"key without data",
     [](PagedCall& c) {
       c.key = TensorView(nullptr, DType::kFloat32, {3, 3, 4}, {12, 4, 1});
     },
     "key: expected data for shape [3, 3, 4], got a null pointer"},
    {"value beyond memory",
     [](PagedCall& c) {
       c.value = TensorView(c.value.data(), DType::kFloat32, {3, 3, 6}, {kMaxInt, 6, 1});
     },
     "value: expected strides that stay within memory, got [9223372036854775807, 6, 1] for shape "
     "[3, 3, 6]"},
    {"odd dims to rotate", [](PagedCall& c) { c.rotary = Rotary{.dims = 3}; },
     "rotary: expected an even number of dims to rotate, got 3"},
};

class PagedKvCacheErrors : public testing::TestWithParam<Bad<PagedCall>> {};

TEST_P(PagedKvCacheErrors, Message) {
  PagedCall call;
  EXPECT_EQ(message_of([&] {
              GetParam().spoil(call);
              call.append();
            }),
            GetParam().message);
  EXPECT_EQ(call.cache.length(1), 5);
  EXPECT_EQ(call.cache.free_blocks(), 8);
  EXPECT_EQ(call.cache.sequences(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, PagedKvCacheErrors, testing::ValuesIn(kBadPagedCalls),
                         name_of_bad<PagedCall>);

}  // namespace
}  // namespace fovea::test
