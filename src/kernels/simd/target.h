// SPDX-License-Identifier: Apache-2.0
//
// Which SIMD target the kernels run on. It is chosen once per process, before the first dispatch:
// the best that the CPU has and this build holds, or the one that FOVEA_TARGET names.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/export.h"

namespace fovea::kernels {

/// Makes the process's choice, which then holds for every HWY_DYNAMIC_DISPATCH. Each public
/// operation calls this before it dispatches.
///
/// FOVEA_TARGET  one of available_targets(); unset or empty: the best. Read at the first call that
///               succeeds.
/// Cost          an atomic load after the first call.
/// Threads       any number may call it at once.
/// Errors        throws InvalidArgument when FOVEA_TARGET names no available target.
FOVEA_API void choose_target();

/// The target that kernels run on, as code compiled for it reports. Errors as choose_target.
std::string active_target();

/// Whether the target that kernels run on multiplies pairs of bfloat16 (AVX-512's vdpbf16ps), which
/// is then "AVX3_BF16". Errors as choose_target.
bool bf16_dots_active();

/// What FOVEA_TARGET may name: the targets that this CPU offers and this build holds, best first,
/// under Highway's names, but for the portable fallback of x86, which comes last and is always
/// "SCALAR", and for "AVX3_BF16", AVX3 with dot products of bfloat16, which has no name there.
/// Never empty, and the same whatever was chosen.
std::vector<std::string> available_targets();

/// available_targets() of a CPU for which Highway would report the targets `supported`, one bit
/// each, and which has vdpbf16ps or not. A pure function: tests need no such CPU.
std::vector<std::string> targets_of_cpu(std::int64_t supported, bool has_bf16_dots);

}  // namespace fovea::kernels
