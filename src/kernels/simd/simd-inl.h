// SPDX-License-Identifier: Apache-2.0
//
// Definitions shared by all kernels: the vector type and the shape of the register tile, per SIMD
// target. Included once per target through hwy/foreach_target.h.

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
using Words = hn::RebindToUnsigned<Floats>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Floats()));

// The register tile has kTileRows x kPanelVectors accumulators. Together with kPanelVectors vectors
// of B and one broadcast element of A, they must fit in the registers: 8 x 3 accumulators with 32
// registers, 4 x 3 with 16. Without a fused multiply-add, the product needs one more register.
#if FOVEA_AMX_TARGET  // the tile unit has other registers
constexpr int kTileRows = 32;
constexpr int kPanelVectors = 2;
#elif HWY_TARGET == HWY_SCALAR
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
/// The number of queries in a panel, one per lane.
constexpr std::int64_t kPanelLanes = kPanelVectors * kLanes;

/// Returns the number of tiles that `count` rows fill.
constexpr std::int64_t tiles_of(std::int64_t count) { return (count + kTileRows - 1) / kTileRows; }

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_SIMD_SIMD_INL_H_
