// SPDX-License-Identifier: Apache-2.0
//
// Selection of the SIMD target for all kernels. The target is chosen once per process, before the
// first dispatch: the best one that both the CPU and this build support, or the value of
// FOVEA_TARGET.

#pragma once

#include <cstdint>
#include <string>
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

/// Returns whether the kernels' target is "AVX3_BF16", which multiplies pairs of bfloat16
/// (vdpbf16ps of AVX-512). Throws InvalidArgument if choose_target() does.
bool bf16_dots_active();

/// Returns the valid values of FOVEA_TARGET: the targets that both this CPU and this build support,
/// best first. The names are Highway's, with two exceptions: the portable fallback of x86, which
/// comes last, is always "SCALAR", and AVX3 with bfloat16 dot products is "AVX3_BF16". The list is
/// never empty and does not depend on the chosen target.
std::vector<std::string> available_targets();

/// Returns available_targets() of a CPU with the Highway targets `supported`, one bit each, and
/// with or without vdpbf16ps. The function is pure, so tests can cover CPUs other than this one.
std::vector<std::string> targets_of_cpu(std::int64_t supported, bool has_bf16_dots);

}  // namespace fovea::kernels
