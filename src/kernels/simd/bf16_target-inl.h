// SPDX-License-Identifier: Apache-2.0
//
// Highway 1.0.3 has no target with vdpbf16ps; newer versions have AVX3_ZEN4 and AVX3_SPR, which no
// file here is compiled for, so that all versions give the same code and the same names. A source
// file that needs the instruction is compiled for Highway's AVX3 with it allowed, in a namespace of
// its own, N_AVX3_BF16, so that no function of its headers is mistaken for the one that other files
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

// Once per target: no include guard.
#undef FOVEA_BF16_TARGET
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
#define FOVEA_BF16_TARGET 1
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
namespace hwy {
namespace N_AVX3_BF16 = N_AVX3;
}
#undef HWY_NAMESPACE
#define HWY_NAMESPACE N_AVX3_BF16
#else
#define FOVEA_BF16_TARGET 0
#endif
