// SPDX-License-Identifier: Apache-2.0
//
// Head summaries, against means of the oracle's weights and against closed forms.

#include "fovea/heads.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "reference/lenses.h"
#include "support/forward.h"
#include "support/message_of.h"
#include "support/option_sets.h"
#include "support/random_problem.h"
#include "support/visible.h"

namespace fovea::test {
namespace {

constexpr const char* kNames[] = {"entropy",  "even_entropy", "maximum",
                                  "distance", "first_key",    "previous_key",
                                  "own_key",  "next_key",     "block_diagonal"};
enum Number { kEntropy, kEven, kMaximum, kDistance, kFirst, kPrevious, kOwn, kNext, kBlock, kAll };

/// Buffers for all summaries.
struct Heads {
  explicit Heads(const ProblemShape& shape, DType type = DType::kFloat32) {
    for (int number = 0; number < kAll; ++number) {
      numbers.emplace_back(type, Shape{shape.batch, shape.q_heads});
      fill(numbers.back(), -77.0);
    }
  }
  HeadSummary to(std::int64_t blocks = 16) {
    return {.entropy = numbers[kEntropy],
            .even_entropy = numbers[kEven],
            .maximum = numbers[kMaximum],
            .mean_distance = numbers[kDistance],
            .first_key = numbers[kFirst],
            .previous_key = numbers[kPrevious],
            .own_key = numbers[kOwn],
            .next_key = numbers[kNext],
            .block_diagonal = numbers[kBlock],
            .blocks = blocks};
  }
  double value(int number, std::int64_t batch, std::int64_t head) const {
    return numbers[static_cast<std::size_t>(number)].value({batch, head});
  }
  std::vector<Tensor> numbers;
};

Heads heads_of(const reference::Inputs& in, const AttentionOptions& options,
               std::int64_t blocks = 16) {
  Heads found(shape_of(in), lse_type(in.query.dtype()));
  attention_heads({in.query, in.key}, options, found.to(blocks));
  return found;
}

void expect_same_bits(const Heads& a, const Heads& b) {
  for (std::size_t i = 0; i < kAll; ++i) EXPECT_TRUE(same_bits(a.numbers[i], b.numbers[i])) << i;
}

/// The means by definition, from the oracle's weights, for the first and the last head.
class HeadsCheck {
 public:
  HeadsCheck(const reference::Inputs& in, const AttentionOptions& options)
      : shape_(shape_of(in)), options_(options) {
    for (std::int64_t q = 0; q < shape_.q_len; ++q) rows_.push_back({0, 0, q});
    for (std::int64_t q = 0; q < shape_.q_len; ++q) {
      rows_.push_back({shape_.batch - 1, shape_.q_heads - 1, q});
    }
    exact_ = reference::attention_rows(in, options, rows_);
    const double scores =
        2 * size_of_products(in, options, rows_) + size_of_biases(shape_, options);
    const double keys = static_cast<double>(std::max<std::int64_t>(shape_.kv_len, 1));
    rounding_ = in.query.dtype() == DType::kFloat64
                    ? 1e-12
                    : kRounding * (8 + 4 * scores + 2 * std::sqrt(keys));
  }

  void expect(const Heads& found, std::int64_t blocks) const {
    expect_head(found, 0, blocks);
    expect_head(found, shape_.q_len, blocks);
  }

 private:
  /// Checks the head whose rows start at index `begin`.
  void expect_head(const Heads& found, std::int64_t begin, std::int64_t blocks) const {
    double sums[kAll] = {}, allowed[kAll] = {};
    double rows = 0.0;
    const std::vector<std::int64_t> block = blocks_of_keys(blocks);
    for (std::int64_t q = 0; q < shape_.q_len; ++q) {
      const auto number = static_cast<std::size_t>(begin + q);
      const auto weights =
          exact_.weights.span<double>().subspan(number * static_cast<std::size_t>(shape_.kv_len),
                                                static_cast<std::size_t>(shape_.kv_len));
      const ScorePosition& place = exact_.places[number];
      const reference::RowNumbers row = reference::row_numbers(weights, place);
      if (std::isnan(row.mean_distance) && !std::isnan(row.entropy)) continue;  // sees no key
      ++rows;
      sums[kEntropy] += row.entropy;
      sums[kMaximum] += row.maximum;
      sums[kDistance] += row.mean_distance;
      sums[kFirst] += row.first_key;
      allowed[kEntropy] += rounding_ * (2 + row.entropy);
      allowed[kDistance] += rounding_ * 2 * std::sqrt(row.distance_variance) +
                            kRounding * std::abs(row.mean_distance);
      const std::int64_t at = q + place.offset;
      for (std::int64_t j = 0; j < shape_.kv_len; ++j) {
        const double weight = weights[static_cast<std::size_t>(j)];
        if (j == at - 1) sums[kPrevious] += weight;
        if (j == at) sums[kOwn] += weight;
        if (j == at + 1) sums[kNext] += weight;
        if (at >= 0 && at < shape_.kv_len &&
            block[static_cast<std::size_t>(j)] == block[static_cast<std::size_t>(at)]) {
          sums[kBlock] += weight;
        }
      }
      std::int64_t keys = 0;
      ScorePosition pair = place;
      for (pair.key = 0; pair.key < shape_.kv_len; ++pair.key) {
        keys += is_visible(options_, pair) ? 1 : 0;
      }
      sums[kEven] += std::log(static_cast<double>(keys));
    }
    const auto& [batch, head, query] = rows_[static_cast<std::size_t>(begin)];
    for (int number = 0; number < kAll; ++number) {
      const double value = found.value(number, batch, head);
      const double expected = sums[number] / rows;  // NaN without rows
      SCOPED_TRACE(testing::Message() << kNames[number] << " of " << batch << ", " << head);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << value;
        continue;
      }
      EXPECT_NEAR(value, expected,
                  allowed[number] / rows + (rounding_ + kRounding) * std::abs(expected) + 1e-37);
    }
  }

  /// Returns the block of each key: the last block that begins at or before it.
  std::vector<std::int64_t> blocks_of_keys(std::int64_t blocks) const {
    std::vector<std::int64_t> found(static_cast<std::size_t>(shape_.kv_len));
    const std::int64_t count = std::min(blocks, shape_.kv_len);
    for (std::int64_t b = 0; b < count; ++b) {
      std::fill(found.begin() + b * shape_.kv_len / count, found.end(), b);
    }
    return found;
  }

  ProblemShape shape_;
  AttentionOptions options_;
  RowList rows_;
  reference::Rows exact_;
  double rounding_ = 0.0;
};

TEST(AttentionHeads, MatchTheOracle) {
  const RandomProblem p = stored_problem(kOptionShape, 16, 1);
  for (const auto& [name, options] : option_sets()) {
    SCOPED_TRACE(name);
    HeadsCheck(p.inputs(), options).expect(heads_of(p.inputs(), options, 7), 7);
  }
}

TEST(AttentionHeads, EverySizeAndAlignment) {
  const std::pair<Mask, std::int64_t> rules[] = {
      {Mask(), 1}, {causal(), 16}, {window(3, 2), 100}, {causal() & window(20, 0), 3}, {Mask(), 5}};
  std::size_t number = 0;
  const ProblemShape shapes[] = {{1, 1, 1, 1, 1},      {2, 2, 1, 1, 90},   {1, 2, 2, 90, 1},
                                 {1, 3, 1, 70, 131},   {2, 1, 1, 131, 70}, {1, 1, 1, 513, 67},
                                 {1, 2, 1, 259, 1100}, {1, 2, 2, 300, 300}};
  const Alignment alignments[] = {
      {}, Alignment::top_left(), Alignment::offset(-40), Alignment::offset(33)};
  for (const ProblemShape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.q_len << " x " << shape.kv_len);
    const RandomProblem p = stored_problem(shape, 8, 1);
    for (const Alignment& alignment : alignments) {
      const auto& [mask, blocks] = rules[number++ % std::size(rules)];
      SCOPED_TRACE(mask.to_string());
      const AttentionOptions options{.mask = mask, .alignment = alignment};
      HeadsCheck(p.inputs(), options).expect(heads_of(p.inputs(), options, blocks), blocks);
    }
  }
}

TEST(AttentionHeads, PositionsFollowEachItemsOffset) {
  const RandomProblem p = stored_problem({3, 2, 1, 80, 200}, 8, 1);
  for (const AttentionOptions& options :
       {AttentionOptions{.mask = causal() & key_lengths({200, 90, 13})},
        AttentionOptions{.mask = causal(), .alignment = Alignment::offsets({0, 120, -70})}}) {
    HeadsCheck(p.inputs(), options).expect(heads_of(p.inputs(), options), 16);
  }
}

TEST(AttentionHeads, Float64) {
  const RandomProblem p({2, 4, 2, 45, 70}, 8, 1);
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.mask = causal(), .alignment = Alignment::offset(-9)},
        AttentionOptions{.mask = window(6, 1), .score = {.sinks = {0, 1, 2, 3}}}}) {
    HeadsCheck(p.inputs(), options).expect(heads_of(p.inputs(), options, 9), 9);
  }
}

TEST(AttentionHeads, ThreadCountDoesNotChangeTheBits) {
  const RandomProblem p = stored_problem({1, 3, 1, 700, 900}, 16, 1);
  AttentionOptions options{.mask = causal(), .score = {.alibi = Alibi{}}};
  options.execution.threads = 1;
  const Heads one = heads_of(p.inputs(), options);
  for (const int threads : {2, 5}) {
    options.execution.threads = threads;
    expect_same_bits(heads_of(p.inputs(), options), one);
  }
}

TEST(AttentionHeads, OmittedOutputsChangeNothing) {
  const RandomProblem p = stored_problem({2, 3, 1, 100, 100}, 8, 1);
  const AttentionOptions options{.mask = causal()};
  const Heads all = heads_of(p.inputs(), options);
  attention_heads({p.query, p.key}, options, {});
  for (std::size_t only = 0; only < kAll; ++only) {
    Heads alone(shape_of(p.inputs()));
    const std::vector<MutableTensorView> views(alone.numbers.begin(), alone.numbers.end());
    const auto view = [&](std::size_t number) {
      return number == only ? views[number] : MutableTensorView();
    };
    attention_heads({p.query, p.key}, options,
                    {.entropy = view(kEntropy),
                     .even_entropy = view(kEven),
                     .maximum = view(kMaximum),
                     .mean_distance = view(kDistance),
                     .first_key = view(kFirst),
                     .previous_key = view(kPrevious),
                     .own_key = view(kOwn),
                     .next_key = view(kNext),
                     .block_diagonal = view(kBlock)});
    EXPECT_TRUE(same_bits(alone.numbers[only], all.numbers[only])) << kNames[only];
  }
}

TEST(AttentionHeads, OutputsMayHaveAnyStrides) {
  const RandomProblem p = stored_problem({2, 3, 1, 50, 50}, 8, 1);
  const Heads right = heads_of(p.inputs(), {});
  Tensor wide(DType::kFloat32, {3, 2});
  attention_heads({p.query, p.key}, {}, {.own_key = wide.view().transposed(0, 1)});
  for_each_index({2, 3}, [&](const Index& at) {
    EXPECT_EQ(wide.value({at[1], at[0]}), right.value(kOwn, at[0], at[1]));
  });
}

TEST(AttentionHeads, UniformWeights) {
  constexpr std::int64_t kLength = 600;
  const Tensor zeros = stored(Tensor(DType::kFloat64, {1, 1, kLength, 4}));
  const Heads found = heads_of({zeros, zeros, zeros}, {.mask = causal()}, 4);
  double harmonic = 0.0, entropy = 0.0, blocks = 0.0;
  for (std::int64_t i = 0; i < kLength; ++i) {
    const double keys = static_cast<double>(i + 1);
    harmonic += 1 / keys;
    entropy += std::log(keys);
    blocks += static_cast<double>(i % 150 + 1) / keys;
  }
  const double rows = kLength;
  EXPECT_NEAR(found.value(kEntropy, 0, 0), entropy / rows, 1e-5);
  EXPECT_NEAR(found.value(kEven, 0, 0), entropy / rows, 1e-5);
  EXPECT_NEAR(found.value(kMaximum, 0, 0), harmonic / rows, 1e-6);
  EXPECT_NEAR(found.value(kDistance, 0, 0), (rows - 1) / 4, 1e-3);
  EXPECT_NEAR(found.value(kFirst, 0, 0), harmonic / rows, 1e-6);
  EXPECT_NEAR(found.value(kPrevious, 0, 0), (harmonic - 1) / rows, 1e-6);
  EXPECT_NEAR(found.value(kOwn, 0, 0), harmonic / rows, 1e-6);
  EXPECT_EQ(found.value(kNext, 0, 0), 0.0);
  EXPECT_NEAR(found.value(kBlock, 0, 0), blocks / rows, 1e-5);
}

TEST(AttentionHeads, HeadsThatAttendToANeighbour) {
  constexpr std::int64_t kLength = 200;
  const Tensor zeros = stored(Tensor(DType::kFloat64, {1, 2, kLength, 4}));
  for (const std::int64_t shift : {-1, 0, 1}) {
    Tensor bias(DType::kFloat32, {kLength, kLength});
    fill(bias, -50.0);
    for (std::int64_t i = 0; i < kLength; ++i) {
      set_value(bias, {i, std::clamp<std::int64_t>(i + shift, 0, kLength - 1)}, 0.0);
    }
    const Heads found = heads_of({zeros, zeros, zeros}, {.score = {.bias = std::move(bias)}});
    const int number = shift < 0 ? kPrevious : shift == 0 ? kOwn : kNext;
    // The query at the end has no such neighbour and attends to itself.
    EXPECT_NEAR(found.value(number, 0, 1), shift == 0 ? 1.0 : 1 - 1.0 / kLength, 1e-5);
    EXPECT_NEAR(found.value(kDistance, 0, 1),
                shift == 0 ? 0.0 : -0.995 * static_cast<double>(shift), 1e-5);
  }
}

TEST(AttentionHeads, NanRowMakesItsHeadNan) {
  for (const bool exact : {false, true}) {
    RandomProblem p =
        exact ? RandomProblem({1, 3, 3, 70, 90}, 8, 1) : stored_problem({1, 3, 3, 70, 90}, 8, 1);
    set_value(p.query, {0, 1, 33, 2}, std::nan(""));
    const Heads found = heads_of(p.inputs(), {.mask = causal()});
    for (int number = 0; number < kAll; ++number) {
      for (std::int64_t head = 0; head < 3; ++head) {
        EXPECT_EQ(std::isnan(found.value(number, 0, head)), head == 1) << kNames[number];
      }
    }
  }
}

TEST(AttentionHeads, FullyMaskedHeadsAreNan) {
  Tensor open(DType::kBool, {1, 2, 1, 1});
  set_value(open, {0, 1, 0, 0}, 1.0);
  const Mask mask = dense(std::move(open));
  for (const bool exact : {false, true}) {
    const RandomProblem p =
        exact ? RandomProblem({1, 2, 1, 30, 40}, 8, 1) : stored_problem({1, 2, 1, 30, 40}, 8, 1);
    for (const std::vector<double>& sinks : {std::vector<double>{}, std::vector<double>{1, 1}}) {
      const Heads found = heads_of(p.inputs(), {.mask = mask, .score = {.sinks = sinks}});
      for (int number = 0; number < kAll; ++number) {
        EXPECT_TRUE(std::isnan(found.value(number, 0, 0))) << kNames[number];
        EXPECT_FALSE(std::isnan(found.value(number, 0, 1))) << kNames[number];
      }
    }
    for (const ProblemShape& shape : {ProblemShape{1, 1, 1, 0, 5}, ProblemShape{1, 1, 1, 5, 0}}) {
      const RandomProblem empty(shape, 4, 1);
      EXPECT_TRUE(std::isnan(heads_of(empty.inputs(), {}).value(kOwn, 0, 0)));
    }
  }
}

TEST(AttentionHeads, RowsWithoutAWeightAreNotCounted) {
  // A sink takes everything from head 0, and from most rows of head 1: ALiBi raises later queries'
  // scores of key 0.
  for (const bool exact : {false, true}) {
    const RandomProblem p =
        exact ? RandomProblem({1, 2, 2, 30, 1}, 8, 1) : stored_problem({1, 2, 2, 30, 1}, 8, 1);
    const AttentionOptions options{.score = {.alibi = Alibi{{0, -1e4}}, .sinks = {1e5, 2.55e5}},
                                   .alignment = Alignment::top_left()};
    const Heads found = heads_of(p.inputs(), options);
    for (int number = 0; number < kAll; ++number) {
      EXPECT_TRUE(std::isnan(found.value(number, 0, 0))) << kNames[number];
    }
    EXPECT_NEAR(found.value(kDistance, 0, 1), 27.5, 1e-6);  // of the rows 26 to 29
    EXPECT_NEAR(found.value(kMaximum, 0, 1), 1.0, 1e-6);
  }
}

TEST(AttentionHeads, InfiniteNegativeBiasMasks) {
  // Rows with all scores at -inf are not counted.
  const RandomProblem p = stored_problem({1, 1, 1, 80, 80}, 8, 1);
  Tensor bias(DType::kFloat32, {80, 1});
  for (std::int64_t q = 20; q < 50; ++q) set_value(bias, {q, 0}, -INFINITY);
  const AttentionOptions options{.mask = causal(), .score = {.bias = std::move(bias)}};
  HeadsCheck(p.inputs(), options).expect(heads_of(p.inputs(), options), 16);
}

TEST(AttentionHeads, Errors) {
  const RandomProblem p = stored_problem({2, 4, 2, 6, 8}, 8, 1);
  const auto told = [&](const HeadSummary& summary, const AttentionOptions& options = {}) {
    return message_of([&] { attention_heads({p.query, p.key}, options, summary); });
  };
  Tensor good(DType::kFloat32, {2, 4}), bad(DType::kFloat32, {2, 3}),
      exact(DType::kFloat64, {2, 4});
  fill(good, -77.0);
  EXPECT_EQ(told({.own_key = bad}), "own_key: expected [batch, q_heads] = [2, 4], got [2, 3]");
  EXPECT_NE(told({.entropy = exact}).find("entropy: expected float32 for inputs of "),
            std::string::npos);
  EXPECT_EQ(told({.maximum = good, .next_key = good}),
            "next_key: expected memory of its own, got some that maximum uses");
  EXPECT_EQ(told({.block_diagonal = good, .blocks = 0}), "blocks: expected 1 or more, got 0");
  EXPECT_EQ(told({.own_key = good}, {.dropout = {.probability = 0.5}}),
            "dropout: expected none for recomputed weights, got 0.5");
  const RandomProblem packed = stored_problem({1, 4, 2, 6, 8}, 8, 1);
  Tensor other(DType::kFloat32, {1, 4});
  EXPECT_EQ(message_of([&] {
              attention_heads({packed.query, packed.key},
                              {.sequences = {.query_starts = {0, 2, 6}, .key_starts = {0, 4, 8}}},
                              {.own_key = other});
            }),
            "sequences: expected none for recomputed weights, got 2");
  for (const float value : good.span<float>()) EXPECT_EQ(value, -77.0F);
}

TEST(AttentionHeads, ProgressAndStop) {
  for (const bool exact : {false, true}) {
    const RandomProblem p =
        exact ? RandomProblem({1, 2, 1, 100, 60}, 8, 1) : stored_problem({1, 2, 1, 700, 600}, 8, 1);
    AttentionOptions options;
    std::int64_t last = -1, all = 0;
    options.execution.threads = 2;
    options.execution.progress = [&](std::int64_t done, std::int64_t total) {
      EXPECT_GT(done, last);
      EXPECT_TRUE(all == 0 || total == all);
      last = done;
      all = total;
    };
    heads_of(p.inputs(), options);
    EXPECT_GT(all, 2);
    EXPECT_EQ(last, all);
    // Stop in either pass.
    for (const std::int64_t at : {std::int64_t{0}, all - 1}) {
      std::stop_source source;
      options.execution.stop = source.get_token();
      options.execution.progress = [&](std::int64_t done, std::int64_t) {
        if (done >= at) source.request_stop();
      };
      EXPECT_THROW(heads_of(p.inputs(), options), Stopped);
    }
  }
}

}  // namespace
}  // namespace fovea::test
