// SPDX-License-Identifier: Apache-2.0
//
// Mask rules drawn as matrices, their combinations and alignment; ALiBi slopes and T5 buckets.

#include "fovea/mask.h"

#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/error.h"

#include "support/message_of.h"
#include "support/tensors.h"

namespace fovea {
namespace {

using test::ids;
using test::message_of;

using testing::ElementsAre;

/// Returns the mask of one batch item and head as rows of 0 and 1.
std::vector<std::string> draw(const AttentionOptions& options, const ProblemShape& shape,
                              std::int64_t batch = 0, std::int64_t head = 0) {
  validate(options, shape);
  const std::int64_t offset = query_offset(options, shape, batch);
  std::vector<std::string> rows;
  for (std::int64_t i = 0; i < shape.q_len; ++i) {
    rows.emplace_back();
    for (std::int64_t j = 0; j < shape.kv_len; ++j) {
      rows.back() += options.mask.visible({batch, head, i, j, offset}) ? '1' : '0';
    }
  }
  return rows;
}

std::vector<std::string> draw(const Mask& mask, std::int64_t q_len, std::int64_t kv_len,
                              const Alignment& alignment = {}) {
  return draw(AttentionOptions{.mask = mask, .alignment = alignment}, {1, 1, 1, q_len, kv_len});
}

TEST(Mask, CausalIsBottomRightAligned) {
  EXPECT_THAT(draw(causal(), 2, 5), ElementsAre("11110", "11111"));
  EXPECT_THAT(draw(causal(), 5, 2), ElementsAre("00", "00", "00", "10", "11"));
}

TEST(Mask, CausalTopLeftAndByOffset) {
  EXPECT_THAT(draw(causal(), 2, 5, Alignment::top_left()), ElementsAre("10000", "11000"));
  EXPECT_THAT(draw(causal(), 2, 5, Alignment::offset(-1)), ElementsAre("00000", "10000"));
  EXPECT_THAT(draw(causal(), 2, 5, Alignment::offset(2)), ElementsAre("11100", "11110"));
}

TEST(Mask, Window) {
  EXPECT_THAT(draw(window(1, 0), 4, 4), ElementsAre("1000", "1100", "0110", "0011"));
  EXPECT_THAT(draw(window(0, 1), 4, 4), ElementsAre("1100", "0110", "0011", "0001"));
  EXPECT_THAT(draw(window(-1, 0), 3, 3), ElementsAre("100", "110", "111"));
  EXPECT_THAT(draw(window(0, -1), 3, 3), ElementsAre("111", "011", "001"));
  EXPECT_THAT(draw(window(0, 0), 2, 4), ElementsAre("0010", "0001"));
}

TEST(Mask, PrefixLanguageModel) {
  EXPECT_THAT(draw(prefix(2), 2, 4), ElementsAre("1100", "1100"));
  EXPECT_THAT(draw(causal() | prefix(2), 4, 4), ElementsAre("1100", "1100", "1110", "1111"));
}

TEST(Mask, Documents) {
  EXPECT_THAT(draw(documents(ids({0, 0, 1})), 3, 3), ElementsAre("110", "110", "001"));
  EXPECT_THAT(draw(documents(ids({7, 8}), ids({8, 8, 7})), 2, 3), ElementsAre("001", "110"));
  const Tensor per_item = Tensor::from<std::int64_t>({2, 2}, std::vector<std::int64_t>{0, 0, 0, 1});
  const AttentionOptions options{.mask = documents(per_item)};
  EXPECT_THAT(draw(options, {2, 1, 1, 2, 2}, 0), ElementsAre("11", "11"));
  EXPECT_THAT(draw(options, {2, 1, 1, 2, 2}, 1), ElementsAre("10", "01"));
}

TEST(Mask, KeyLengthsShortenAndAlign) {
  const AttentionOptions options{.mask = key_lengths({2, 4}) & causal()};
  EXPECT_THAT(draw(options, {2, 1, 1, 2, 4}, 0), ElementsAre("1000", "1100"));
  EXPECT_THAT(draw(options, {2, 1, 1, 2, 4}, 1), ElementsAre("1110", "1111"));
  // Within `|`, a length is an ordinary rule: the alignment counts from the full kv_len.
  EXPECT_THAT(draw(causal() | key_lengths({1}), 2, 3), ElementsAre("110", "111"));
}

TEST(Mask, DenseBroadcasts) {
  const Tensor row = Tensor::from<bool>({3}, std::span<const bool>(std::array{true, false, true}));
  EXPECT_THAT(draw(dense(row), 2, 3), ElementsAre("101", "101"));
  const Tensor column = Tensor::from<bool>({2, 1}, std::span<const bool>(std::array{true, false}));
  EXPECT_THAT(draw(dense(column), 2, 3), ElementsAre("111", "000"));
  Tensor per_head(DType::kBool, {2, 1, 1});
  per_head.at<bool>({1, 0, 0}) = true;
  const AttentionOptions options{.mask = dense(per_head)};
  EXPECT_THAT(draw(options, {1, 2, 2, 1, 2}, 0, 0), ElementsAre("00"));
  EXPECT_THAT(draw(options, {1, 2, 2, 1, 2}, 0, 1), ElementsAre("11"));
}

TEST(Mask, CombinationsMatchTheirParts) {
  const std::vector<Mask> rules = {
      Mask(), causal(), window(1, 1), prefix(2), documents(ids({0, 1, 0, 1})), key_lengths({3})};
  for (const Mask& a : rules) {
    for (const Mask& b : rules) {
      for (std::int64_t i = 0; i < 4; ++i) {
        for (std::int64_t j = 0; j < 4; ++j) {
          const ScorePosition at{0, 0, i, j, 0};
          EXPECT_EQ((a & b).visible(at), a.visible(at) && b.visible(at)) << (a & b).to_string();
          EXPECT_EQ((a | b).visible(at), a.visible(at) || b.visible(at)) << (a | b).to_string();
        }
      }
    }
  }
}

TEST(Mask, PrintsAsAnExpression) {
  EXPECT_EQ(Mask().to_string(), "all");
  EXPECT_EQ((causal() & window(3, 0)).to_string(), "causal() & window(3, 0)");
  EXPECT_EQ(((causal() | prefix(2)) & key_lengths({1, 2})).to_string(),
            "(causal() | prefix(2)) & key_lengths(1, 2)");
  EXPECT_TRUE((Mask() & Mask()).allows_all());
  EXPECT_TRUE((Mask() | causal()).allows_all());
}

TEST(Mask, LimitsTheNumberOfRules) {
  Mask mask = prefix(1);
  for (int i = 1; i < kMaxMaskRules; ++i) mask = mask | prefix(1);
  EXPECT_TRUE(mask.visible({0, 0, 0, 0, 0}));
  EXPECT_THROW(mask | prefix(1), InvalidArgument);
  EXPECT_THROW(causal() & mask, InvalidArgument);
  EXPECT_TRUE((mask & Mask()).visible({0, 0, 0, 0, 0}));  // an empty mask adds no rule
}

TEST(Mask, WideWindowsDoNotOverflow) {
  constexpr std::int64_t kWidest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(draw(window(kWidest, 0), 2, 2), ElementsAre("10", "11"));
  EXPECT_THAT(draw(window(0, kWidest), 2, 2), ElementsAre("11", "01"));
}

TEST(Mask, Errors) {
  const ProblemShape shape{2, 1, 1, 3, 4};
  const auto check = [&](const Mask& mask) { return message_of([&] { mask.validate(shape); }); };
  EXPECT_EQ(message_of([] { window(-2, 0); }),
            "window: expected left and right of 0 or more, or -1 for unbounded, got (-2, 0)");
  EXPECT_EQ(message_of([] { prefix(-1); }), "prefix: expected 0 or more keys, got -1");
  EXPECT_EQ(message_of([] { key_lengths({}); }),
            "key_lengths: expected at least 1 length, got none");
  EXPECT_EQ(check(key_lengths({1, 2, 3})),
            "key_lengths: expected 1 length or one per batch item (2), got 3");
  EXPECT_EQ(check(key_lengths({5})), "key_lengths: expected lengths from 0 to kv_len = 4, got 5");
  EXPECT_EQ(check(causal() & documents(ids({1, 2, 3}))),
            "documents: expected key ids of shape [4] or [2, 4], got [3]");
  EXPECT_EQ(message_of([] { documents(Tensor(DType::kFloat64, {2})); }),
            "documents: expected int64 ids, got float64");
  EXPECT_EQ(check(dense(Tensor(DType::kBool, {5}))),
            "dense mask: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = "
            "[2, 1, 3, 4], got [5]");
  EXPECT_EQ(message_of([] { dense(Tensor(DType::kFloat64, {5})); }),
            "dense mask: expected bool, true where visible, got float64; additive numbers are a "
            "bias (ScoreOptions::bias)");
}

TEST(Alibi, PaperSlopes) {
  EXPECT_THAT(default_alibi_slopes(8),
              ElementsAre(0.5, 0.25, 0.125, 0.0625, 1 / 32., 1 / 64., 1 / 128., 1 / 256.));
  // 12 heads: the eight slopes above, then every other slope of 16 heads.
  const auto slopes = default_alibi_slopes(12);
  ASSERT_EQ(slopes.size(), 12U);
  EXPECT_EQ(slopes[7], 1 / 256.);
  EXPECT_NEAR(slopes[8], std::exp2(-0.5), 1e-15);
  EXPECT_NEAR(slopes[9], std::exp2(-1.5), 1e-15);
  EXPECT_NEAR(slopes[11], std::exp2(-3.5), 1e-15);
  EXPECT_THAT(default_alibi_slopes(1), ElementsAre(1 / 256.));
  EXPECT_THAT(default_alibi_slopes(0), ElementsAre());
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_NEAR(default_alibi_slope(0, kMost), 1.0, 1e-15);
  EXPECT_EQ(message_of([] { default_alibi_slopes(-1); }), "heads: expected 0 or more, got -1");
  for (const std::int64_t head : {-1, 4}) {
    EXPECT_EQ(message_of([&] { default_alibi_slope(head, 4); }),
              fmt::format("head: expected 0 or more and less than heads = 4, got {}", head));
  }
}

TEST(RelativeTable, BucketsOfT5) {
  // Values of T5Attention._relative_position_bucket in transformers 4, with 32 buckets and
  // max_distance 128.
  const Tensor table(DType::kFloat64, {32, 1});
  const RelativeTable both{table, true, 128};
  const RelativeTable causal_only{table, false, 128};
  const std::vector<std::pair<std::int64_t, std::int64_t>> bidirectional = {
      {0, 0},    {-1, 1},   {1, 17},  {-7, 7},   {7, 23},   {-8, 8},   {-11, 8},   {-12, 9},
      {-16, 10}, {-23, 11}, {32, 28}, {-64, 14}, {-90, 14}, {-91, 15}, {-128, 15}, {5000, 31}};
  for (const auto& [position, bucket] : bidirectional) {
    EXPECT_EQ(relative_bucket(position, both), bucket) << position;
  }
  const std::vector<std::pair<std::int64_t, std::int64_t>> unidirectional = {
      {0, 0},    {5, 0},    {-1, 1},   {-15, 15},  {-16, 16},  {-18, 16},
      {-19, 17}, {-32, 21}, {-64, 26}, {-127, 31}, {-5000, 31}};
  for (const auto& [position, bucket] : unidirectional) {
    EXPECT_EQ(relative_bucket(position, causal_only), bucket) << position;
  }
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(relative_bucket(kLeast, both), 15);
  EXPECT_EQ(relative_bucket(kLeast, causal_only), 31);
}

TEST(RelativeTable, Errors) {
  const ProblemShape shape{1, 2, 2, 3, 3};
  const auto check = [&](const RelativeTable& relative) {
    return message_of([&] { validate({.score = {.relative = relative}}, shape); });
  };
  const Tensor table(DType::kFloat64, {8, 2});
  const Tensor wide(DType::kFloat64, {8, 3});
  const Tensor short_table(DType::kFloat64, {2, 2});
  EXPECT_EQ(check({table, true, 128}), "no error");
  EXPECT_EQ(check({wide, true, 128}),
            "relative: expected a table [buckets, q_heads] = [4 or more, 2], got [8, 3]");
  EXPECT_EQ(check({short_table, true, 128}),
            "relative: expected a table [buckets, q_heads] = [4 or more, 2], got [2, 2]");
  EXPECT_EQ(check({short_table, false, 128}), "no error");
  EXPECT_EQ(check({table, false, 4}),
            "relative: expected max_distance above 4 (the distances with a bucket of their own), "
            "got 4");
}

}  // namespace
}  // namespace fovea
