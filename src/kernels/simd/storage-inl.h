// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores of tensor elements of any storage type as vectors of float32.

#if defined(FOVEA_KERNELS_SIMD_STORAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_SIMD_STORAGE_INL_H_
#undef FOVEA_KERNELS_SIMD_STORAGE_INL_H_
#else
#define FOVEA_KERNELS_SIMD_STORAGE_INL_H_
#endif

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fovea/half.h"
#include "fovea/tensor.h"

#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Loads one element per lane of `d`, converted to float32.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const Float16* from) {
  const hn::Rebind<hwy::float16_t, D> halves;
  const hn::RebindToUnsigned<decltype(halves)> bits;
  return hn::PromoteTo(
      d, hn::BitCast(halves, hn::LoadU(bits, reinterpret_cast<const std::uint16_t*>(from))));
}
#else
/// For targets without a float16 conversion. Exponent and fraction are shifted to their positions
/// in a float; multiplying by 2^112 then corrects the exponent bias, also for subnormals. For
/// infinity and NaN, all exponent bits are set.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const Float16* from) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto bits =
      hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000)));
  const auto size = hn::ShiftLeft<13>(hn::And(bits, hn::Set(words, 0x7fff)));
  const auto number = hn::BitCast(words, hn::Mul(hn::BitCast(d, size), hn::Set(d, 0x1p112F)));
  const auto top = hn::Set(words, 0x7c00u << 13);
  const auto special = hn::Eq(hn::And(size, top), top);
  const auto all = hn::IfThenElse(special, hn::Or(size, hn::Set(words, 0x7f800000)), number);
  return hn::BitCast(d, hn::Or(sign, all));
}
#endif

/// Loads the first `count` elements, fewer than the lanes of `d`, and zeros the other lanes.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, std::int64_t count) {
  alignas(64) T padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(T));
  return load_floats(d, padded);
}
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const float* from, std::int64_t count) {
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
}
#endif

template <class D>
HWY_INLINE void store_floats(D d, hn::Vec<D> x, float* to) {
  hn::StoreU(x, d, to);
}
/// Rounds to nearest, ties to even. NaN stays NaN; it is detected with Not(Eq), because hn::Ne is
/// false for two NaNs on x86.
template <class D>
HWY_INLINE void store_floats(D, hn::Vec<D> x, BFloat16* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto bits = hn::BitCast(words, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(words, 0x40));
  const auto nan = hn::RebindMask(words, hn::Not(hn::Eq(x, x)));
  hn::StoreU(hn::TruncateTo(halves, hn::IfThenElse(nan, quiet, rounded)), halves,
             reinterpret_cast<std::uint16_t*>(to));
}
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
template <class D>
HWY_INLINE void store_floats(D d, hn::Vec<D> x, Float16* to) {
  const hn::Rebind<hwy::float16_t, D> halves;
  const hn::RebindToUnsigned<decltype(halves)> bits;
  hn::StoreU(hn::BitCast(bits, hn::DemoteTo(halves, x)), bits,
             reinterpret_cast<std::uint16_t*>(to));
}
#else
/// For targets without a float16 conversion. Values that are normal in binary16 are rounded with
/// integer arithmetic. Smaller values are rounded by adding 1/2, after which the low bits of the
/// float are the binary16 bits.
template <class D>
HWY_INLINE void store_floats(D d, hn::Vec<D> x, Float16* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto bits = hn::BitCast(words, x);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 0x8000));
  const auto size = hn::And(bits, hn::Set(words, 0x7fffffff));
  const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(words, 1));
  const auto rebiased = hn::Sub(hn::Add(size, hn::Set(words, 0xfff)), hn::Set(words, 112u << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));
  const auto half = hn::Set(d, 0.5F);
  const auto small =
      hn::Sub(hn::BitCast(words, hn::Add(hn::BitCast(d, size), half)), hn::BitCast(words, half));
  const auto quiet =
      hn::Or(hn::Set(words, 0x7e00), hn::And(hn::ShiftRight<13>(size), hn::Set(words, 0x3ff)));
  // The sign bit of `size` is clear, so signed comparison is correct.
  const auto above = [&](std::int32_t bound) {
    return hn::RebindMask(words, hn::Gt(hn::BitCast(di, size), hn::Set(di, bound)));
  };
  auto result = hn::IfThenElse(above(0x387fffff), normal, small);              // 2^-14 and more
  result = hn::IfThenElse(above(0x477fefff), hn::Set(words, 0x7c00), result);  // 65520 and more
  result = hn::IfThenElse(above(0x7f800000), quiet, result);
  hn::StoreU(hn::TruncateTo(halves, hn::Or(sign, result)), halves,
             reinterpret_cast<std::uint16_t*>(to));
}
#endif

/// Converts `count` floats to T.
template <class T>
HWY_INLINE void write_numbers(const float* from, std::int64_t count, T* to) {
  const Floats d;
  const hn::CappedTag<float, 1> one;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_floats(d, hn::LoadU(d, from + i), to + i);
  for (; i < count; ++i) store_floats(one, hn::LoadU(one, from + i), to + i);
}

/// Calls act(static_cast<const T*>(nullptr)), where T is the C++ element type of `dtype`.
template <class Act>
HWY_INLINE auto with_element_type(DType dtype, const Act& act) {
  switch (dtype) {
    case DType::kBFloat16:
      return act(static_cast<const BFloat16*>(nullptr));
    case DType::kFloat16:
      return act(static_cast<const Float16*>(nullptr));
    default:
      assert(dtype == DType::kFloat32);
      return act(static_cast<const float*>(nullptr));
  }
}

/// Returns one tensor element as float32.
inline float number_at(const InputRows& rows, std::int64_t row, std::int64_t column) {
  return with_element_type(rows.dtype, [&](auto* type) {
    using T = std::remove_cvref_t<decltype(*type)>;
    return static_cast<float>(rows.row_as<T>(row)[column]);
  });
}

inline bool row_is_finite(const InputRows& rows, std::int64_t row, std::int64_t dim) {
  for (std::int64_t c = 0; c < dim; ++c) {
    if (!std::isfinite(number_at(rows, row, c))) return false;
  }
  return true;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_SIMD_STORAGE_INL_H_
