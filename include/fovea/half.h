// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floating-point types, for storage rather than arithmetic.

#pragma once

#include <bit>
#include <cstdint>

namespace fovea {

namespace half_detail {

/// Rounds `x` to odd: an inexact result is truncated toward zero, and its last bit is set. Rounding
/// the result to fewer bits then gives the same as rounding `x` directly (Boldo and Melquiond
/// 2008).
constexpr float rounded_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double error = static_cast<double>(nearest) - x;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  // The result is exact, NaN, or so large that it is infinite in either 16-bit type.
  if (!(error != 0.0) || (bits & 0x7fffffff) >= 0x7f800000) return nearest;
  const bool away_from_zero = (error > 0.0) == (x > 0.0);
  if (away_from_zero) --bits;
  return std::bit_cast<float>(bits | 1);
}

/// Shifts right, rounding to nearest, ties to even.
constexpr std::uint32_t shifted(std::uint32_t x, int by) {
  const std::uint32_t half = std::uint32_t{1} << (by - 1);
  return (x + half - 1 + ((x >> by) & 1)) >> by;
}

}  // namespace half_detail

/// bfloat16: the upper half of a float, with 8 bits of precision and the range of float.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  constexpr explicit BFloat16(float x) : bits(rounded(std::bit_cast<std::uint32_t>(x))) {}
  constexpr explicit BFloat16(double x) : BFloat16(half_detail::rounded_to_odd(x)) {}
  /// Exact.
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  constexpr explicit operator double() const { return static_cast<float>(*this); }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t x) {
    const bool nan = (x & 0x7fffffff) > 0x7f800000;
    return static_cast<std::uint16_t>(nan ? (x >> 16) | 0x40 : half_detail::shifted(x, 16));
  }
};

/// IEEE 754 binary16: 11 bits of precision, magnitudes from 6e-8 to 65504.
struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  /// Rounds to nearest, ties to even. Magnitudes from 65520 on become infinity; NaN stays NaN.
  constexpr explicit Float16(float x) : bits(rounded(std::bit_cast<std::uint32_t>(x))) {}
  constexpr explicit Float16(double x) : Float16(half_detail::rounded_to_odd(x)) {}
  /// Exact.
  constexpr explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t exponent = bits >> 10 & 0x1f;
    const std::uint32_t fraction = bits & 0x3ff;
    if (exponent == 0) {  // subnormal, or zero: fraction * 2^-24
      const float size = static_cast<float>(fraction) * 0x1p-24F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
    }
    const std::uint32_t biased = exponent == 0x1f ? 0xff : exponent + (127 - 15);
    return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
  }
  constexpr explicit operator double() const { return static_cast<float>(*this); }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t x) {
    const std::uint32_t sign = x >> 16 & 0x8000;
    const std::uint32_t size = x & 0x7fffffff;
    if (size > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);  // 65520
    if (size >= 0x38800000) {                                                  // 2^-14: normal
      const std::uint32_t rebiased = size - (std::uint32_t{127 - 15} << 23);
      return static_cast<std::uint16_t>(sign | half_detail::shifted(rebiased, 13));
    }
    const int exponent = static_cast<int>(size >> 23);
    if (exponent < 127 - 25) return static_cast<std::uint16_t>(sign);  // below 2^-25
    const std::uint32_t fraction = (size & 0x7fffff) | 0x800000;
    return static_cast<std::uint16_t>(sign | half_detail::shifted(fraction, 126 - exponent));
  }
};

}  // namespace fovea
