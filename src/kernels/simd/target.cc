// SPDX-License-Identifier: Apache-2.0
//
// Selection of the SIMD target (target.h), based on Highway's dispatch.

#include "kernels/simd/target.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/simd_targets.h"  // before Highway

#include "core/fail.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/target.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::int64_t compiled_target() { return HWY_TARGET; }

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fovea::kernels {
namespace {

HWY_EXPORT(compiled_target);

// The portable fallback is EMU128, or HWY_SCALAR for compilers that miscompile EMU128.
constexpr std::int64_t kFallback = HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR);

/// A Highway target, or AVX3 with bfloat16 dot products, which is not a Highway target.
struct Target {
  std::int64_t highway = 0;
  bool bf16_dots = false;
};

std::string name_of(const Target& target) {
  if ((target.highway & kFallback) != 0) return "SCALAR";
  return std::string(hwy::TargetName(target.highway)) + (target.bf16_dots ? "_BF16" : "");
}

bool cpu_has_bf16_dots() {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) != 0
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

// Returns the targets, best first. In Highway, a lower bit is a better target.
std::vector<Target> targets_of(std::int64_t supported, bool has_bf16_dots) {
  std::vector<Target> found;
  for (std::int64_t rest = supported & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    if (target == HWY_AVX3 && has_bf16_dots) found.push_back({target, true});
    found.push_back({target, false});
  }
  return found;
}

std::vector<std::string> names_of(const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const Target& target : targets) names.push_back(name_of(target));
  return names;
}

// Evaluated once, before choose() changes the result of hwy::SupportedTargets().
const std::vector<Target>& available() {
  static const std::vector<Target> targets =
      targets_of(hwy::SupportedTargets(), cpu_has_bf16_dots());
  return targets;
}

Target find_target(std::string_view name) {
  for (const Target& target : available()) {
    if (name == name_of(target) || (!target.bf16_dots && name == hwy::TargetName(target.highway))) {
      return target;
    }
  }
  fail("FOVEA_TARGET: expected one of {}, which this CPU and this build have, got \"{}\"",
       fmt::join(available_targets(), ", "), name);
}

std::atomic<bool> chosen = false;
std::atomic<bool> bf16_dots = false;

void choose() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (chosen.load(std::memory_order_relaxed)) return;
  const char* wish = std::getenv("FOVEA_TARGET");
  Target target = available().front();
  if (wish != nullptr && *wish != '\0') {
    target = find_target(wish);
    // Keeps the choice even if other code in this process makes Highway detect its targets again.
    hwy::SetSupportedTargetsForTest(target.highway);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  bf16_dots.store(target.bf16_dots, std::memory_order_relaxed);
  chosen.store(true, std::memory_order_release);
}

}  // namespace

void choose_target() {
  if (!chosen.load(std::memory_order_acquire)) choose();
}

bool bf16_dots_active() {
  choose_target();
  return bf16_dots.load(std::memory_order_relaxed);
}

std::string active_target() {
  choose_target();
  return name_of({HWY_DYNAMIC_DISPATCH(compiled_target)(), bf16_dots_active()});
}

std::vector<std::string> available_targets() { return names_of(available()); }

std::vector<std::string> targets_of_cpu(std::int64_t supported, bool has_bf16_dots) {
  return names_of(targets_of(supported, has_bf16_dots));
}

}  // namespace fovea::kernels

#endif  // HWY_ONCE
