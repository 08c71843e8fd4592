// SPDX-License-Identifier: Apache-2.0
//
// attention() returns a context bitwise equal to that of attention_forward, and throws the same
// errors.

#include "fovea/attention.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/message_of.h"

namespace fovea {
namespace {

Tensor heads(std::uint64_t seed, DType dtype, const Shape& shape) {
  return convert(RandomState(seed).randn(shape), dtype);
}

TEST(AttentionInOneCall, MatchesAttentionForwardBitForBit) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const Tensor query = heads(1, dtype, {2, 4, 5, 8});
    const Tensor key = heads(2, dtype, {2, 2, 7, 8});
    const Tensor value = heads(3, dtype, {2, 2, 7, 3});
    const AttentionOptions options = {.mask = causal()};
    Tensor expected(dtype, {2, 4, 5, 3});
    attention_forward(query, key, value, options, {.context = expected});
    const Tensor context = attention(query, key, value, options);
    ASSERT_EQ(context.dtype(), dtype);
    ASSERT_EQ(context.shape(), expected.shape());
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = 0; i < 5; ++i) {
          for (std::int64_t c = 0; c < 3; ++c) {
            ASSERT_EQ(context.value({b, h, i, c}), expected.value({b, h, i, c}));
          }
        }
      }
    }
  }
}

TEST(AttentionInOneCall, NoQueriesGiveAnEmptyContext) {
  const Tensor query = heads(1, DType::kFloat32, {1, 2, 0, 4});
  const Tensor key = heads(2, DType::kFloat32, {1, 2, 3, 4});
  EXPECT_EQ(attention(query, key, key).shape(), Shape({1, 2, 0, 4}));
}

TEST(AttentionInOneCall, ThrowsTheErrorsOfAttentionForward) {
  const Tensor query = heads(1, DType::kFloat32, {1, 2, 3, 4});
  const Tensor wide = heads(2, DType::kFloat32, {1, 2, 3, 5});
  Tensor context(DType::kFloat32, {1, 2, 3, 4});
  const auto forward = [&](const TensorView& q, const TensorView& k, const TensorView& v) {
    return test::message_of([&] { attention_forward(q, k, v, {}, {.context = context}); });
  };
  const auto one_call = [](const TensorView& q, const TensorView& k, const TensorView& v) {
    return test::message_of([&] { attention(q, k, v); });
  };
  EXPECT_EQ(one_call(query.view()[0], query, query), forward(query.view()[0], query, query));
  EXPECT_EQ(one_call(query, query, query.view()[0]), forward(query, query, query.view()[0]));
  EXPECT_EQ(one_call(query, wide, query), forward(query, wide, query));
}

}  // namespace
}  // namespace fovea
