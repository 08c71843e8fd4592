// SPDX-License-Identifier: Apache-2.0
//
// The SIMD targets that Fovea's vector code is not compiled for: the one list, of the library and
// of score functions of your own (fovea/custom_score.h). Include it before Highway, which reads
// HWY_DISABLED_TARGETS. To disable more targets, define that macro first, on top of this list:
//
//   #define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_AVX3)
//   #include <fovea/simd_targets.h>

#ifndef FOVEA_SIMD_TARGETS_H_
#define FOVEA_SIMD_TARGETS_H_

/// SSSE3 and SSE2: CPUs that end there are too rare for the compile time, and get the portable
/// fallback. SVE: vectors of unknown size cannot be stored in arrays, as the kernels do; such CPUs
/// get NEON. HWY_AVX3 - 1: all x86 targets that Highway ranks above AVX3, whichever a version has;
/// float32 has no use for them, and for bfloat16 the library has a target of its own. Macros are
/// expanded where they are used, so the names may be defined below.
#define FOVEA_DISABLED_TARGETS \
  ((HWY_AVX3 - 1) | HWY_SSE2 | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS FOVEA_DISABLED_TARGETS
#endif
#include <hwy/detect_targets.h>

#ifndef HWY_SSE2  // before Highway 1.0.4: 0 to the preprocessor, unknown to the compiler
#undef FOVEA_DISABLED_TARGETS
#define FOVEA_DISABLED_TARGETS \
  ((HWY_AVX3 - 1) | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

// Highway itself defines an empty list where it finds none.
#if (FOVEA_DISABLED_TARGETS & ~(HWY_DISABLED_TARGETS)) != 0
#error \
    "include fovea/simd_targets.h before Highway, and let a HWY_DISABLED_TARGETS of your own contain FOVEA_DISABLED_TARGETS"
#endif

#endif  // FOVEA_SIMD_TARGETS_H_
