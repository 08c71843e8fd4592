// SPDX-License-Identifier: Apache-2.0
//
// Leaves Highway's AVX3 as the only target besides the one that every CPU has; to be included
// before Highway (bf16_target-inl.h says by whom). Headers that are compiled once per target tell
// by counting passes whether they were seen in this one; with other targets before it, AVX3's
// might be the wrong one to begin with.

#pragma once

#undef HWY_DISABLED_TARGETS
#ifdef FOVEA_WITHOUT_AVX3  // by FOVEA_SIMD_TARGETS of CMake
#define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_SSE4 | HWY_AVX2)
#endif
#include "fovea/simd_targets.h"
