// SPDX-License-Identifier: Apache-2.0
//
// The backward pass (backward_amx.h) with tile instructions.

#include "kernels/backward/backward_amx.h"

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward/backward_amx.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/amx_target-inl.h"

#if FOVEA_AMX_TARGET
#include "kernels/backward/backward_amx-inl.h"
#define FOVEA_HAS_AMX_BACKWARD
#endif

#if HWY_ONCE
namespace fovea::kernels::FOVEA_UNITS {

const BackwardFunctions* amx_backward([[maybe_unused]] const BackwardSetup& setup) {
#ifdef FOVEA_HAS_AMX_BACKWARD
  return FOVEA_AMX_NAMESPACE::amx_backward_functions(setup);
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels::FOVEA_UNITS
#endif
