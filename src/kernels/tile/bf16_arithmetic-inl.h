// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of the tiled passes in bfloat16 with float32 accumulators, using vdpbf16ps of AVX-512.
// Each lane computes the dot product of two pairs of bfloat16 and adds it to a float32 accumulator,
// which is twice the work of a fused multiply-add. All operands are therefore packed in pairs,
// 32-bit words stored as float: dimensions 2c and 2c + 1 for the first product, keys 2k and 2k + 1
// for the second.
//
// Only the weights are rounded, to the type of the values, as in an unfused implementation. Queries
// are used unchanged, and the scale is applied to the scores. vdpbf16ps treats subnormal numbers
// (below 2^-126) as zeros.
//
// Included only by source files that are compiled for processors with this instruction.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/simd/bf16_pairs-inl.h"
#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// A pointer to the elements of a row, which are read as pairs of adjacent elements.
struct Pairs {
  const BFloat16* data;

  Pairs from(std::int64_t element) const { return {data + element}; }
  template <class D>
  HWY_INLINE hn::Vec<D> vector(D d, std::int64_t column) const {
    const hn::Repartition<std::uint16_t, D> halves;
    return hn::BitCast(
        d, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(data + 2 * column)));
  }
  float one(std::int64_t column) const {
    float word;
    std::memcpy(&word, data + 2 * column, sizeof word);
    return word;
  }
};

/// 2^(i / 32)
alignas(64) constexpr float kRootsOfTwo[32] = {
    1.0f,        1.0218972f,  1.04427373f, 1.06714046f, 1.09050775f, 1.1143868f,  1.13878858f,
    1.1637249f,  1.18920708f, 1.21524739f, 1.24185777f, 1.26905096f, 1.29683959f, 1.32523668f,
    1.35425556f, 1.38390994f, 1.41421354f, 1.44518077f, 1.47682619f, 1.50916445f, 1.54221082f,
    1.5759809f,  1.61049032f, 1.64575553f, 1.68179286f, 1.71861935f, 1.75625217f, 1.79470909f,
    1.8340081f,  1.87416768f, 1.91520655f, 1.95714414f};

/// 2^x = factor 2^floor(exponent), with a relative error of 1.8e-7: x is the sum of a multiple of
/// 1/32, whose power is selected from a table by one instruction, and a rest of magnitude at most
/// 1/64, for which a polynomial of degree 2 suffices: three multiplications instead of five. From
/// magnitudes of 2^17 on, the rest is larger, but then 2^x is 0 or infinite in float32, whatever
/// the factor. If x is -inf or inf, the factor is NaN; vscalefps returns 0 or inf all the same.
struct SplitExp2 {
  Vector factor, exponent;

  HWY_INLINE explicit SplitExp2(Vector x) {
    const Floats d;
    // Adding 1.5 * 2^18 rounds x to a multiple of 1/32, whose place between two integers is in the
    // low five bits.
    const Vector magic = hn::Set(d, 393216.0f);
    const Vector shifted = hn::Add(x, magic);
    exponent = hn::Sub(shifted, magic);
    const Vector rest = hn::Sub(x, exponent);
    const Vector root{_mm512_permutex2var_ps(_mm512_load_ps(kRootsOfTwo),
                                             _mm512_castps_si512(shifted.raw),
                                             _mm512_load_ps(kRootsOfTwo + 16))};
    const Vector slope = hn::MulAdd(hn::Set(d, 0.2402264923f), rest, hn::Set(d, 0.6931573153f));
    factor = hn::MulAdd(slope, hn::Mul(rest, root), root);
  }
};

struct Bf16Arithmetic {
  static constexpr std::int64_t kPerStep = 2;
  static constexpr bool kScalesQueries = false;

  static HWY_INLINE Vector multiply_add(Vector a, Vector b, Vector sum) {
    return add_products_of_pairs(_mm512_castps_si512(a.raw), _mm512_castps_si512(b.raw), sum);
  }

  static void load_queries(const InputRows& rows, std::int64_t first, std::int64_t count,
                           std::int64_t dim, float factor, float* to) {
    pack_pairs(rows.row_as<BFloat16>(first), rows.stride, count, dim, to, kPanelLanes);
    if (factor >= 0.0f) return;
    // The factor applied to the scores later is positive, so that the largest product gives the
    // largest score. The sign of the factor is applied here.
    const hn::RebindToUnsigned<Floats> du;
    auto* words = reinterpret_cast<std::uint32_t*>(to);
    for (std::int64_t c = 0; c < (dim + 1) / 2; ++c, words += kPanelLanes) {
      for (std::int64_t lane = 0; lane < count; lane += kLanes) {
        hn::Store(hn::Xor(hn::Load(du, words + lane), hn::Set(du, 0x80008000)), du, words + lane);
      }
    }
  }

  static void pack_keys(const InputRows& rows, std::int64_t first, std::int64_t count,
                        std::int64_t dim, float* to) {
    const std::int64_t tile = (dim + 1) / 2 * kTileRows;
    for (std::int64_t k = 0; k < count; k += kTileRows, to += tile) {
      const std::int64_t here = std::min<std::int64_t>(kTileRows, count - k);
      if (here < kTileRows) std::fill_n(to, tile, 0.0f);
      pack_pairs(rows.row_as<BFloat16>(first + k), rows.stride, here, dim, to, kTileRows);
    }
  }

  static bool pack_values(const InputRows& rows, std::int64_t first, std::int64_t count,
                          std::int64_t kept, std::int64_t dim, float* to,
                          std::int64_t tile_stride) {
    const hn::CappedTag<std::uint32_t, kTileRows> words;
    const hn::Rebind<std::uint16_t, decltype(words)> halves;
    const auto top = hn::Set(words, 0x7f80);  // the exponent of NaN and infinity: all ones
    auto doubt = hn::Zero(words);
    bool rest_doubt = false;
    const std::int64_t whole = dim / kTileRows;
    const std::int64_t rest = dim % kTileRows;
    auto* const out = reinterpret_cast<std::uint32_t*>(to);
    for (std::int64_t k = 0; k < kept; k += 2) {
      const auto* const even = bits_of(rows, first + k, k < count);
      const auto* const odd = bits_of(rows, first + k + 1, k + 1 < count);
      std::uint32_t* row = out + k / 2 * kTileRows;
      for (std::int64_t t = 0; t < whole; ++t) {
        const auto a = load(words, halves, even, t * kTileRows);
        const auto b = load(words, halves, odd, t * kTileRows);
        doubt = hn::Or(doubt, hn::Or(hn::VecFromMask(words, hn::Eq(hn::And(a, top), top)),
                                     hn::VecFromMask(words, hn::Eq(hn::And(b, top), top))));
        hn::StoreU(hn::Or(a, hn::ShiftLeft<16>(b)), words, row + t * tile_stride);
      }
      for (std::int64_t i = 0; i < rest; ++i) {
        const std::int64_t c = whole * kTileRows + i;
        const std::uint32_t a = even == nullptr ? 0 : even[c];
        const std::uint32_t b = odd == nullptr ? 0 : odd[c];
        rest_doubt = rest_doubt || (a & 0x7f80) == 0x7f80 || (b & 0x7f80) == 0x7f80;
        out[whole * tile_stride + k / 2 * rest + i] = a | b << 16;
      }
    }
    return hn::AllTrue(words, hn::Eq(doubt, hn::Zero(words))) && !rest_doubt;
  }

  static void clear_value(float* tile, std::int64_t key, std::int64_t width) {
    auto* const words = reinterpret_cast<std::uint32_t*>(tile) + key / 2 * width;
    const std::uint32_t other = key % 2 == 0 ? 0xffff0000 : 0x0000ffff;
    for (std::int64_t i = 0; i < width; ++i) words[i] &= other;
  }

  static HWY_INLINE void store_weights(Vector first, Vector second, float* weights,
                                       std::int64_t key) {
    // Two instructions round 32 weights and arrange them in pairs.
    const __m512i zipped = _mm512_permutexvar_epi16(zip_order(), round_to_bf16(first, second));
    _mm512_store_si512(weights + key / 2 * kPanelLanes, zipped);
  }
  static float weight(const float* weights, std::int64_t key, std::int64_t lane) {
    const auto word = std::bit_cast<std::uint32_t>(weights[key / 2 * kPanelLanes + lane]);
    return std::bit_cast<float>(key % 2 == 0 ? word << 16 : word & 0xffff0000);
  }

  // Used by the backward pass. Rows hold pairs of queries, whereas store_weights() stores pairs of
  // keys.
  static constexpr bool kRowsArePairs = false;
  static constexpr std::int64_t kRowStride = kPanelLanes / 2;

  /// Returns 2^x as fovea::exp2_of_nonpositive() does, but with a relative error of 2e-7, and
  /// exactly 0 below -126. A larger error would be visible in lse.
  static HWY_INLINE Vector exp2_of_nonpositive(Vector x) {
    const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    const SplitExp2 power(x);
    return Vector{_mm512_maskz_scalef_ps(normal, power.factor.raw, power.exponent.raw)};
  }
  template <int kCount>
  static HWY_INLINE void exp2_of_nonpositive(const Vector* x, Vector* power) {
    HWY_UNROLL(8)
    for (int i = 0; i < kCount; ++i) power[i] = exp2_of_nonpositive(x[i]);
  }

  static HWY_INLINE void store_rows(Vector first, Vector second, float* rows, std::int64_t key,
                                    std::int64_t lane) {
    float* const to = rows + key * kRowStride + lane / 2;
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), round_to_bf16(first));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + kRowStride), round_to_bf16(second));
  }
  static float row_weight(const float* rows, std::int64_t key, std::int64_t lane) {
    const auto word = std::bit_cast<std::uint32_t>(rows[key * kRowStride + lane / 2]);
    return std::bit_cast<float>(lane % 2 == 0 ? word << 16 : word & 0xffff0000);
  }

  static bool pack_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                        std::int64_t kept, std::int64_t dim, float* to, std::int64_t width) {
    const Words d;
    const hn::Rebind<std::uint16_t, Words> halves;
    const auto top = hn::Set(d, 0x7f80);  // the exponent of NaN and infinity: all ones
    auto doubt = hn::Zero(d);
    bool rest_doubt = false;
    auto* const out = reinterpret_cast<std::uint32_t*>(to);
    for (std::int64_t r = 0; r < kept; r += 2) {
      const auto* const even = bits_of(rows, first + r, r < count);
      const auto* const odd = bits_of(rows, first + r + 1, r + 1 < count);
      std::uint32_t* row = out + r / 2 * width;
      std::int64_t c = 0;
      for (; c + kLanes <= dim; c += kLanes) {
        const auto a = load(d, halves, even, c);
        const auto b = load(d, halves, odd, c);
        doubt = hn::Or(doubt, hn::Or(hn::VecFromMask(d, hn::Eq(hn::And(a, top), top)),
                                     hn::VecFromMask(d, hn::Eq(hn::And(b, top), top))));
        hn::Store(hn::Or(a, hn::ShiftLeft<16>(b)), d, row + c);
      }
      for (; c < dim; ++c) {
        const std::uint32_t a = even == nullptr ? 0 : even[c];
        const std::uint32_t b = odd == nullptr ? 0 : odd[c];
        rest_doubt = rest_doubt || (a & 0x7f80) == 0x7f80 || (b & 0x7f80) == 0x7f80;
        row[c] = a | b << 16;
      }
      std::fill(row + dim, row + width, 0u);
    }
    return hn::AllTrue(d, hn::Eq(doubt, hn::Zero(d))) && !rest_doubt;
  }
  static void clear_row(float* rows, std::int64_t row, std::int64_t width) {
    clear_value(rows, row, width);
  }

 private:
  static void pack_pairs(const BFloat16* rows, std::int64_t stride, std::int64_t count,
                         std::int64_t dim, float* to, std::int64_t to_stride) {
    transpose(Pairs{rows}, stride, count, dim / 2, to, to_stride);
    if (dim % 2 == 0) return;
    for (std::int64_t r = 0; r < count; ++r) {  // the last dimension is paired with zero
      const std::uint32_t word = rows[r * stride + dim - 1].bits;
      to[dim / 2 * to_stride + r] = std::bit_cast<float>(word);
    }
  }

  static const std::uint16_t* bits_of(const InputRows& rows, std::int64_t row, bool there) {
    return there ? reinterpret_cast<const std::uint16_t*>(rows.row(row)) : nullptr;
  }
  template <class D, class Halves>
  static HWY_INLINE hn::Vec<D> load(D words, Halves halves, const std::uint16_t* row,
                                    std::int64_t column) {
    return row == nullptr ? hn::Zero(words) : hn::PromoteTo(words, hn::LoadU(halves, row + column));
  }

  /// Returns the permutation 0, 16, 1, 17, ..., which interleaves the halves of a vector.
  static HWY_INLINE __m512i zip_order() {
    const __m512i low = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_or_si512(low,
                           _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16));
  }
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
