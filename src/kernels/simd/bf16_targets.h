// SPDX-License-Identifier: Apache-2.0
//
// Disables all SIMD targets except Highway's AVX3 and the baseline. Files that use
// bf16_target-inl.h include this before Highway. Per-target headers use HWY_TARGET_TOGGLE, which
// alternates between passes, in their include guards. If other targets came before AVX3, these
// guards could be in the wrong state when the headers are first included.

#pragma once

#undef HWY_DISABLED_TARGETS
#ifdef FOVEA_WITHOUT_AVX3  // set by the CMake option FOVEA_SIMD_TARGETS
#define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_SSE4 | HWY_AVX2)
#endif
#include "fovea/simd_targets.h"

/// The namespace of a file's entry points. With FOVEA_EMULATED, the file is compiled a second time,
/// for tests, and its special instructions are emulated, so that other CPUs can run it.
#if FOVEA_EMULATED
#define FOVEA_UNITS emulated
#else
#define FOVEA_UNITS hardware
#endif
