// SPDX-License-Identifier: Apache-2.0
//
// The forward pass (forward_amx.h) with tile instructions.

#include "kernels/forward/forward_amx.h"

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward/forward_amx.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/amx_target-inl.h"

#if FOVEA_AMX_TARGET
#include "kernels/forward/forward_amx-inl.h"
#define FOVEA_HAS_AMX_FORWARD
#endif

#if HWY_ONCE
namespace fovea::kernels::FOVEA_UNITS {

const ForwardFunctions* amx_forward([[maybe_unused]] const ForwardSetup& setup) {
#ifdef FOVEA_HAS_AMX_FORWARD
  return FOVEA_AMX_NAMESPACE::amx_functions(setup);
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels::FOVEA_UNITS
#endif
