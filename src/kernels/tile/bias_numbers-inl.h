// SPDX-License-Identifier: Apache-2.0
//
// Numbers of dense biases as float32.

#if defined(FOVEA_KERNELS_TILE_BIAS_NUMBERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_BIAS_NUMBERS_INL_H_
#undef FOVEA_KERNELS_TILE_BIAS_NUMBERS_INL_H_
#else
#define FOVEA_KERNELS_TILE_BIAS_NUMBERS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fovea/tensor.h"

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Calls act(pointer) with a null pointer to the element type of a dense bias.
template <class Act>
HWY_INLINE void with_bias_type(DType dtype, const Act& act) {
  if (dtype == DType::kFloat64) {
    act(static_cast<const double*>(nullptr));
  } else {
    with_element_type(dtype, act);
  }
}

/// Returns a number of a dense bias as float32. Only -inf masks, so finite numbers stay finite.
template <class T>
float bias_number(T number) {
  if constexpr (std::is_same_v<T, double>) {
    constexpr double kMost = std::numeric_limits<float>::max();
    if (std::isfinite(number)) number = std::clamp(number, -kMost, kMost);
  }
  return static_cast<float>(number);
}

/// Loads one number of a bias per lane, converted as by bias_number().
template <class T>
HWY_INLINE Vector bias_numbers(const T* from) {
  return load_floats(Floats(), from);
}
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
/// Converts each number by itself: DemoteTo() of EMU128, the scalar target of newer versions of
/// Highway, converts infinity to a finite number.
HWY_INLINE Vector bias_numbers(const double* from) {
  HWY_ALIGN float numbers[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) numbers[i] = bias_number(from[i]);
  return hn::Load(Floats(), numbers);
}
#else
HWY_INLINE Vector bias_numbers(const double* from) {
  const hn::Half<Floats> half;
  const hn::Rebind<double, hn::Half<Floats>> doubles;
  const auto most = hn::Set(doubles, static_cast<double>(std::numeric_limits<float>::max()));
  const auto load = [&](const double* at) HWY_ATTR {
    const auto x = hn::LoadU(doubles, at);
    const auto clamped = hn::CopySign(hn::Min(hn::Abs(x), most), x);
    return hn::DemoteTo(half, hn::IfThenElse(hn::IsFinite(x), clamped, x));
  };
  return hn::Combine(Floats(), load(from + kLanes / 2), load(from));
}
#endif

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_BIAS_NUMBERS_INL_H_
