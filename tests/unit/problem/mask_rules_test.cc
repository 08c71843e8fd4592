// SPDX-License-Identifier: Apache-2.0
//
// Combined causal and prefix rules, and counts of visible keys.

#include "problem/mask_rules.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/random.h"
#include "fovea/tensor.h"

namespace fovea {
namespace {

TEST(MaskRules, CausalAndPrefixCombineToAPrefixLanguageModel) {
  EXPECT_TRUE(causal_or_prefix(false, std::nullopt).allows_all());
  EXPECT_EQ(causal_or_prefix(true, std::nullopt).to_string(), "causal()");
  EXPECT_EQ(causal_or_prefix(false, 3).to_string(), "prefix(3)");
  EXPECT_EQ(causal_or_prefix(true, 3).to_string(), "(causal() | prefix(3))");
}

TEST(MaskRules, CountsVisibleKeysOfARow) {
  constexpr std::int64_t kRows = 5, kLength = 9;
  const Tensor open = convert(RandomState(1).randint(0, 2, {kRows, kLength}), DType::kBool);
  const Tensor ids = RandomState(2).randint(0, 3, {kLength});
  std::vector<std::uint8_t> visible;
  for (const Mask& mask : {Mask(), causal(), window(1, 2), causal() | prefix(2), prefix(0),
                           key_lengths({4}), documents(ids), dense(open), causal() & dense(open)}) {
    for (std::int64_t query = 0; query < kRows; ++query) {
      ScorePosition at = {.query = query, .offset = 1};
      std::int64_t expected = 0;
      for (at.key = 0; at.key < kLength; ++at.key) expected += mask.visible(at) ? 1 : 0;
      EXPECT_EQ(count_visible(mask, at, kLength, visible), expected) << mask.to_string() << query;
    }
  }
}

}  // namespace
}  // namespace fovea
