// SPDX-License-Identifier: Apache-2.0
//
// The additional SIMD target AVX3_BF16. Highway 1.0.3 has no target with vdpbf16ps. Newer versions
// have AVX3_ZEN4 and AVX3_SPR, but Fovea does not compile for them, so that all Highway versions
// give the same code and the same target names. A source file that needs the instruction is
// compiled for Highway's AVX3 with avx512bf16 enabled. It uses a separate namespace, N_AVX3_BF16,
// so that the linker does not merge functions of its headers with the versions that other files
// compile for AVX3:
//
//   #include "kernels/simd/bf16_targets.h"       // before Highway: AVX3 is the only target
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/forward/forward_bf16.cc"
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
//   #include "kernels/simd/bf16_target-inl.h"    // this file, once per target
//   #if FOVEA_BF16_TARGET
//   ...
//   #endif

// This file is included once per target, so it has no include guard.
#undef FOVEA_BF16_TARGET
#undef FOVEA_BF16_NAMESPACE
#if FOVEA_EMULATED
#define FOVEA_BF16_NAMESPACE N_AVX3_BF16_EMULATED
#else
#define FOVEA_BF16_NAMESPACE N_AVX3_BF16
#endif
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
#define FOVEA_BF16_TARGET 1
#if !FOVEA_EMULATED
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#endif
namespace hwy {
namespace FOVEA_BF16_NAMESPACE = N_AVX3;
}
#undef HWY_NAMESPACE
#define HWY_NAMESPACE FOVEA_BF16_NAMESPACE
#else
#define FOVEA_BF16_TARGET 0
#endif
