// SPDX-License-Identifier: Apache-2.0
//
// Lenses of decoding against the oracle's weights, in one piece and in blocks.

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"

#include "support/blocks.h"
#include "support/forward.h"
#include "support/lenses.h"
#include "support/option_sets.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr ProblemShape kShape{2, 6, 3, 3, 700};

Seen decode(const reference::Inputs& in, const AttentionOptions& options, const LensSizes& sizes) {
  return look_through(
      [](const TensorView& query, const TensorView& key, const TensorView& value,
         const AttentionOptions& with,
         const AttentionOutputs& outputs) { attention_decode(query, key, value, with, outputs); },
      in, options, sizes);
}

TEST(AttentionDecodeLenses, AgreeWithTheOracle) {
  const RandomProblem p = stored_problem(kShape, 33, 20);
  for (const auto& [name, options] : option_sets(kShape)) {
    SCOPED_TRACE(name);
    const LensCheck check(p.inputs(), options);
    for (const LensSizes& sizes :
         {LensSizes{8, 2, 20, Pool::kSum}, LensSizes{1, 1, 33, Pool::kMean},
          LensSizes{64, 3, 7, Pool::kMax}, LensSizes{5, 3, 700, Pool::kSum}}) {
      check.expect(decode(p.inputs(), options, sizes), sizes);
    }
    if (HasFailure()) return;
  }
}

TEST(AttentionDecodeLenses, OfALongCache) {
  const RandomProblem p = stored_problem({1, 4, 2, 2, 20000}, 12, 4);
  const LensSizes sizes{64, 2, 100, Pool::kSum};
  for (const Mask& mask : {Mask(), window(12000, 0)}) {
    LensCheck(p.inputs(), {.mask = mask}).expect(decode(p.inputs(), {.mask = mask}, sizes), sizes);
  }
}

TEST(AttentionDecodeLenses, OfARowFarAway) {
  // Two keys beside each other have all of the weight, half each, 1.2 million keys away.
  constexpr std::int64_t kKeys = 1'200'000;
  RandomProblem p = stored_problem({1, 1, 1, 1, kKeys}, 2, 1);
  fill(p.key, 0.0);
  fill(p.query, 10.0);
  for (const std::int64_t key : {100, 101}) set_value(p.key, {0, 0, key, 0}, 20.0);
  const Seen seen = decode(p.inputs(), {}, {2, 1, 3, Pool::kSum});
  EXPECT_EQ(seen.maximum_key.value({0, 0, 0}), 100);
  EXPECT_FLOAT_EQ(seen.maximum.at<float>({0, 0, 0}), 0.5F);
  EXPECT_FLOAT_EQ(seen.entropy.at<float>({0, 0, 0}), std::log(2.0F));
  EXPECT_FLOAT_EQ(seen.mean_distance.at<float>({0, 0, 0}), kKeys - 1 - 100.5F);
  EXPECT_FLOAT_EQ(seen.distance_variance.at<float>({0, 0, 0}), 0.25F);
  EXPECT_FLOAT_EQ(seen.cells.at<float>({0, 0, 0, 0}), 1.0F);
  EXPECT_EQ(seen.top_keys.value({0, 0, 0, 0}), 100);
  EXPECT_EQ(seen.top_keys.value({0, 0, 0, 1}), 101);
}

TEST(AttentionDecodeLenses, NobodysBitsDependOnWhoWatchesOrOnThreads) {
  const RandomProblem p = stored_problem({2, 4, 2, 2, 9000}, 16, 8);
  const LensSizes sizes{8, 2, 30, Pool::kSum};
  AttentionOptions options{.mask = causal()};
  options.execution.threads = 1;
  const Seen one = decode(p.inputs(), options, sizes);
  for (const int threads : {2, 3, 8}) {
    options.execution.threads = threads;
    EXPECT_TRUE(same_bits(decode(p.inputs(), options, sizes), one)) << threads;
  }
  Seen alone = room_for(p.inputs(), sizes);
  attention_decode(p.query, p.key, p.value, options, {.context = alone.context, .lse = alone.lse});
  EXPECT_TRUE(same_bits(alone.context, one.context));
  EXPECT_TRUE(same_bits(alone.lse, one.lse));
  // Without the outputs that they were computed from.
  const Lenses lenses = alone.lenses(sizes.pool);
  attention_decode(p.query, p.key, p.value, options, {.lenses = &lenses});
  EXPECT_TRUE(same_bits(alone, one));
}

TEST(AttentionDecodeLenses, OfBlocksAreThoseOfOnePiece) {
  RandomProblem stored({3, 4, 2, 2, 700}, 24, 20);
  for (Tensor* tensor : {&stored.query, &stored.key, &stored.value}) {
    *tensor = convert(*tensor, DType::kFloat32);
  }
  const std::vector<std::int64_t> lengths{700, 0, 333};
  const LensSizes sizes{8, 2, 30, Pool::kMean};
  for (const std::int64_t block_size : {1, 16, 1000}) {
    const Blocks blocks(stored, block_size, lengths, DType::kFloat32);
    for (const Mask& mask : {Mask(), causal(), window(100, 0)}) {
      const Seen expected = decode(stored.inputs(), {.mask = mask & key_lengths(lengths)}, sizes);
      Seen seen = room_for(stored.inputs(), sizes);
      const Lenses lenses = seen.lenses(sizes.pool);
      attention_decode(stored.query, blocks.view(), {.mask = mask},
                       {.context = seen.context, .lse = seen.lse, .lenses = &lenses});
      EXPECT_TRUE(same_bits(seen, expected)) << block_size << ", " << mask.to_string();
    }
  }
}

TEST(AttentionDecodeLenses, OfRowsThatAreNanOrSeeNothing) {
  RandomProblem p = stored_problem({1, 2, 1, 2, 90}, 8, 8);
  set_value(p.query, {0, 1, 0, 3}, std::nan(""));
  const LensSizes sizes{3, 2, 10, Pool::kSum};
  for (const Mask& mask : {Mask(), causal(), window(5, 0) & key_lengths({40})}) {
    const AttentionOptions options{.mask = mask, .alignment = Alignment::offset(80)};
    SCOPED_TRACE(mask.to_string());
    LensCheck(p.inputs(), options).expect(decode(p.inputs(), options, sizes), sizes);
  }
  const RandomProblem none = stored_problem({1, 2, 1, 2, 0}, 8, 8);
  LensCheck(none.inputs(), {}).expect(decode(none.inputs(), {}, {0, 0, 0}), {0, 0, 0});
}

TEST(AttentionDecodeLenses, OfPackedSequences) {
  const RandomProblem p = stored_problem({1, 4, 2, 4, 300}, 12, 8);
  AttentionOptions options{.mask = causal()};
  options.sequences = {{0, 1, 4}, {0, 120, 300}};
  const LensSizes sizes{8, 0, 0, Pool::kSum};
  LensCheck(p.inputs(), options).expect(decode(p.inputs(), options, sizes), sizes);
}

}  // namespace
}  // namespace fovea::test
