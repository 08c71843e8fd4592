// SPDX-License-Identifier: Apache-2.0
//
// Leaves Highway's AVX3 as the only target besides the one that every CPU has; to be included
// before Highway (bf16_target-inl.h says by whom). Headers that are compiled once per target tell
// by counting passes whether they were seen in this one; with other targets before it, AVX3's
// might be the wrong one to begin with.

#pragma once

#define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_SSE4 | HWY_AVX2)
#include "fovea/simd_targets.h"
