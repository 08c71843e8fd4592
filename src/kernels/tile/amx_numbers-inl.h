// SPDX-License-Identifier: Apache-2.0
//
// Numbers for the tile unit, which multiplies bfloat16: bfloat16 itself (AmxBf16), and float32 as a
// sum of three bfloat16 (AmxFloat). Every float32 of normal size is x = x1 + x2 + x3 exactly, 24
// bits in three parts of 8. A product of two such numbers is six products of parts; the three that
// are left out are below 2^-24 of it. The sum of a tile's 32 products is rounded once, so the
// result is more exact than float32 arithmetic term by term (docs/numerics.md).
//
// Layouts. A tile of A has 16 rows of 32 elements: rows of keys for the first product, columns of
// values (one dimension of 32 keys) for the second. A tile of B has 16 rows of pairs, which
// alternate: queries with pairs of dimensions, weights with pairs of keys, both
// [pairs][kPanelLanes]. All parts of a tile of A are adjacent; parts of queries and weights are
// whole matrices, one after the other.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <immintrin.h>

#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/bf16_arithmetic-inl.h"
#include "kernels/tile/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr std::int64_t whole_units(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// Returns 32-bit words with the upper halves of two floats, `first` below `second`.
HWY_INLINE hn::Vec<Words> pair_of(Vector first, Vector second) {
  const __m512i low = _mm512_bsrli_epi128(_mm512_castps_si512(first.raw), 2);
  return hn::Vec<Words>{_mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(second.raw))};
}

/// Returns 2^x with a relative error of 2e-7. Results below 2^-126 are 0 if the processor flushes
/// subnormal numbers to zero, which work items ask for.
HWY_INLINE Vector exp2_of(Vector x) {
  const SplitExp2 power(x);
  return Vector{_mm512_scalef_ps(power.factor.raw, power.exponent.raw)};
}

/// The greatest and the smallest magnitude of some numbers; zeros do not count for the latter.
struct Magnitudes {
  Vector most, least;

  Magnitudes()
      : most(hn::Zero(Floats())),
        least(hn::Set(Floats(), std::numeric_limits<float>::infinity())) {}

  HWY_INLINE void add(Vector x) {
    const Floats d;
    const Words words;
    const Vector size = hn::Abs(x);
    // As integers, so that NaN is the greatest.
    most = hn::BitCast(d, hn::Max(hn::BitCast(words, most), hn::BitCast(words, size)));
    least = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), least, hn::Min(size, least));
  }
  float greatest() const { return hn::GetLane(hn::MaxOfLanes(Floats(), most)); }
  /// Returns whether all are below `bound`, none NaN.
  bool below(float bound) const {
    return hn::AllTrue(Floats(), hn::Lt(most, hn::Set(Floats(), bound)));
  }
  bool at_least(float bound) const {
    return hn::AllTrue(Floats(), hn::Ge(least, hn::Set(Floats(), bound)));
  }
};

/// Returns pairs of floats, `first` below `second`, rounded to bfloat16, to nearest and ties to
/// even.
HWY_INLINE __m512i bf16_pairs(__m512i first, __m512i second) {
  const auto rounded = [](__m512i x) HWY_ATTR {
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(x, odd), _mm512_set1_epi32(0x7fff));
    const __m512 value = _mm512_castsi512_ps(x);
    const __m512i quiet_nan = _mm512_or_si512(x, _mm512_set1_epi32(0x400000));
    return Vector{_mm512_castsi512_ps(
        _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), quiet_nan))};
  };
  return pair_of(rounded(first), rounded(second)).raw;
}

/// Returns pairs of floats, `first` below `second`, rounded to float16, to nearest and ties to
/// even.
HWY_INLINE __m512i half_pairs(__m512i first, __m512i second) {
  const auto rounded = [](__m512i x) HWY_ATTR {
    return _mm512_cvtepu16_epi32(
        _mm512_cvtps_ph(_mm512_castsi512_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  };
  return _mm512_or_si512(rounded(first), _mm512_slli_epi32(rounded(second), 16));
}

/// Turns 16 x 16 words: rows become columns.
HWY_INLINE void turn_words(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int a = i % 4 + i / 4 * 8;
    t[a] = _mm512_shuffle_i32x4(r[a], r[a + 4], 0x88);
    t[a + 4] = _mm512_shuffle_i32x4(r[a], r[a + 4], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/// bfloat16. Only the weights are rounded, to the type of the values, and the gradients of scores.
/// The softmax divides by the sum of the rounded weights, so that rows of weights sum to 1; lse
/// needs another sum, of exact weights.
struct AmxBf16 {
  using Element = BFloat16;
  static constexpr std::int64_t kParts = 1;
  static constexpr std::int64_t kBlockKeys =
      64;  // keys whose scores and weights stay in the L1 cache
  static constexpr bool kScalesQueries = false;
  static constexpr std::int64_t kPerStep = 2;
  static constexpr bool kSumsRoundedWeights = true;

  /// Returns 2^x to 2^-13.7, rounded to bfloat16. The polynomial has half a unit of bfloat16 on
  /// top, so that a cut rounds to nearest.
  static HWY_INLINE Vector weight(Vector x) {
    const Floats d;
    const Words words;
    // x - floor(x), 0 for -inf
    const Vector fraction{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    Vector power = hn::Set(d, 0.07802452f);
    power = hn::MulAdd(power, fraction, hn::Set(d, 0.226067156f));
    power = hn::MulAdd(power, fraction, hn::Set(d, 0.69583356f));
    power = hn::MulAdd(power, fraction, hn::Set(d, 0.9999252f + 0x1p-8f));
    const Vector weight{_mm512_scalef_ps(power.raw, x.raw)};
    return hn::BitCast(
        d, hn::And(hn::BitCast(words, weight), hn::Set(words, std::uint32_t{0xffff0000})));
  }
  static HWY_INLINE Vector exact_weight(Vector x) { return exp2_of(x); }

  /// Stores results of weight(), whose lower halves are zero.
  static HWY_INLINE void store_rounded(Vector first, Vector second, float* weights) {
    const Words d;
    const hn::Vec<Words> low{_mm512_bsrli_epi128(_mm512_castps_si512(first.raw), 2)};
    hn::Store(hn::Or(low, hn::BitCast(d, second)), d, reinterpret_cast<std::uint32_t*>(weights));
  }
  /// Rounds and stores the weights of two adjacent keys, `key` and key + 1.
  static HWY_INLINE void store_weights(Vector first, Vector second, float* weights,
                                       std::int64_t key) {
    store_pair(first, second, weights + key / 2 * kPanelLanes, 0);
  }
  /// Rounds and stores pairs of numbers, to nearest and ties away from zero; in AmxFloat, part
  /// after part.
  static HWY_INLINE void store_pair(Vector first, Vector second, float* to, std::int64_t) {
    const Words d;
    const auto rounded = [&](Vector x) HWY_ATTR {
      return hn::BitCast(Floats(), hn::Add(hn::BitCast(d, x), hn::Set(d, 0x8000)));
    };
    hn::Store(pair_of(rounded(first), rounded(second)), d, reinterpret_cast<std::uint32_t*>(to));
  }
  static bool accepts(const Magnitudes&) { return true; }
  static float weight(const float* weights, std::int64_t key, std::int64_t lane) {
    return Bf16Arithmetic::weight(weights, key, lane);
  }

  static void load_queries(const InputRows& rows, std::int64_t first, std::int64_t count,
                           std::int64_t dim, float factor, float* to) {
    const BFloat16* const from = rows.row_as<BFloat16>(first);
    const std::int64_t steps = whole_units(std::max<std::int64_t>(dim, 1), kUnitDepth) / kUnitDepth;
    // The factor applied to the scores is positive, so that the largest product gives the largest
    // score.
    const __m512i sign = _mm512_set1_epi32(factor < 0.0f ? static_cast<int>(0x80008000) : 0);
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kUnitRows) {
      for (std::int64_t s = 0; s < steps; ++s) {
        __m512i words[16];
        if (count >= lane + kUnitRows && dim >= (s + 1) * kUnitDepth) {
#pragma GCC unroll 16
          for (int r = 0; r < 16; ++r) {
            words[r] = _mm512_xor_si512(
                sign, row_of<true>(from, rows.stride, lane + r, count, s * kUnitDepth, dim));
          }
        } else {
          for (std::int64_t r = 0; r < kUnitRows; ++r) {
            words[r] = _mm512_xor_si512(
                sign, row_of<false>(from, rows.stride, lane + r, count, s * kUnitDepth, dim));
          }
        }
        turn_words(words);
        for (std::int64_t i = 0; i < kUnitRows; ++i) {
          _mm512_store_si512(to + (s * kUnitRows + i) * kPanelLanes + lane, words[i]);
        }
      }
    }
  }

  /// Writes the tile of 16 rows, the last ones zero, and 32 dimensions from `column` on.
  template <bool kWhole>
  static HWY_INLINE void pack_keys(const BFloat16* from, std::int64_t stride, std::int64_t rows,
                                   std::int64_t dims, float* to, Magnitudes&) {
    for (std::int64_t r = 0; r < kUnitRows; ++r, to += 16) {
      _mm512_store_si512(to, row_of<kWhole>(from, stride, r, rows, 0, dims));
    }
  }

  /// Writes two tiles of 16 dimensions each, the last ones zero, and 32 keys. `sizes` collects
  /// the greatest magnitude.
  template <bool kWhole>
  static HWY_INLINE void pack_values(const BFloat16* from, std::int64_t stride, std::int64_t rows,
                                     std::int64_t dims, float* to, Magnitudes& sizes) {
    __m512i low[16], high[16];
    __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      const __m512i even = row_of<kWhole>(from, stride, 2 * k, rows, 0, dims);
      const __m512i odd = row_of<kWhole>(from, stride, 2 * k + 1, rows, 0, dims);
      most = _mm512_max_epu16(most, _mm512_max_epu16(without_signs(even), without_signs(odd)));
      low[k] = _mm512_unpacklo_epi16(even, odd);
      high[k] = _mm512_unpackhi_epi16(even, odd);
    }
    add_magnitudes(most, sizes);
    // Unpacking works within blocks of 8 dimensions: the rows of `low`, turned, are dimensions 0 to
    // 3, 8 to 11, ...
    turn_words(low);
    turn_words(high);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int dim = i / 4 * 8 + i % 4;
      _mm512_store_si512(to + 16 * dim, low[i]);
      _mm512_store_si512(to + 16 * (dim + 4), high[i]);
    }
  }

  /// Writes pairs of the rows r and r + 16 for 32 dimensions, from `column` on. `sizes` collects
  /// the greatest magnitude.
  static HWY_INLINE void pack_row_pair(const BFloat16* from, std::int64_t stride, std::int64_t r,
                                       std::int64_t rows, std::int64_t column, std::int64_t dim,
                                       float* to, std::int64_t, Magnitudes& sizes) {
    alignas(64) static constexpr std::uint16_t kLow[32] = {
        0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low_order = _mm512_load_si512(kLow);
    const __m512i high_order = _mm512_add_epi16(low_order, _mm512_set1_epi16(16));
    const __m512i a = row_of<false>(from, stride, r, rows, column, dim);
    const __m512i b = row_of<false>(from, stride, r + kUnitRows, rows, column, dim);
    add_magnitudes(_mm512_max_epu16(without_signs(a), without_signs(b)), sizes);
    _mm512_store_si512(to, _mm512_permutex2var_epi16(a, low_order, b));
    _mm512_store_si512(to + 16, _mm512_permutex2var_epi16(a, high_order, b));
  }

 private:
  /// As integers without their signs, NaN and infinity are the greatest.
  static HWY_INLINE __m512i without_signs(__m512i x) {
    return _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
  }
  /// Adds the greatest magnitudes of elements.
  static HWY_INLINE void add_magnitudes(__m512i most, Magnitudes& sizes) {
    const Words words;
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    sizes.most =
        hn::BitCast(Floats(), hn::Max(hn::BitCast(words, sizes.most),
                                      hn::Max(hn::Vec<Words>{_mm512_slli_epi32(most, 16)},
                                              hn::Vec<Words>{_mm512_and_si512(most, upper)})));
  }
  /// Returns 32 elements of a row, from `column` on; zeros beyond the last row and dimension,
  /// unless kWhole.
  template <bool kWhole>
  static HWY_INLINE __m512i row_of(const BFloat16* from, std::int64_t stride, std::int64_t row,
                                   std::int64_t rows, std::int64_t column, std::int64_t dim) {
    if constexpr (kWhole) return _mm512_loadu_si512(from + row * stride + column);
    if (row >= rows || column >= dim) return _mm512_setzero_si512();
    const BFloat16* const at = from + row * stride + column;
    if (dim - column >= kUnitDepth) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi16((1u << (dim - column)) - 1u, at);
  }
};

/// float32, as three bfloat16. In keys, queries and values the first part is rounded and the second
/// cut, so that the parts that are left out have either sign; the weights of the forward pass are
/// cut twice. Pairs are dimensions i and i + 16 of 32, keys k and k + 1.
struct AmxFloat {
  using Element = float;
  static constexpr std::int64_t kParts = 3;
  static constexpr std::int64_t kBlockKeys = 32;
  static constexpr bool kScalesQueries = false;
  static constexpr std::int64_t kPerStep = 2;
  static constexpr bool kSumsRoundedWeights = false;
  static constexpr std::int64_t kWeightPart = kBlockKeys / 2 * kPanelLanes;

  /// Whether parts and products of such numbers lose no digits: the tile unit reads subnormal parts
  /// as zeros, and sums of scores must not overflow.
  static bool accepts(const Magnitudes& sizes) {
    return sizes.below(0x1p58f) && sizes.at_least(0x1p-100f);
  }

  static HWY_INLINE Vector weight(Vector x) { return exp2_of(x); }
  static HWY_INLINE Vector exact_weight(Vector x) { return exp2_of(x); }

  static HWY_INLINE void store_rounded(Vector first, Vector second, float* weights) {
    const Words d;
    auto* const to = reinterpret_cast<std::uint32_t*>(weights);
    hn::Store(pair_of(first, second), d, to);
    first = hn::Sub(first, cut(first));
    second = hn::Sub(second, cut(second));
    hn::Store(pair_of(first, second), d, to + kWeightPart);
    first = hn::Sub(first, cut(first));
    second = hn::Sub(second, cut(second));
    hn::Store(pair_of(first, second), d, to + 2 * kWeightPart);
  }
  static HWY_INLINE void store_weights(Vector first, Vector second, float* weights,
                                       std::int64_t key) {
    store_rounded(first, second, weights + key / 2 * kPanelLanes);
  }
  static HWY_INLINE void store_pair(Vector first, Vector second, float* to, std::int64_t stride) {
    store_parts(_mm512_castps_si512(first.raw), _mm512_castps_si512(second.raw), to, stride);
  }
  static float weight(const float* weights, std::int64_t key, std::int64_t lane) {
    float sum = 0.0f;
    for (std::int64_t part = kParts - 1; part >= 0; --part) {
      sum += Bf16Arithmetic::weight(weights + part * kWeightPart, key, lane);
    }
    return sum;
  }

  static void load_queries(const InputRows& rows, std::int64_t first, std::int64_t count,
                           std::int64_t dim, float factor, float* to) {
    const float* const from = rows.row_as<float>(first);
    const std::int64_t steps = whole_units(std::max<std::int64_t>(dim, 1), kUnitDepth) / kUnitDepth;
    const std::int64_t part = steps * kUnitRows * kPanelLanes;
    // The factor applied to the scores is positive, so that the largest product gives the largest
    // score.
    const __m512i sign = _mm512_set1_epi32(factor < 0.0f ? static_cast<int>(0x80000000) : 0);
    for (std::int64_t lane = 0; lane < kPanelLanes; lane += kUnitRows) {
      for (std::int64_t s = 0; s < steps; ++s) {
        __m512i low[16], high[16];
        for (std::int64_t r = 0; r < kUnitRows; ++r) {
          low[r] = _mm512_xor_si512(
              sign, row_of<false>(from, rows.stride, lane + r, count, s * kUnitDepth, dim));
          high[r] = _mm512_xor_si512(
              sign, row_of<false>(from, rows.stride, lane + r, count, s * kUnitDepth + 16, dim));
        }
        turn_words(low);
        turn_words(high);
        for (std::int64_t i = 0; i < kUnitRows; ++i) {
          store_parts(low[i], high[i], to + (s * kUnitRows + i) * kPanelLanes + lane, part);
        }
      }
    }
  }
  static HWY_INLINE void pack_row_pair(const float* from, std::int64_t stride, std::int64_t r,
                                       std::int64_t rows, std::int64_t column, std::int64_t dim,
                                       float* to, std::int64_t part, Magnitudes& sizes) {
    for (std::int64_t c = column; c < column + 32; c += 16, to += 16) {
      const __m512i a = row_of<false>(from, stride, r, rows, c, dim);
      const __m512i b = row_of<false>(from, stride, r + kUnitRows, rows, c, dim);
      sizes.add(Vector{_mm512_castsi512_ps(a)});
      sizes.add(Vector{_mm512_castsi512_ps(b)});
      store_parts(a, b, to, part);
    }
  }
  /// Adds the magnitudes of rows.
  static void add_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                       std::int64_t dim, Magnitudes& sizes) {
    const float* const from = rows.row_as<float>(first);
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t c = 0; c < dim; c += 16) {
        sizes.add(Vector{_mm512_castsi512_ps(row_of<false>(from, rows.stride, r, count, c, dim))});
      }
    }
  }

  template <bool kWhole>
  static HWY_INLINE void pack_keys(const float* from, std::int64_t stride, std::int64_t rows,
                                   std::int64_t dims, float* to, Magnitudes& sizes) {
    for (std::int64_t r = 0; r < kUnitRows; ++r, to += 16) {
      const __m512i low = row_of<kWhole>(from, stride, r, rows, 0, dims);
      const __m512i high = row_of<kWhole>(from, stride, r, rows, 16, dims);
      sizes.add(Vector{_mm512_castsi512_ps(low)});
      sizes.add(Vector{_mm512_castsi512_ps(high)});
      store_parts(low, high, to, kUnitFloats);
    }
  }

  template <bool kWhole>
  static HWY_INLINE void pack_values(const float* from, std::int64_t stride, std::int64_t rows,
                                     std::int64_t dims, float* to, Magnitudes& sizes) {
    for (std::int64_t c = 0; c < 32; c += 16, to += kParts * kUnitFloats) {
      alignas(64) float parts[kParts * kUnitFloats];
      for (std::int64_t k = 0; k < kUnitRows; ++k) {
        const __m512i even = row_of<kWhole>(from, stride, 2 * k, rows, c, dims);
        const __m512i odd = row_of<kWhole>(from, stride, 2 * k + 1, rows, c, dims);
        sizes.add(Vector{_mm512_castsi512_ps(even)});
        sizes.add(Vector{_mm512_castsi512_ps(odd)});
        store_parts(even, odd, parts + 16 * k, kUnitFloats);
      }
      for (std::int64_t part = 0; part < kParts; ++part) {
        __m512i words[16];
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) {
          words[k] = _mm512_load_si512(parts + part * kUnitFloats + 16 * k);
        }
        turn_words(words);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm512_store_si512(to + part * kUnitFloats + 16 * i, words[i]);
        }
      }
    }
  }

 private:
  static HWY_INLINE Vector cut(Vector x) {
    return Vector{_mm512_castsi512_ps(_mm512_and_si512(
        _mm512_castps_si512(x.raw), _mm512_set1_epi32(static_cast<int>(0xffff0000))))};
  }
  /// Rounds to bfloat16 by an integer addition, which may carry into the exponent.
  static HWY_INLINE Vector round(Vector x) {
    return cut(Vector{_mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(x.raw), _mm512_set1_epi32(0x8000)))});
  }
  /// Writes the parts of two vectors of floats as pairs, `stride` floats apart.
  static HWY_INLINE void store_parts(__m512i first, __m512i second, float* to,
                                     std::int64_t stride) {
    const Words d;
    auto* const words = reinterpret_cast<std::uint32_t*>(to);
    Vector a{_mm512_castsi512_ps(first)}, b{_mm512_castsi512_ps(second)};
    const Vector a1 = round(a), b1 = round(b);
    hn::Store(pair_of(a1, b1), d, words);
    a = hn::Sub(a, a1);
    b = hn::Sub(b, b1);
    hn::Store(pair_of(a, b), d, words + stride);
    a = hn::Sub(a, cut(a));
    b = hn::Sub(b, cut(b));
    hn::Store(pair_of(a, b), d, words + 2 * stride);
  }
  /// Returns 16 elements of a row, from `column` on; zeros beyond the last row and dimension,
  /// unless kWhole.
  template <bool kWhole>
  static HWY_INLINE __m512i row_of(const float* from, std::int64_t stride, std::int64_t row,
                                   std::int64_t rows, std::int64_t column, std::int64_t dim) {
    if constexpr (kWhole) return _mm512_loadu_si512(from + row * stride + column);
    if (row >= rows || column >= dim) return _mm512_setzero_si512();
    const float* const at = from + row * stride + column;
    if (dim - column >= 16) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << (dim - column)) - 1u), at);
  }
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
