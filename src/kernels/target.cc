// SPDX-License-Identifier: Apache-2.0
//
// The choice of the SIMD target (target.h), on top of Highway's own dispatch.

#include "kernels/target.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/target.cc"
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

// The fallback is one of two, by compiler: EMU128, or HWY_SCALAR where the compiler miscompiles it.
constexpr std::int64_t kFallback = HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR);

std::string name_of(std::int64_t target) {
  return (target & kFallback) != 0 ? "SCALAR" : hwy::TargetName(target);
}

// Asked of Highway once, before a choice of ours changes what it answers.
const std::vector<std::int64_t>& available() {
  static const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

std::int64_t find_target(std::string_view name) {
  for (const std::int64_t target : available()) {
    if (name == name_of(target) || name == hwy::TargetName(target)) return target;
  }
  throw InvalidArgument(fmt::format(
      "FOVEA_TARGET: expected one of {}, which this CPU and this build have, got \"{}\"",
      fmt::join(available_targets(), ", "), name));
}

std::atomic<bool> chosen = false;

void choose() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (chosen.load(std::memory_order_relaxed)) return;
  const char* wish = std::getenv("FOVEA_TARGET");
  if (wish != nullptr && *wish != '\0') {
    // Whoever in this process makes Highway ask for the CPU's targets anew gets this answer too.
    hwy::SetSupportedTargetsForTest(find_target(wish));
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  chosen.store(true, std::memory_order_release);
}

}  // namespace

void choose_target() {
  if (!chosen.load(std::memory_order_acquire)) choose();
}

std::string active_target() {
  choose_target();
  return name_of(HWY_DYNAMIC_DISPATCH(compiled_target)());
}

std::vector<std::string> available_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : available()) names.push_back(name_of(target));
  return names;
}

}  // namespace fovea::kernels

#endif  // HWY_ONCE
