// SPDX-License-Identifier: Apache-2.0
//
// Runs the engine's tests on the SIMD target named by FOVEA_TARGET, and checks that this target is
// active. If the CPU or the build lacks it, the program exits with 77, which ctest counts as a
// skip. With FOVEA_TEST_OTHER=1 it also exits with 77 for the best target, which ctest runs without
// FOVEA_TARGET.

#include "kernels/simd/target.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/tensor.h"

#include "kernels/forward/forward.h"
#include "kernels/simd/target.h"
#include "support/storage.h"

namespace fovea::test {
namespace {

constexpr int kSkipped = 77;

std::string wish() {
  const char* const target = std::getenv("FOVEA_TARGET");
  return target == nullptr ? "" : target;
}

class Skip : public testing::Environment {
 public:
  void SetUp() override {
    if (wish().empty()) return;
    std::vector<std::string> targets = kernels::available_targets();
    if (wish() == targets.front() && std::getenv("FOVEA_TEST_OTHER") != nullptr) {
      std::cout << "Skipped: " << wish() << " is what runs without FOVEA_TARGET" << std::endl;
      std::_Exit(kSkipped);
    }
    std::ranges::copy(kernels::emulated_targets(), std::back_inserter(targets));
    if (wish() == "AVX3" && targets.front() == "AVX3_BF16" && storage() == DType::kFloat32 &&
        std::getenv("FOVEA_TEST_OTHER") != nullptr) {
      std::cout << "Skipped: in float32, AVX3 is what runs without FOVEA_TARGET" << std::endl;
      std::_Exit(kSkipped);
    }
    if (std::ranges::count(targets, "AVX3_BF16") > 0 && wish() == "AVX3_BF16_EMULATED" &&
        std::getenv("FOVEA_TEST_OTHER") != nullptr) {
      std::cout << "Skipped: this CPU has AVX3_BF16" << std::endl;
      std::_Exit(kSkipped);
    }
    if (std::ranges::count(targets, wish()) > 0) return;
    std::cout << "Skipped: this CPU or this build does not have " << wish() << ", but";
    for (const std::string& target : targets) std::cout << ' ' << target;
    std::cout << std::endl;
    std::_Exit(kSkipped);
  }
};

[[maybe_unused]] testing::Environment* const skip =
    testing::AddGlobalTestEnvironment(new Skip);  // owned by GoogleTest

TEST(AttentionTarget, ForcedTargetRuns) {
  EXPECT_EQ(kernels::active_target(),
            wish().empty() ? kernels::available_targets().front() : wish());
}

TEST(AttentionTarget, PanelWidthMatchesTheTarget) {
  kernels::choose_target();
  const std::string target = kernels::active_target();
  // Depending on the compiler, SCALAR uses single floats or emulated vectors of four.
  const std::map<std::string, std::set<std::int64_t>> expected{
      {"SCALAR", {2, 8}}, {"SSE4", {8}},          {"NEON", {12}},
      {"AVX2", {24}},     {"AVX3", {48}},         {"AVX3_BF16", {48}},
      {"AMX", {48}},      {"AMX_EMULATED", {48}}, {"AVX3_BF16_EMULATED", {48}}};
  const auto known = expected.find(target);
  if (known == expected.end()) GTEST_SKIP() << "no number is expected of " << target;
  EXPECT_TRUE(known->second.contains(kernels::panel_lanes())) << kernels::panel_lanes();
}

TEST(AttentionTarget, OnlySomeTargetsMultiplyBfloat16) {
  const std::string target = kernels::active_target();
  const bool dots = target == "AVX3_BF16" || target == "AVX3_BF16_EMULATED";
  const bool tiles = target == "AMX" || target == "AMX_EMULATED";
  EXPECT_EQ(kernels::bf16_dots_active() != kernels::UnitKind::kNone, dots);
  EXPECT_EQ(kernels::tile_unit_active() != kernels::UnitKind::kNone, tiles);
  EXPECT_EQ(kernels::bf16_products_active(), dots || tiles);
  const AttentionOptions options;
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  for (const DType query : kTypes) {
    for (const DType key : kTypes) {
      for (const DType value : kTypes) {
        const kernels::ForwardSetup setup{.options = &options, .types = {query, key, value}};
        const bool all_bf16 =
            query == DType::kBFloat16 && key == DType::kBFloat16 && value == DType::kBFloat16;
        const kernels::ForwardSizes sizes = kernels::forward_sizes(setup);
        EXPECT_EQ(sizes.number_bytes, all_bf16 && (dots || tiles) ? 2 : 4);
        EXPECT_EQ(sizes.block_keys > 0, all_bf16 && tiles);
      }
    }
  }
}

}  // namespace
}  // namespace fovea::test
