// SPDX-License-Identifier: Apache-2.0
//
// Selection of the SIMD target for all kernels. The target is chosen once per process, before the
// first dispatch: the best one that both the CPU and this build support, or the value of
// FOVEA_TARGET.

#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "fovea/export.h"

namespace fovea::kernels {

/// Chooses the target of the process for every HWY_DYNAMIC_DISPATCH. Each public operation calls
/// this before it dispatches.
///
/// FOVEA_TARGET  one of available_targets(); if unset or empty, the best one. The variable is read
///               by every call up to the first one that succeeds.
/// Cost          an atomic load after the first call.
/// Threads       may be called concurrently.
/// Errors        throws InvalidArgument if FOVEA_TARGET is not one of available_targets().
FOVEA_API void choose_target();

/// Returns the name of the kernels' target, as reported by code compiled for it. Throws
/// InvalidArgument if choose_target() does.
std::string active_target();

/// Returns whether the kernels' multiply-adds are fused, which SSE4 and the portable fallback lack.
/// Throws InvalidArgument if choose_target() does.
bool fma_active();

/// The execution of special instructions by the kernels: not at all, by the CPU, or emulated, for
/// tests on other CPUs.
enum class UnitKind { kNone, kHardware, kEmulated };
/// Returns how pairs of bfloat16 are multiplied, the purpose of vdpbf16ps of AVX-512: by the CPU on
/// the target "AVX3_BF16", emulated on "AVX3_BF16_EMULATED". Throws InvalidArgument if
/// choose_target() does.
UnitKind bf16_dots_active();
/// Returns how tiles of matrices are multiplied, the purpose of Intel's AMX: by the CPU on the
/// target "AMX", emulated with the same bits on "AMX_EMULATED". Throws InvalidArgument if
/// choose_target() does.
UnitKind tile_unit_active();

/// Calls `hardware` or `emulated`, by `kind`, and returns its result; null for kNone.
template <class Functions, class... Arguments>
const Functions* functions_of(UnitKind kind, const Functions* (*hardware)(Arguments...),
                              const Functions* (*emulated)(Arguments...),
                              std::type_identity_t<Arguments>... arguments) {
  switch (kind) {
    case UnitKind::kHardware:
      return hardware(arguments...);
    case UnitKind::kEmulated:
      return emulated(arguments...);
    case UnitKind::kNone:
      break;
  }
  return nullptr;
}

/// Returns whether the forward pass multiplies bfloat16 without converting it: by either of them.
bool bf16_products_active();

/// Returns whether this CPU is AMD's Zen 5, or a later one of its family (26).
bool is_zen5();

/// Returns the valid values of FOVEA_TARGET, except emulated_targets(): the targets that both this
/// CPU and this build support, best first. The names are Highway's, with these exceptions: the
/// portable fallback of x86, which comes last, is always "SCALAR"; AVX3 with bfloat16 dot products
/// is "AVX3_BF16", and with tile instructions "AMX". The list is never empty and does not depend on
/// the chosen target.
std::vector<std::string> available_targets();

/// Returns further values of FOVEA_TARGET, for tests: "AMX_EMULATED" and "AVX3_BF16_EMULATED" on a
/// CPU with AVX3, in builds with tests.
std::vector<std::string> emulated_targets();

/// The properties of a CPU that determine its targets.
struct CpuFeatures {
  std::int64_t highway = 0;     // the supported Highway targets, one bit each
  bool bf16_dots = false;       // vdpbf16ps
  bool slow_bf16_dots = false;  // which takes twice as long as a float32 instruction: Intel
  bool tiles = false;           // tile instructions for bfloat16, permitted by the system
};

/// Returns available_targets() of a CPU. The function is pure, so tests can cover CPUs other than
/// this one.
std::vector<std::string> targets_of_cpu(const CpuFeatures& cpu);

}  // namespace fovea::kernels
