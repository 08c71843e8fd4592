// SPDX-License-Identifier: Apache-2.0
//
// The additional SIMD targets with Intel's tile instructions (AMX), which are not Highway targets:
// vector code is compiled for Highway's AVX3, as for AVX3_BF16 (simd/bf16_target-inl.h), in a
// namespace of its own, and the register tile is that of the tile unit: 16 keys by 32 queries. A
// source file defines FOVEA_AMX_EMULATED as 0 or 1 and includes, once per target and in this order:
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
//
// FOVEA_AMX_TARGET is 0 for the emulation in builds without tests.

// This file is included once per target, so it has no include guard.
#undef FOVEA_AMX_TARGET
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3 && defined(__linux__) && \
    (!FOVEA_AMX_EMULATED || defined(FOVEA_EMULATED_TILES))
#define FOVEA_AMX_TARGET 1
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"  // for the headers shared with AVX3_BF16
namespace hwy {
#if FOVEA_AMX_EMULATED
namespace N_AMX_EMULATED = N_AVX3;
#else
namespace N_AMX = N_AVX3;
#endif
}  // namespace hwy
#undef HWY_NAMESPACE
#if FOVEA_AMX_EMULATED
#define HWY_NAMESPACE N_AMX_EMULATED
#else
#define HWY_NAMESPACE N_AMX
#endif
#else
#define FOVEA_AMX_TARGET 0
#endif
