// SPDX-License-Identifier: Apache-2.0
//
// Every mask rule in the engine, alone and combined with every other, under every alignment, over
// several blocks of keys.

#include "fovea/mask.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Blocks of 512, 512 and 76 keys; panels with full and with partly filled vectors.
constexpr ProblemShape kMaskShape{2, 4, 2, 53, 1100};

Tensor random_bools(const Shape& shape, double share, std::uint64_t seed) {
  RandomState random(seed);
  Tensor bools(DType::kBool, shape);
  for (bool& one : bools.span<bool>()) one = random.rand() < share;
  return bools;
}

/// Returns ids in [0, `count`). Sorted ids make documents contiguous ranges of keys.
Tensor random_ids(const Shape& shape, std::int64_t count, bool sorted, std::uint64_t seed) {
  Tensor ids = RandomState(seed).randint(0, count, shape);
  const std::int64_t length = shape[shape.rank() - 1];
  const auto all = ids.span<std::int64_t>();
  for (std::size_t at = 0; sorted && at < all.size(); at += static_cast<std::size_t>(length)) {
    const auto row = all.subspan(at, static_cast<std::size_t>(length));
    std::sort(row.begin(), row.end());
  }
  return ids;
}

/// Returns a mask of the pairs for which sees(query, key) holds.
template <class Sees>
Mask dense_of(const Sees& sees) {
  Tensor open(DType::kBool, {kMaskShape.q_len, kMaskShape.kv_len});
  for_each_index(open.shape(), [&](const Index& at) { open.at<bool>(at) = sees(at[0], at[1]); });
  return dense(std::move(open));
}

struct Rule {
  std::string name;
  Mask mask;
};

std::vector<Rule> rules() {
  const std::int64_t q_len = kMaskShape.q_len;
  const std::int64_t kv_len = kMaskShape.kv_len;
  const std::vector<Mask> masks{
      causal(),
      window(30, 5),
      window(-1, 3),
      window(600, -1),
      window(0, 0),
      prefix(513),
      key_lengths({kv_len, 600}),
      documents(random_ids({q_len}, 9, true, 1), random_ids({kv_len}, 9, true, 2)),
      documents(random_ids({2, q_len}, 4, false, 3), random_ids({2, kv_len}, 4, false, 4)),
      dense(random_bools({2, 4, q_len, kv_len}, 0.5, 5)),
      dense(random_bools({q_len, kv_len}, 0.003, 6)),
      dense(random_bools({1, 4, 1, kv_len}, 0.9, 7)),
      dense(random_bools({q_len, 1}, 0.5, 8)),
      // The masks from here on are not tested in pairs.
      prefix(0),
      prefix(1),
      prefix(5000),
      window(-1, -1),
      key_lengths({0, 7}),
      key_lengths({512}),
      dense(random_bools({kv_len}, 0.0, 9)),
      dense(random_bools({2, 1, 1, 1}, 1.0, 10)),
      // Visible keys in one run, in two, and in many; a query without any between others.
      dense_of([](std::int64_t q, std::int64_t k) { return k <= 10 * q; }),
      dense_of([](std::int64_t q, std::int64_t k) { return k > 9 * q + 300 && k < 11 * q + 560; }),
      dense_of([](std::int64_t q, std::int64_t k) { return k < 4 || (k >= 500 && k < 500 + q); }),
      dense_of([](std::int64_t q, std::int64_t k) { return q != 20 && k / 30 % 3 == q / 9 % 3; }),
      dense_of([](std::int64_t q, std::int64_t k) { return k >= 1090 && k < 1096 + q % 5; }),
  };
  std::vector<Rule> named;
  for (const Mask& mask : masks) {
    named.push_back({"rule " + std::to_string(named.size()) + ", " + mask.to_string(), mask});
  }
  return named;
}
constexpr std::size_t kInPairs = 13;

std::vector<Alignment> mask_alignments() {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  return {Alignment::bottom_right(),       Alignment::top_left(),
          Alignment::offset(517),          Alignment::offsets({-30, 1000}),
          Alignment::offsets({1099, -52}), Alignment::offset(-2000),
          Alignment::offset(kHuge),        Alignment::offset(-kHuge)};
}

class AttentionMask : public testing::Test {
 protected:
  void check(const Mask& mask, const Alignment& alignment, int rows) {
    expect_exact(problem_.inputs(), {.mask = mask, .alignment = alignment},
                 some_rows(kMaskShape, rows, seed_++));
  }

  RandomProblem problem_ = stored_problem(kMaskShape, 5, 3);
  std::uint64_t seed_ = 1;
};

TEST_F(AttentionMask, EveryRuleUnderEveryAlignment) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    int number = 0;
    for (const Alignment& alignment : mask_alignments()) {
      SCOPED_TRACE(testing::Message() << "alignment " << number++);
      check(rule.mask, alignment, 30);
    }
  }
}

TEST_F(AttentionMask, EveryPairOfRules) {
  const std::vector<Rule> all = rules();
  const std::vector<Alignment> places = mask_alignments();
  std::size_t turn = 0;
  for (std::size_t a = 0; a < kInPairs; ++a) {
    for (std::size_t b = a; b < kInPairs; ++b) {
      SCOPED_TRACE(all[a].name + " with " + all[b].name);
      check(all[a].mask & all[b].mask, places[turn++ % 5], 40);
      check(all[b].mask | all[a].mask, places[turn++ % 5], 40);
    }
  }
}

TEST_F(AttentionMask, NestedRules) {
  const Mask documents_of_pairs =
      documents(random_ids({53}, 5, true, 11), random_ids({1100}, 5, true, 12));
  const Mask deep =
      (causal() | prefix(64)) & (window(700, 20) | documents_of_pairs) & key_lengths({1090, 77});
  Mask bands = window(2, 2);
  for (std::int64_t n = 1; n < 20; ++n) bands = bands | (prefix(40 * n) & window(3 * n, 0));
  for (const Alignment& alignment : mask_alignments()) {
    check(deep, alignment, 30);
    check(bands, alignment, 30);
  }
}

TEST_F(AttentionMask, RangesWithEveryBoundAroundBlockEdges) {
  const RandomProblem p = stored_problem({1, 1, 1, 2, 1100}, 5, 3);
  for (const std::int64_t bound : {512, 1024, 1100}) {
    for (std::int64_t key = bound - 20; key < bound + 3; ++key) {
      for (const Mask& mask : {window(0, 0), window(9, 0), window(0, 9), causal()}) {
        SCOPED_TRACE(testing::Message() << mask.to_string() << " at " << key);
        expect_exact(p.inputs(), {.mask = mask, .alignment = Alignment::offset(key)});
      }
    }
  }
}

/// Checks every row, with diagonals that cross panels and blocks in every way.
TEST_F(AttentionMask, DiagonalsThroughEveryRowOfPanelsAndBlocks) {
  const ProblemShape shape{1, 1, 1, 150, 200};
  // With these dimensions, blocks have 64 keys, or 128 in the kernels for bfloat16 pairs.
  const RandomProblem p = stored_problem(shape, 256, 256);
  for (const Mask& mask : {causal(), window(40, 0), window(3, 60)}) {
    for (const Alignment& alignment :
         {Alignment::bottom_right(), Alignment::top_left(), Alignment::offset(-70)}) {
      expect_exact(p.inputs(), {.mask = mask, .alignment = alignment});
    }
  }
}

/// For each key, a dense mask with a single true element: one row sees this key, the others none.
TEST_F(AttentionMask, SingleVisibleKey) {
  const ProblemShape shape{1, 1, 1, 50, 70};
  const RandomProblem p = stored_problem(shape, 3, 9);
  for (std::int64_t key = 0; key < shape.kv_len; ++key) {
    const std::int64_t row = (key * 7) % shape.q_len;
    Tensor one(DType::kBool, {shape.q_len, shape.kv_len});
    one.at<bool>({row, key}) = true;
    const Forward found = forward(p.inputs(), {.mask = dense(one)});
    for (std::int64_t i = 0; i < shape.q_len; ++i) {
      const bool sees = i == row;
      EXPECT_EQ(std::isfinite(found.lse.value({0, 0, i})), sees) << i << ", key " << key;
      for (std::int64_t c = 0; c < 9; ++c) {
        const double expected = sees ? p.value.value({0, 0, key, c}) : 0.0;
        EXPECT_EQ(found.context.value({0, 0, i, c}), expected) << i << ", key " << key;
      }
    }
  }
}

TEST_F(AttentionMask, CausalMatchesTheDocumentedMatrices) {
  // With equal scores the context is the mean of the visible values; one-hot values
  // identify these.
  const auto context_of = [](std::int64_t q_len, std::int64_t kv_len) {
    const Tensor query(storage(), {1, 1, q_len, 1});
    const Tensor key(storage(), {1, 1, kv_len, 1});
    Tensor value(storage(), {1, 1, kv_len, kv_len});
    for (std::int64_t j = 0; j < kv_len; ++j) set_value(value, {0, 0, j, j}, 1.0);
    const Forward found = forward({query, key, value}, {.mask = causal()});
    std::string rows;
    for_each_index({q_len, kv_len}, [&](const Index& at) {
      rows += found.context.value({0, 0, at[0], at[1]}) > 0.0 ? '1' : '0';
    });
    return rows;
  };
  EXPECT_EQ(context_of(2, 5), "1111011111");
  EXPECT_EQ(context_of(5, 2), "0000001011");
}

}  // namespace
}  // namespace fovea::test
