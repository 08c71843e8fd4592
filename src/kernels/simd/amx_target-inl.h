// SPDX-License-Identifier: Apache-2.0
//
// The additional SIMD targets with Intel's tile instructions (AMX), which are not Highway targets:
// vector code is compiled for Highway's AVX3, as for AVX3_BF16 (simd/bf16_target-inl.h), in a
// namespace of its own, and the register tile is that of the tile unit: 16 keys by 32 queries. A
// source file includes, once per target and in this order:
//
//   #include "kernels/simd/bf16_targets.h"       // before Highway: AVX3 is the only target
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/forward/forward_amx.cc"
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
//   #include "kernels/simd/amx_target-inl.h"      // this file
//   #if FOVEA_AMX_TARGET
//   ...
//   #endif

// This file is included once per target, so it has no include guard.
#undef FOVEA_AMX_TARGET
#undef FOVEA_AMX_NAMESPACE
#if FOVEA_EMULATED
#define FOVEA_AMX_NAMESPACE N_AMX_EMULATED
#else
#define FOVEA_AMX_NAMESPACE N_AMX
#endif
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3 && defined(__linux__)
#define FOVEA_AMX_TARGET 1
#if !FOVEA_EMULATED
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"  // for the headers shared with AVX3_BF16
#endif
namespace hwy {
namespace FOVEA_AMX_NAMESPACE = N_AVX3;
}  // namespace hwy
#undef HWY_NAMESPACE
#define HWY_NAMESPACE FOVEA_AMX_NAMESPACE
#else
#define FOVEA_AMX_TARGET 0
#endif
