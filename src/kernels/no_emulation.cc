// SPDX-License-Identifier: Apache-2.0
//
// Replaces the emulated kernels in builds without tests.

#include "kernels/backward/backward_amx.h"
#include "kernels/decode/decode_bf16.h"
#include "kernels/forward/forward_amx.h"
#include "kernels/weights/weights_bf16.h"

namespace fovea::kernels::emulated {

const ForwardFunctions* amx_forward(const ForwardSetup&) { return nullptr; }
const BackwardFunctions* amx_backward(const BackwardSetup&) { return nullptr; }
const ForwardFunctions* bf16_forward() { return nullptr; }
const BackwardFunctions* bf16_backward() { return nullptr; }
const DecodeFunctions* bf16_decode() { return nullptr; }
const WeightsFunctions* bf16_weights() { return nullptr; }

}  // namespace fovea::kernels::emulated
