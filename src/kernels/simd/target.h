// SPDX-License-Identifier: Apache-2.0
//
// Selection of the SIMD target for all kernels. It is chosen once per process, before the first
// dispatch: the best target that both the CPU and this build support, or the one in FOVEA_TARGET.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/export.h"

namespace fovea::kernels {

/// Chooses the target of the process for every HWY_DYNAMIC_DISPATCH. Each public operation calls
/// this before it dispatches.
///
/// FOVEA_TARGET  one of available_targets(); if unset or empty, the best. It is read until a call
///               succeeds, and not afterwards.
/// Cost          an atomic load after the first call.
/// Threads       may be called concurrently.
/// Errors        throws InvalidArgument if FOVEA_TARGET is not one of available_targets().
FOVEA_API void choose_target();

/// Returns the name of the kernels' target, as reported by code compiled for it. Throws as
/// choose_target does.
std::string active_target();

/// Returns whether the kernels' target multiplies pairs of bfloat16 (vdpbf16ps of AVX-512). The
/// target is then "AVX3_BF16". Throws as choose_target does.
bool bf16_dots_active();

/// Returns the valid values of FOVEA_TARGET: the targets that both this CPU and this build support,
/// best first. They have Highway's names, with two exceptions: the portable fallback of x86, which
/// comes last, is always "SCALAR", and AVX3 with bfloat16 dot products is "AVX3_BF16". The list is
/// never empty and does not depend on the chosen target.
std::vector<std::string> available_targets();

/// Returns available_targets() of a CPU with the Highway targets `supported`, one bit each, and
/// with or without vdpbf16ps. It is a pure function, so tests do not need the CPU.
std::vector<std::string> targets_of_cpu(std::int64_t supported, bool has_bf16_dots);

}  // namespace fovea::kernels
