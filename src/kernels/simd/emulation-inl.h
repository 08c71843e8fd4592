// SPDX-License-Identifier: Apache-2.0
//
// Parts of the emulated instructions on bfloat16 (bf16_pairs-inl.h, tile_unit-inl.h). These round
// to nearest even, read subnormal numbers as zeros and flush subnormal results, whatever the mode
// of the thread.

#pragma once

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE::emulation {

/// Returns x with subnormal numbers as zeros of the same sign.
HWY_INLINE Vector flushed(Vector x) {
  const Words words;
  const auto bits = hn::BitCast(words, x);
  const auto tiny = hn::Lt(hn::And(bits, hn::Set(words, 0x7fffffffu)), hn::Set(words, 0x00800000u));
  return hn::BitCast(Floats(),
                     hn::IfThenElse(tiny, hn::And(bits, hn::Set(words, 0x80000000u)), bits));
}

/// Returns the even or the odd bfloat16 of each pair.
HWY_INLINE Vector even_of(hn::Vec<Words> pairs) {
  return flushed(hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs)));
}
HWY_INLINE Vector odd_of(hn::Vec<Words> pairs) {
  return flushed(hn::BitCast(Floats(), hn::And(pairs, hn::Set(Words(), 0xffff0000u))));
}

HWY_INLINE Vector multiply_add(Vector a, Vector b, Vector sum) {
  return flushed(hn::MulAdd(a, b, sum));
}

/// Returns x rounded to bfloat16, in the lower half of each word.
HWY_INLINE hn::Vec<Words> rounded(Vector x) {
  const Words words;
  const auto bits = hn::BitCast(words, flushed(x));
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto nearest = hn::Add(bits, hn::Add(is_odd, hn::Set(words, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(words, 0x00400000u));
  const auto nan = hn::RebindMask(words, hn::IsNaN(x));
  return hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, nearest));
}

}  // namespace fovea::kernels::HWY_NAMESPACE::emulation
HWY_AFTER_NAMESPACE();
