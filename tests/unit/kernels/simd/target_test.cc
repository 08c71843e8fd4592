// SPDX-License-Identifier: Apache-2.0
//
// Tests of kernels/simd/target.h: the requested target runs. A process chooses its target once, so
// each case runs in a separate process, as a death test that exits with 0.

#include "kernels/simd/target.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/simd_targets.h"  // with Highway's targets

#include "kernels/simd/tile_permission.h"

namespace fovea::kernels {
namespace {

/// Sets FOVEA_TARGET, prints the active target or the error to standard error, and exits with 0.
/// Must run in a new process.
[[noreturn]] void report_active(const char* wish) {
  setenv("FOVEA_TARGET", wish, 1);
  try {
    std::cerr << "active: " << active_target() << ";\n";
  } catch (const InvalidArgument& error) {
    std::cerr << "refused: " << error.what() << ";\n";
  }
  std::_Exit(0);
}

class Target : public testing::Test {
 protected:
  // Starts each child as a new process, not as a fork, which would already have chosen a target.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Target, ForcedTargetRuns) {
  for (const std::string& target : available_targets()) {
    EXPECT_EXIT(report_active(target.c_str()), testing::ExitedWithCode(0),
                "active: " + target + ";");
  }
}

TEST_F(Target, EmptySelectsTheBest) {
  EXPECT_EXIT(report_active(""), testing::ExitedWithCode(0),
              "active: " + available_targets().front() + ";");
}

TEST_F(Target, UnknownNameListsTheAvailableTargets) {
  for (const char* wish : {"AVX9", "avx2", " ", "AVX2,SSE4"}) {
    EXPECT_EXIT(report_active(wish), testing::ExitedWithCode(0),
                testing::AllOf(testing::HasSubstr("refused: FOVEA_TARGET: expected one of "),
                               testing::HasSubstr(available_targets().back() + ", which"),
                               testing::HasSubstr(std::string("got \"") + wish + "\";")));
  }
}

TEST_F(Target, ValidNameWorksAfterAnError) {
  const auto refused_then_best = [] {
    setenv("FOVEA_TARGET", "AVX9", 1);
    EXPECT_THROW(choose_target(), InvalidArgument);
    report_active("");
  };
  EXPECT_EXIT(refused_then_best(), testing::ExitedWithCode(0),
              "active: " + available_targets().front() + ";");
}

TEST_F(Target, ChosenOncePerProcess) {
  const auto chosen_then_changed = [] {
    setenv("FOVEA_TARGET", "", 1);
    choose_target();
    report_active(available_targets().back().c_str());
  };
  EXPECT_EXIT(chosen_then_changed(), testing::ExitedWithCode(0),
              "active: " + available_targets().front() + ";");
}

TEST_F(Target, ConcurrentChoicesAgree) {
  const auto choose_at_once = [](const std::string& wish) {
    setenv("FOVEA_TARGET", wish.c_str(), 1);
    std::vector<std::string> found(8);
    std::vector<std::thread> threads;
    for (std::string& name : found) threads.emplace_back([&name] { name = active_target(); });
    for (std::thread& thread : threads) thread.join();
    std::_Exit(std::count(found.begin(), found.end(), wish) == 8 ? 0 : 1);
  };
  EXPECT_EXIT(choose_at_once(available_targets().back()), testing::ExitedWithCode(0), "");
}

TEST_F(Target, ThisProcessRunsTheRequestedTarget) {
  const char* wish = std::getenv("FOVEA_TARGET");
  const bool forced = wish != nullptr && *wish != '\0';
  EXPECT_EQ(active_target(), forced ? wish : available_targets().front());
}

TEST_F(Target, AvailableTargetsAreDistinctAndIndependentOfTheChoice) {
  const std::vector<std::string> before = available_targets();
  choose_target();
  EXPECT_EQ(available_targets(), before);
  EXPECT_EQ(std::set<std::string>(before.begin(), before.end()).size(), before.size());
#if defined(__x86_64__)
  EXPECT_EQ(before.back(), "SCALAR");
  EXPECT_THAT(before, testing::Not(testing::Contains("SSSE3")));
#endif
}

#if defined(__x86_64__)
TEST(Cpu, Zen5IsFoundByItsFamily) {
  std::ifstream info("/proc/cpuinfo");
  std::string line, vendor, family;
  while (std::getline(info, line) && !line.empty()) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("vendor_id")) vendor = value;
    if (line.starts_with("cpu family")) family = value;
  }
  EXPECT_EQ(is_zen5(), vendor == "AuthenticAMD" && family == "26");
}

/// Returns the targets that Highway reports for an x86 CPU whose best target is `best`: that
/// target, all targets that rank below it, and both fallbacks (a build has only one of them).
std::int64_t cpu_up_to(std::int64_t best) {
  constexpr std::int64_t kX86 = (std::int64_t{1} << (HWY_HIGHEST_TARGET_BIT_X86 + 1)) - 1;
  return (kX86 & ~(best - 1)) | HWY_EMU128 | HWY_SCALAR;
}

/// False in sanitizer builds, which compile fewer targets (FOVEA_SIMD_TARGETS of CMake).
constexpr bool kAllTargets = (HWY_TARGETS & HWY_AVX3) != 0 && (HWY_TARGETS & HWY_SSE4) != 0;

TEST(TargetsOfCpu, IgnoreHighwayTargetsAboveAvx3) {
  if (!kAllTargets) GTEST_SKIP() << "built for fewer targets";
  // AVX3_SPR, AVX3_ZEN4 and AVX3_DL have bits 4, 6 and 7; Highway 1.0.3 only knows AVX3_DL.
  for (const int bit : {0, 4, 6, 7, 8}) {
    CpuFeatures cpu{.highway = cpu_up_to(std::int64_t{1} << bit)};
    EXPECT_THAT(targets_of_cpu(cpu), testing::ElementsAre("AVX3", "AVX2", "SSE4", "SCALAR")) << bit;
    cpu.bf16_dots = true;
    EXPECT_THAT(targets_of_cpu(cpu),
                testing::ElementsAre("AVX3_BF16", "AVX3", "AVX2", "SSE4", "SCALAR"))
        << bit;
    cpu.slow_bf16_dots = true;
    EXPECT_THAT(targets_of_cpu(cpu),
                testing::ElementsAre("AVX3", "AVX3_BF16", "AVX2", "SSE4", "SCALAR"))
        << bit;
    cpu.tiles = true;
    EXPECT_THAT(targets_of_cpu(cpu),
                testing::ElementsAre("AMX", "AVX3", "AVX3_BF16", "AVX2", "SSE4", "SCALAR"))
        << bit;
  }
  EXPECT_EQ(HWY_AVX3, std::int64_t{1} << 8);
}

TEST(TargetsOfCpu, Bf16DotsAndTilesNeedAvx3) {
  if (!kAllTargets) GTEST_SKIP() << "built for fewer targets";
  for (const bool has_more : {false, true}) {
    const auto targets_up_to = [&](std::int64_t target) {
      return targets_of_cpu(
          {.highway = cpu_up_to(target), .bf16_dots = has_more, .tiles = has_more});
    };
    EXPECT_THAT(targets_up_to(HWY_AVX2), testing::ElementsAre("AVX2", "SSE4", "SCALAR"));
    EXPECT_THAT(targets_up_to(HWY_SSE4), testing::ElementsAre("SSE4", "SCALAR"));
    EXPECT_THAT(targets_up_to(HWY_SSSE3), testing::ElementsAre("SCALAR"));
  }
}

#if defined(__linux__)
/// Returns true if /proc/cpuinfo lists the flag.
bool cpu_has_flag(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) return (line + " ").find(" " + flag + " ") != std::string::npos;
  }
  return false;
}

TEST_F(Target, BestOnThisCpu) {
  if (!kAllTargets) GTEST_SKIP() << "built for fewer targets";
  if (!cpu_has_flag("avx512_bf16")) GTEST_SKIP() << "this CPU has no avx512_bf16";
  const bool tiles = cpu_has_flag("amx_bf16") && tile_permission().granted;
  const std::string best = tiles ? "AMX" : __builtin_cpu_is("intel") != 0 ? "AVX3" : "AVX3_BF16";
  EXPECT_EQ(available_targets().front(), best);
  EXPECT_THAT(available_targets(), testing::Contains("AVX3_BF16"));
  EXPECT_EXIT(report_active(""), testing::ExitedWithCode(0), "active: " + best + ";");
}

TEST_F(Target, EmulatedTargetsRunOnEveryCpuWithAvx3) {
  const std::vector<std::string> targets = available_targets();
  const bool avx3 = std::ranges::count(targets, "AVX3") > 0;
  EXPECT_EQ(emulated_targets().size(), avx3 ? 2 : 0);
  for (const std::string& target : emulated_targets()) {
    EXPECT_EQ(std::ranges::count(targets, target), 0);
    EXPECT_EXIT(report_active(target.c_str()), testing::ExitedWithCode(0),
                "active: " + target + ";");
  }
}

/// Makes Linux refuse tile registers: an alternate signal stack has no room for them. Must run in a
/// new process.
[[noreturn]] void report_without_permission(const char* wish) {
  static std::byte stack[8192];
  const stack_t small{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  if (sigaltstack(&small, nullptr) != 0) std::_Exit(1);
  report_active(wish);
}

TEST_F(Target, RefusedTilesAreNoTarget) {
  if (!kAllTargets) GTEST_SKIP() << "built for fewer targets";
  // The system is not asked here, because a child runs these lines too before it reports.
  if (!cpu_has_flag("amx_bf16")) GTEST_SKIP() << "this CPU has no amx_bf16";
  EXPECT_EXIT(report_without_permission(""), testing::ExitedWithCode(0), "active: AVX3;");
  EXPECT_EXIT(report_without_permission("AMX"), testing::ExitedWithCode(0),
              "refused: FOVEA_TARGET: expected one of AVX3, .*\"AMX\"; the system refuses tile "
              "registers: ");
}

TEST(TilePermission, IsRefusedOnlyWithAReason) {
  const bool tiles = cpu_has_flag("amx_bf16") && cpu_has_flag("amx_tile");
  if (tiles) {
    EXPECT_EQ(tile_permission().granted, tile_permission().refusal.empty());
  } else {
    EXPECT_FALSE(tile_permission().granted);
    EXPECT_EQ(tile_permission().refusal, "");
  }
}
#endif
#endif

}  // namespace
}  // namespace fovea::kernels
