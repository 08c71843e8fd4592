// SPDX-License-Identifier: Apache-2.0
//
// Products of pairs of bfloat16, and rounding to bfloat16: the instructions of AVX512_BF16, and
// with FOVEA_EMULATED an emulation for tests (Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 2, VDPBF16PS and VCVTNEPS2BF16).
//
// Included only by source files that are compiled for these instructions, or with FOVEA_EMULATED
// (bf16_target-inl.h, amx_target-inl.h).

#pragma once

#include <immintrin.h>

#include "kernels/simd/emulation-inl.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

#if FOVEA_EMULATED

/// Returns sum plus, per lane, the dot product of two pairs: the product of the odd elements is
/// added first, and each addition is rounded.
HWY_INLINE Vector add_products_of_pairs(__m512i a, __m512i b, Vector sum) {
  const hn::Vec<Words> x{a}, y{b};
  const Vector odd =
      emulation::multiply_add(emulation::odd_of(x), emulation::odd_of(y), emulation::flushed(sum));
  return emulation::multiply_add(emulation::even_of(x), emulation::even_of(y), odd);
}

/// Returns x as 16 bfloat16.
HWY_INLINE __m256i round_to_bf16(Vector x) {
  return _mm512_cvtepi32_epi16(emulation::rounded(x).raw);
}

/// Returns first, then second, as 32 bfloat16.
HWY_INLINE __m512i round_to_bf16(Vector first, Vector second) {
  return _mm512_inserti64x4(_mm512_zextsi256_si512(round_to_bf16(first)), round_to_bf16(second), 1);
}

#else

HWY_INLINE Vector add_products_of_pairs(__m512i a, __m512i b, Vector sum) {
  return Vector{
      _mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
}

HWY_INLINE __m256i round_to_bf16(Vector x) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.raw));
}

HWY_INLINE __m512i round_to_bf16(Vector first, Vector second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.raw, first.raw));
}

#endif

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
