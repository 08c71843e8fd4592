// SPDX-License-Identifier: Apache-2.0
//
// The backward pass (backward_amx.h) with the emulated tile unit.

#include "kernels/backward/backward_amx.h"
#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward/backward_amx_emulated.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#define FOVEA_AMX_EMULATED 1
#include "kernels/simd/amx_target-inl.h"

#if FOVEA_AMX_TARGET
#include "kernels/backward/backward_amx-inl.h"
#define FOVEA_HAS_AMX_BACKWARD
#endif

#if HWY_ONCE
namespace fovea::kernels {

const BackwardFunctions* emulated_amx_backward([[maybe_unused]] const BackwardSetup& setup) {
#ifdef FOVEA_HAS_AMX_BACKWARD
  return N_AMX_EMULATED::amx_backward_functions(setup);
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels
#endif
