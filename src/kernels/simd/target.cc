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
#include "kernels/simd/tile_permission.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/target.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::int64_t compiled_target() { return HWY_TARGET; }
bool has_fma() { return HWY_NATIVE_FMA != 0; }

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fovea::kernels {
namespace {

HWY_EXPORT(compiled_target);
HWY_EXPORT(has_fma);

// The portable fallback is EMU128, or HWY_SCALAR for compilers that miscompile EMU128.
constexpr std::int64_t kFallback = HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR);

/// The instructions of a target beyond those of Highway's.
enum class Extension { kNone, kBf16Dots, kTiles, kEmulatedBf16Dots, kEmulatedTiles };

struct Target {
  std::int64_t highway = 0;
  Extension extension = Extension::kNone;
};

std::string name_of(const Target& target) {
  if ((target.highway & kFallback) != 0) return "SCALAR";
  switch (target.extension) {
    case Extension::kTiles:
      return "AMX";
    case Extension::kEmulatedTiles:
      return "AMX_EMULATED";
    case Extension::kBf16Dots:
      return std::string(hwy::TargetName(target.highway)) + "_BF16";
    case Extension::kEmulatedBf16Dots:
      return std::string(hwy::TargetName(target.highway)) + "_BF16_EMULATED";
    default:
      return hwy::TargetName(target.highway);
  }
}

CpuFeatures features_of_cpu() {
  CpuFeatures cpu{.highway = hwy::SupportedTargets()};
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) != 0
  cpu.bf16_dots = __builtin_cpu_supports("avx512bf16") != 0;
  cpu.slow_bf16_dots = __builtin_cpu_is("intel") != 0;
  cpu.tiles = tile_permission().granted;
#endif
  return cpu;
}

// Returns the targets, best first. In Highway, a lower bit is a better target.
std::vector<Target> targets_of(const CpuFeatures& cpu) {
  std::vector<Target> found;
  for (std::int64_t rest = cpu.highway & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    const bool avx3 = target == HWY_AVX3;
    if (avx3 && cpu.tiles) found.push_back({target, Extension::kTiles});
    if (avx3 && cpu.bf16_dots && !cpu.slow_bf16_dots) {
      found.push_back({target, Extension::kBf16Dots});
    }
    found.push_back({target});
    if (avx3 && cpu.bf16_dots && cpu.slow_bf16_dots)
      found.push_back({target, Extension::kBf16Dots});
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
  static const std::vector<Target> targets = targets_of(features_of_cpu());
  return targets;
}

std::vector<Target> emulated() {
  std::vector<Target> found;
#ifdef FOVEA_EMULATION
  for (const Target& target : available()) {
    if (target.highway != HWY_AVX3 || target.extension != Extension::kNone) continue;
    found.push_back({target.highway, Extension::kEmulatedTiles});
    found.push_back({target.highway, Extension::kEmulatedBf16Dots});
  }
#endif
  return found;
}

Target find_target(std::string_view name) {
  for (const Target& target : available()) {
    const bool plain = target.extension == Extension::kNone;
    if (name == name_of(target) || (plain && name == hwy::TargetName(target.highway)))
      return target;
  }
  for (const Target& target : emulated()) {
    if (name == name_of(target)) return target;
  }
  const std::string& refusal = tile_permission().refusal;
  fail("FOVEA_TARGET: expected one of {}, which this CPU and this build have, got \"{}\"{}",
       fmt::join(available_targets(), ", "), name,
       name == "AMX" && !refusal.empty() ? "; " + refusal : "");
}

std::atomic<bool> chosen = false;
std::atomic<Extension> extension = Extension::kNone;

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
  extension.store(target.extension, std::memory_order_relaxed);
  chosen.store(true, std::memory_order_release);
}

}  // namespace

void choose_target() {
  if (!chosen.load(std::memory_order_acquire)) choose();
}

bool fma_active() {
  choose_target();
  return HWY_DYNAMIC_DISPATCH(has_fma)();
}

namespace {

UnitKind kind_of(Extension hardware, Extension emulated) {
  choose_target();
  const Extension found = extension.load(std::memory_order_relaxed);
  if (found == hardware) return UnitKind::kHardware;
  return found == emulated ? UnitKind::kEmulated : UnitKind::kNone;
}

}  // namespace

UnitKind bf16_dots_active() { return kind_of(Extension::kBf16Dots, Extension::kEmulatedBf16Dots); }
UnitKind tile_unit_active() { return kind_of(Extension::kTiles, Extension::kEmulatedTiles); }

bool is_zen5() {
#if HWY_ARCH_X86
  static const bool found = [] {
    // GCC 12 does not know the name "znver5".
    constexpr unsigned kFamily = 26;
    unsigned version = 0, b = 0, c = 0, d = 0;
    if (__builtin_cpu_is("amd") == 0 || __get_cpuid(1, &version, &b, &c, &d) == 0) return false;
    return (version >> 8 & 0xf) + (version >> 20 & 0xff) == kFamily;
  }();
  return found;
#else
  return false;
#endif
}

bool bf16_products_active() {
  return bf16_dots_active() != UnitKind::kNone || tile_unit_active() != UnitKind::kNone;
}

std::string active_target() {
  choose_target();
  return name_of({HWY_DYNAMIC_DISPATCH(compiled_target)(), extension.load()});
}

std::vector<std::string> available_targets() { return names_of(available()); }
std::vector<std::string> emulated_targets() { return names_of(emulated()); }
std::vector<std::string> targets_of_cpu(const CpuFeatures& cpu) {
  return names_of(targets_of(cpu));
}

}  // namespace fovea::kernels

#endif  // HWY_ONCE
