// SPDX-License-Identifier: Apache-2.0
//
// Errors of the contiguous cache: their messages, and that the cache is unchanged.

#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/kv_cache.h"

#include "support/bad_value.h"
#include "support/cache_calls.h"
#include "support/limits.h"
#include "support/message_of.h"

namespace fovea::test {
namespace {

/// A cache of 2 items, 3 heads, 5 tokens and dims 4 and 6, with 3 tokens to append.
struct KvCacheCall {
  KvCacheCall() {
    cache.append(Tensor(DType::kFloat32, {2, 3, 5, 4}), Tensor(DType::kFloat32, {2, 3, 5, 6}));
  }

  KvCacheOptions options{.batch = 2, .kv_heads = 3, .head_dim = 4, .value_dim = 6};
  KvCache cache{options};
  Tensor key_memory{DType::kFloat32, {2, 3, 3, 4}};
  Tensor value_memory{DType::kFloat32, {2, 3, 3, 6}};
  TensorView key = key_memory;
  TensorView value = value_memory;
  std::optional<Rotary> rotary;

  void append() { cache.append(key, value, rotary ? &*rotary : nullptr); }
};

const std::vector<Bad<KvCacheCall>> kBadKvCacheCalls{
    {"dtype float64",
     [](KvCacheCall& c) {
       c.options.dtype = DType::kFloat64;
       KvCache cache(c.options);
     },
     "dtype: expected float32, float16 or bfloat16, got float64"},
    {"dtype int64",
     [](KvCacheCall& c) {
       c.options.dtype = DType::kInt64;
       KvCache cache(c.options);
     },
     "dtype: expected float32, float16 or bfloat16, got int64"},
    {"negative batch",
     [](KvCacheCall& c) {
       c.options.batch = -1;
       KvCache cache(c.options);
     },
     "batch: expected 0 or more, got -1"},
    {"negative kv_heads",
     [](KvCacheCall& c) {
       c.options.kv_heads = -2;
       KvCache cache(c.options);
     },
     "kv_heads: expected 0 or more, got -2"},
    {"negative head_dim",
     [](KvCacheCall& c) {
       c.options.head_dim = -3;
       KvCache cache(c.options);
     },
     "head_dim: expected 0 or more, got -3"},
    {"negative value_dim",
     [](KvCacheCall& c) {
       c.options.value_dim = -4;
       KvCache cache(c.options);
     },
     "value_dim: expected 0 or more, got -4"},
    {"negative capacity",
     [](KvCacheCall& c) {
       c.options.capacity = -5;
       KvCache cache(c.options);
     },
     "capacity: expected 0 or more, got -5"},
    {"too many keys",
     [](KvCacheCall& c) {
       c.options.capacity = std::int64_t{1} << 45;
       KvCache cache(c.options);
     },
     "key cache: expected at most 281474976710656 bytes, got [2, 3, 35184372088832, 4] of float32"},
    {"too many values",
     [](KvCacheCall& c) {
       c.options.capacity = std::int64_t{1} << 41;
       c.options.value_dim = 200;
       KvCache cache(c.options);
     },
     "value cache: expected at most 281474976710656 bytes, got [2, 3, 2199023255552, 200] of "
     "float32"},
    {"too many keys of no items",
     [](KvCacheCall& c) {
       c.options.batch = 0;
       c.options.capacity = kMaxInt;
       KvCache cache(c.options);
     },
     "key cache: expected at most 281474976710656 bytes, got [0, 3, 9223372036854775807, 4] of "
     "float32"},
    {"too much reserved", [](KvCacheCall& c) { c.cache.reserve(kMaxInt); },
     "key cache: expected at most 281474976710656 bytes, got [2, 3, 9223372036854775807, 4] of "
     "float32"},
    {"less than nothing reserved", [](KvCacheCall& c) { c.cache.reserve(-1); },
     "capacity: expected 0 or more, got -1"},
    {"truncated to more", [](KvCacheCall& c) { c.cache.truncate(6); },
     "length: expected 0 to 5 tokens, got 6"},
    {"truncated to less than nothing", [](KvCacheCall& c) { c.cache.truncate(-1); },
     "length: expected 0 to 5 tokens, got -1"},
    {"fork of more", [](KvCacheCall& c) { c.cache.fork(6); },
     "prefix_length: expected 0 to 5 tokens, got 6"},
    {"fork of less than nothing", [](KvCacheCall& c) { c.cache.fork(-7); },
     "prefix_length: expected 0 to 5 tokens, got -7"},
    {"no key", [](KvCacheCall& c) { c.key = {}; },
     "key: expected [batch, kv_heads, n, head_dim] = [2, 3, n, 4], got nothing"},
    {"no value", [](KvCacheCall& c) { c.value = {}; },
     "value: expected [batch, kv_heads, n, value_dim] = [2, 3, 3, 6], got nothing"},
    {"key of rank 3", [](KvCacheCall& c) { c.key = c.key[0]; },
     "key: expected [batch, kv_heads, n, head_dim] = [2, 3, n, 4], got [3, 3, 4]"},
    {"batch of key",
     [](KvCacheCall& c) {
       c.key = zeros(DType::kFloat32, {1, 3, 3, 4});
     },
     "key: expected [batch, kv_heads, n, head_dim] = [2, 3, n, 4], got [1, 3, 3, 4]"},
    {"heads of key",
     [](KvCacheCall& c) {
       c.key = zeros(DType::kFloat32, {2, 6, 3, 4});
     },
     "key: expected [batch, kv_heads, n, head_dim] = [2, 3, n, 4], got [2, 6, 3, 4]"},
    {"dim of key", [](KvCacheCall& c) { c.key = c.value; },
     "key: expected [batch, kv_heads, n, head_dim] = [2, 3, n, 4], got [2, 3, 3, 6]"},
    {"dim of value", [](KvCacheCall& c) { c.value = c.key; },
     "value: expected [batch, kv_heads, n, value_dim] = [2, 3, 3, 6], got [2, 3, 3, 4]"},
    {"fewer values than keys",
     [](KvCacheCall& c) {
       c.value = zeros(DType::kFloat32, {2, 3, 2, 6});
     },
     "value: expected [batch, kv_heads, n, value_dim] = [2, 3, 3, 6], got [2, 3, 2, 6]"},
    {"key of int64",
     [](KvCacheCall& c) {
       c.key = zeros(DType::kInt64, {2, 3, 3, 4});
     },
     "key: expected float32, float64, float16 or bfloat16, got int64"},
    {"value of bool",
     [](KvCacheCall& c) {
       c.value = zeros(DType::kBool, {2, 3, 3, 6});
     },
     "value: expected float32, float64, float16 or bfloat16, got bool"},
    {"key without data",
     [](KvCacheCall& c) {
       c.key = TensorView(nullptr, DType::kFloat32, {2, 3, 3, 4}, {36, 12, 4, 1});
     },
     "key: expected data for shape [2, 3, 3, 4], got a null pointer"},
    {"value beyond memory",
     [](KvCacheCall& c) {
       c.value = TensorView(c.value.data(), DType::kFloat32, {2, 3, 3, 6}, {kMaxInt, 18, 6, 1});
     },
     "value: expected strides that stay within memory, got [9223372036854775807, 18, 6, 1] for "
     "shape [2, 3, 3, 6]"},
    {"more dims to rotate than there are", [](KvCacheCall& c) { c.rotary = Rotary{.dims = 6}; },
     "rotary: expected dims from 0 (all) to head_dim = 4, got 6"},
    {"odd dims to rotate", [](KvCacheCall& c) { c.rotary = Rotary{.dims = 3}; },
     "rotary: expected an even number of dims to rotate, got 3"},
};

class KvCacheErrors : public testing::TestWithParam<Bad<KvCacheCall>> {};

TEST_P(KvCacheErrors, Message) {
  KvCacheCall call;
  EXPECT_EQ(message_of([&] {
              GetParam().spoil(call);
              call.append();
            }),
            GetParam().message);
  EXPECT_EQ(call.cache.length(), 5);
  expect_equal(call.cache.key(), Tensor(DType::kFloat32, {2, 3, 5, 4}));
  expect_equal(call.cache.value(), Tensor(DType::kFloat32, {2, 3, 5, 6}));
}

INSTANTIATE_TEST_SUITE_P(All, KvCacheErrors, testing::ValuesIn(kBadKvCacheCalls),
                         name_of_bad<KvCacheCall>);

}  // namespace
}  // namespace fovea::test
