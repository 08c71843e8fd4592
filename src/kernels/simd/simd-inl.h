// SPDX-License-Identifier: Apache-2.0
//
// What every kernel shares: the vector type and the shape of the register tile, per SIMD target.
// Included once per target by way of hwy/foreach_target.h.

#if defined(FOVEA_KERNELS_SIMD_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_SIMD_SIMD_INL_H_
#undef FOVEA_KERNELS_SIMD_SIMD_INL_H_
#else
#define FOVEA_KERNELS_SIMD_SIMD_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Floats>;
using Ints = hn::RebindToSigned<Floats>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Floats()));

// A tile of kTileRows x kPanelVectors accumulators, the vectors of one row of the other factor and
// one broadcast number are all the registers there are: 8 x 3 of 32, 4 x 3 of 16. Without fused
// multiply-add the product needs one more.
#if HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 2;
constexpr int kPanelVectors = 2;
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 4;
constexpr int kPanelVectors = 3;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
constexpr int kTileRows = 4;
constexpr int kPanelVectors = 2;
#else
constexpr int kTileRows = 8;
constexpr int kPanelVectors = 3;
#endif
/// Queries that are computed side by side, one per lane.
constexpr std::int64_t kPanelLanes = kPanelVectors * kLanes;

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_SIMD_SIMD_INL_H_
