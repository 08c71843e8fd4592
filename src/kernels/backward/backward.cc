// SPDX-License-Identifier: Apache-2.0
//
// The fused backward pass (backward-inl.h), compiled once per SIMD target, and the runtime dispatch
// to the active target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward/backward.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <hwy/highway.h>

#include "kernels/backward/backward-inl.h"
#include "kernels/backward/backward.h"
#include "kernels/backward/backward_amx.h"
#include "kernels/backward/backward_bf16.h"
#include "kernels/backward/prepare_rows-inl.h"
#include "kernels/backward/row_products-inl.h"
#include "kernels/simd/flush_to_zero.h"
#include "kernels/simd/target.h"
#include "kernels/tile/float_arithmetic-inl.h"
#include "problem/problem_shape.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

std::size_t BackwardScratchBytes(const BackwardSetup& setup) {
  return BackwardScratch().lay_out(nullptr,
                                   backward_scratch_sizes<RowProducts<FloatArithmetic>>(setup));
}

BackwardSizes Sizes() {
  return {.queries = HeadPass<RowProducts<FloatArithmetic>>::kQueries, .keys_multiple = kTileRows};
}

void PrepareRows(const BackwardSetup& setup, const BackwardRows& rows) {
  HWY_NAMESPACE::prepare_rows(setup, rows);
}

void RunBackwardItem(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                     const std::stop_token& stop) {
  // With biases, weights of keys far from a query may approach 2^-126.
  const FlushToZero flush(has_bias(setup.forward.options->score));
  BackwardPass<RowProducts<FloatArithmetic>>(setup, item, scratch).run(stop);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(BackwardScratchBytes);
HWY_EXPORT(Sizes);
HWY_EXPORT(PrepareRows);
HWY_EXPORT(RunBackwardItem);

const BackwardFunctions& float_backward() {
  static const BackwardFunctions functions{
      .scratch_bytes = [](const BackwardSetup& setup) -> std::size_t {
        return HWY_DYNAMIC_DISPATCH(BackwardScratchBytes)(setup);
      },
      .item =
          [](const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
             const std::stop_token& stop) {
            HWY_DYNAMIC_DISPATCH(RunBackwardItem)(setup, item, scratch, stop);
          },
      .sizes = HWY_DYNAMIC_DISPATCH(Sizes)()};
  return functions;
}

namespace {

const BackwardFunctions& functions_for(const BackwardSetup& setup) {
  const BackwardFunctions* special =
      functions_of(tile_unit_active(), hardware::amx_backward, emulated::amx_backward, setup);
  if (special == nullptr && setup.all_are(DType::kBFloat16)) {
    special = functions_of(bf16_dots_active(), hardware::bf16_backward, emulated::bf16_backward);
  }
  return special != nullptr ? *special : float_backward();
}

}  // namespace

bool multiplies_bf16(const BackwardSetup& setup) {
  return setup.all_are(DType::kBFloat16) && &functions_for(setup) != &float_backward();
}

BackwardSizes backward_sizes(const BackwardSetup& setup) { return functions_for(setup).sizes; }

std::size_t backward_scratch_bytes(const BackwardSetup& setup) {
  return functions_for(setup).scratch_bytes(setup);
}

void prepare_rows(const BackwardSetup& setup, const BackwardRows& rows) {
  HWY_DYNAMIC_DISPATCH(PrepareRows)(setup, rows);
}

void backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                   const std::stop_token& stop) {
  functions_for(setup).item(setup, item, scratch, stop);
}

}  // namespace fovea::kernels
#endif
