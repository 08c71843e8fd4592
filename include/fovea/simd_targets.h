// SPDX-License-Identifier: Apache-2.0
//
// The SIMD targets that Fovea's vector code is not compiled for. The library and custom score
// functions (fovea/custom_score.h) share this list. Include this header before Highway, which reads
// HWY_DISABLED_TARGETS. To disable further targets, first define that macro as follows:
//
//   #define HWY_DISABLED_TARGETS (FOVEA_DISABLED_TARGETS | HWY_AVX3)
//   #include <fovea/simd_targets.h>

#ifndef FOVEA_SIMD_TARGETS_H_
#define FOVEA_SIMD_TARGETS_H_

/// SSE2 and SSSE3: CPUs without newer instructions are too rare to justify the compile time; they
/// use the portable fallback. SVE: the kernels store vectors in arrays, which is impossible for
/// vectors of unknown size; these CPUs use NEON. HWY_AVX3 - 1: all x86 targets that Highway ranks
/// above AVX3, in any version; float32 code does not benefit from them, and the library has a
/// separate target for bfloat16. The names may be defined later, because macros are expanded where
/// they are used.
#define FOVEA_DISABLED_TARGETS \
  ((HWY_AVX3 - 1) | HWY_SSE2 | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS FOVEA_DISABLED_TARGETS
#endif
#include <hwy/detect_targets.h>

#ifndef HWY_SSE2  // before Highway 1.0.4: 0 in the preprocessor, undeclared in C++
#undef FOVEA_DISABLED_TARGETS
#define FOVEA_DISABLED_TARGETS \
  ((HWY_AVX3 - 1) | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

// Without a user-defined list, Highway defines an empty one.
#if (FOVEA_DISABLED_TARGETS & ~(HWY_DISABLED_TARGETS)) != 0
#error \
    "include fovea/simd_targets.h before Highway, and let a HWY_DISABLED_TARGETS of your own contain FOVEA_DISABLED_TARGETS"
#endif

#endif  // FOVEA_SIMD_TARGETS_H_
