// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh and the logistic function without branches or calls, so that compilers vectorize loops
// over them. The C library's versions would take most of the time of a small recurrent layer. For
// float64, which is only used to check gradients by finite differences, the C library is used.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fovea::nn::elementary {

/// exp(x) = power * (1 + rest), where power is a power of two and rest = e^remainder - 1.
struct ExpParts {
  float power, rest;
};

/// Returns the parts of exp(x) for x in [-87, 88]. |remainder| <= ln(2) / 2, where the series up to
/// the seventh power has an error of at most 2^-27 relative to e^remainder.
inline ExpParts exp_parts(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;      // few significant bits, so that k * this is exact
  constexpr float kLn2Low = -2.12194440e-4f;    // ln(2) - kLn2High
  constexpr float kRounder = 1.5f * 0x1p23f;    // floats of this magnitude have an ulp of 1
  const float shifted = x * kLog2E + kRounder;  // the low bits hold the exponent as an integer
  const float k = shifted - kRounder;
  const float r = (x - k * kLn2High) - k * kLn2Low;
  const float tail =
      1.0f / 2 +
      r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040)))));
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(shifted) << 23;
  return {std::bit_cast<float>(bits + (127u << 23)), r + r * r * tail};
}

/// Returns exp(x), clamped to [1.6e-38, 1.7e38], with an error of at most 2 ulp. NaN gives NaN.
inline float exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const ExpParts e = exp_parts(x);
  return e.power + e.power * e.rest;
}
inline double exp(double x) { return std::exp(x); }

/// Returns tanh(x) = (e - 1) / (e + 1) with e = exp(2 |x|), where e - 1 is computed without
/// cancellation. The error is at most 4 ulp. NaN gives NaN.
inline float tanh(float x) {
  float twice = 2.0f * std::abs(x);
  twice = twice > 20.0f ? 20.0f : twice;  // tanh rounds to 1 from here on
  const ExpParts e = exp_parts(twice);
  const float less_one = e.power * e.rest + (e.power - 1.0f);
  return std::copysign(less_one / (less_one + 2.0f), x);
}
inline double tanh(double x) { return std::tanh(x); }

/// Returns 1 / (1 + exp(-x)).
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace fovea::nn::elementary
