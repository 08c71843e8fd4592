// SPDX-License-Identifier: Apache-2.0
//
// Tests of fovea/info.h: facts have the documented form and follow the process's affinity mask.

#include "fovea/info.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sched.h>
#endif

namespace fovea {
namespace {

// Returns true for three numbers separated by dots, as in "12.2.0".
bool is_version(const std::string& text) {
  std::istringstream stream(text);
  std::string part;
  int parts = 0;
  while (std::getline(stream, part, '.')) {
    if (part.empty() || part.find_first_not_of("0123456789") != std::string::npos) return false;
    ++parts;
  }
  return parts == 3 && text.back() != '.';
}

TEST(Info, VersionCompilerAndBuildTypeAreSet) {
  const BuildInfo info = build_info();
  EXPECT_TRUE(is_version(info.version)) << info.version;
  const std::size_t space = std::min(info.compiler.find(' '), info.compiler.size());
  const std::string name = info.compiler.substr(0, space);
  if (name == "GCC" || name == "Clang") {
    EXPECT_TRUE(is_version(info.compiler.substr(space + 1))) << info.compiler;
  } else {
    EXPECT_EQ(info.compiler, "unknown");
  }
  EXPECT_FALSE(info.build_type.empty());
}

TEST(Info, CompilerMatchesThatOfTheTests) {
#if defined(__clang__)
  EXPECT_EQ(build_info().compiler.substr(0, 6), "Clang ");
#elif defined(__GNUC__)
  EXPECT_EQ(build_info().compiler.substr(0, 4), "GCC ");
#else
  EXPECT_EQ(build_info().compiler, "unknown");
#endif
}

TEST(Info, TargetsHaveDistinctNames) {
  const BuildInfo info = build_info();
  ASSERT_FALSE(info.targets.empty());
  const std::set<std::string> distinct(info.targets.begin(), info.targets.end());
  EXPECT_EQ(distinct.size(), info.targets.size());
  EXPECT_EQ(distinct.count("Unknown"), 0U);
  EXPECT_EQ(distinct.count(""), 0U);
}

#if defined(__x86_64__)
TEST(Info, TargetsAreOrderedBestFirst) {
  // All names that exist on x86, from the best target to the most basic one.
  // Intel's dot products of bfloat16 are slow.
  std::vector<std::string> ladder = {"AMX", "AVX3_BF16", "AVX3", "AVX2", "SSE4", "SCALAR"};
  if (__builtin_cpu_is("intel") != 0) std::swap(ladder[1], ladder[2]);
  std::size_t rung = 0;
  for (const std::string& target : build_info().targets) {
    while (rung < ladder.size() && ladder[rung] != target) ++rung;
    EXPECT_LT(rung, ladder.size()) << target << " is unknown or out of order";
  }
}
#endif

TEST(Info, ActiveTargetIsListed) {
  const BuildInfo info = build_info();
  EXPECT_EQ(std::count(info.targets.begin(), info.targets.end(), info.target), 1) << info.target;
}

TEST(Info, ThreadsFollowTheAffinityMask) {
  const int threads = build_info().threads;
  EXPECT_GE(threads, 1);
#if defined(__linux__)
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(threads, CPU_COUNT(&before));

  // Restricts the process to one CPU, the first allowed one, then restores the mask.
  int first = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(first), &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(first), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const int pinned = build_info().threads;
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(pinned, 1);
#endif
}

}  // namespace
}  // namespace fovea
