// SPDX-License-Identifier: Apache-2.0
//
// Gradients of numbers at the limits of passes that compute products of float32 as products of
// bfloat16: such numbers are computed as without these passes, and change nothing where hidden.

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"

#include "kernels/simd/target.h"
#include "support/backward.h"
#include "support/limits.h"
#include "support/random_problem.h"
#include "support/storage.h"

namespace fovea::test {
namespace {

/// One block of keys, and enough queries for tiles.
constexpr ProblemShape kFarKeys{1, 2, 1, 140, 128};

struct FarProblem {
  RandomProblem problem = stored_problem(kFarKeys, 32, 40);
  ResultLoss loss = random_loss(problem.inputs());

  reference::Gradients gradients(const AttentionOptions& options) const {
    const Forward results = forward(problem.inputs(), options);
    return backward_of(problem.inputs(), results, options, loss, {}, DType::kFloat32);
  }
};

void fill_with(const MutableTensorView& tensor, double number) {
  change_all(tensor, [&](double) { return number; });
}

AttentionOptions without_tiles(AttentionOptions options) {
  options.float32_by_tiles = false;
  return options;
}

TEST(AttentionBackwardFarNumbers, AreComputedAsWithoutTheTileUnit) {
  struct Far {
    std::string name;
    std::function<void(FarProblem&)> make;
  };
  const std::vector<Far> all{
      {"a key of 1e35", [](FarProblem& p) { fill_with(p.problem.key.view()[0][0][9], 1e35); }},
      {"a value of NaN", [](FarProblem& p) { fill_with(p.problem.value.view()[0][0][9], kNan); }},
      {"a query of 1e-35",
       [](FarProblem& p) { fill_with(p.problem.query.view()[0][1][77], 1e-35); }},
      {"gradients of the context of 1e-33",
       [](FarProblem& p) {
         change_all(p.loss.context.view(), [](double x) { return 1e-33 * x; });
         fill_with(p.loss.lse.view(), 0.0);
       }},
      {"a gradient of lse of infinity", [](FarProblem& p) {
         set_value(p.loss.lse, {0, 1, 33}, kInfinity);
       }}};
  for (const Mask& mask : {Mask(), causal()}) {
    const AttentionOptions options{.mask = mask};
    const FarProblem clean;
    if (storage() == DType::kFloat32 &&
        kernels::tile_unit_active() != kernels::TileUnitKind::kNone) {
      EXPECT_FALSE(same_bits(clean.gradients(options), clean.gradients(without_tiles(options))));
    }
    for (const Far& far : all) {
      SCOPED_TRACE(far.name + ", " + mask.to_string());
      FarProblem p;
      far.make(p);
      // The forward pass may use tiles for other rows, so both share its results.
      const Forward results = forward(p.problem.inputs(), options);
      const auto gradients = [&](const AttentionOptions& with) {
        return backward_of(p.problem.inputs(), results, with, p.loss, {}, DType::kFloat32);
      };
      EXPECT_TRUE(same_bits(gradients(options), gradients(without_tiles(options))));
    }
  }
}

TEST(AttentionBackwardFarNumbers, HiddenOnesDoNotChangeABit) {
  const AttentionOptions options{.mask = key_lengths({101}) & window(90, 20)};
  const FarProblem clean;
  const reference::Gradients expected = clean.gradients(options);
  for (const double number : {kNan, kInfinity, 1e35, 1e-35}) {
    SCOPED_TRACE(number);
    FarProblem p;
    for (std::int64_t key = 101; key < kFarKeys.kv_len; ++key) {
      fill_with(p.problem.key.view()[0][0][key], number);
      fill_with(p.problem.value.view()[0][0][key], number);
    }
    EXPECT_TRUE(same_bits(p.gradients(options), expected));
  }
}

}  // namespace
}  // namespace fovea::test
