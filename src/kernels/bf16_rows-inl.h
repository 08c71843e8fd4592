// SPDX-License-Identifier: Apache-2.0
//
// The products of decoding (rows-inl.h) in bfloat16, by AVX-512's vdpbf16ps: queries and keys are
// pairs of neighbouring dimensions as they lie in memory; for the context, pairs of neighbouring
// keys are made of two rows of values. Interleaving two rows works within 128 bits, so that the
// columns of a context are out of order until the end. Weights are rounded to bfloat16.
//
// Included by decode_bf16.cc alone, for processors that have the instruction.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/decode.h"
#include "kernels/rows-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Products of bfloat16; as FloatRows (decode-inl.h).
struct Bf16Rows {
  static constexpr bool kScalesQueries = false;
  /// Numbers of 16 bits in a vector.
  static constexpr std::int64_t kHalves = 32;

  static std::int64_t vectors(std::int64_t dim) { return (dim + kHalves - 1) / kHalves; }
  static std::int64_t query_size(std::int64_t dim) { return vectors(dim) * kLanes; }
  static std::int64_t context_size(std::int64_t dim) { return vectors(dim) * kHalves; }

  static void load_query(const InputRows& rows, std::int64_t row, std::int64_t offset,
                         std::int64_t dim, float, float* to) {
    std::memcpy(to, rows.row_as<BFloat16>(row) + offset,
                static_cast<std::size_t>(dim) * sizeof(BFloat16));
  }

  static void score(const float* queries, std::int64_t query_stride, std::int64_t rows,
                    const InputRows& keys, std::int64_t count, std::int64_t dim, float* scores,
                    std::int64_t score_stride) {
    // Four queries stay in the registers up to 128 dimensions, two up to 256.
    const std::int64_t held = vectors(dim) <= 4 ? 4 : vectors(dim) <= 8 ? 2 : 1;
    const std::int64_t together = rows > held ? kKeysTogether : count;
    for (std::int64_t k = 0; k < count; k += together) {
      const std::int64_t here = std::min(together, count - k);
      const BFloat16* const at = keys.row_as<BFloat16>(k);
      for (std::int64_t r = 0; r < rows;) {
        const float* const query = queries + r * query_stride;
        float* const to = scores + r * score_stride + k;
        if (held == 4 && rows - r >= 4) {
          score_rows<4, 4>(query, query_stride, at, keys.stride, here, dim, to, score_stride);
          r += 4;
        } else if (held >= 2 && rows - r >= 2) {
          score_rows<2, 8>(query, query_stride, at, keys.stride, here, dim, to, score_stride);
          r += 2;
        } else if (vectors(dim) <= 8) {
          score_rows<1, 8>(query, query_stride, at, keys.stride, here, dim, to, score_stride);
          r += 1;
        } else {
          score_row(query, at, keys.stride, here, dim, to);
          r += 1;
        }
      }
    }
  }

  static void add(const InputRows& values, std::int64_t count, std::int64_t dim,
                  const float* weights, std::int64_t weight_stride, std::int64_t rows,
                  float* context, std::int64_t context_stride) {
    for (std::int64_t k = 0; k < count; k += kValuesTogether) {
      const std::int64_t here = std::min(kValuesTogether, count - k);
      const BFloat16* const at = values.row_as<BFloat16>(k);
      for (std::int64_t r = 0; r < rows; r += kMostWeightRows) {
        const std::int64_t several = std::min(kMostWeightRows, rows - r);
        const Weights rounded(weights + r * weight_stride + k, weight_stride, several, here);
        for (std::int64_t v = 0; v < vectors(dim); v += kMostVectors) {
          add_columns<kMostVectors>(at + v * kHalves, values.stride, here, dim - v * kHalves,
                                    rounded, several, context + r * context_stride + v * kHalves,
                                    context_stride);
        }
      }
    }
  }

  static void store_context(const float* context, std::int64_t dim, float* to) {
    for (std::int64_t c = 0; c < dim; ++c) {
      // Column 8 b + i of a block of 32 is in the lower vector for i < 4, else in the upper one.
      const std::int64_t within = c % kHalves;
      const std::int64_t upper = within % 8 / 4;
      to[c] = context[c - within + upper * kLanes + within / 8 * 4 + within % 4];
    }
  }

 private:
  static HWY_INLINE __m512i load(const BFloat16* from, std::int64_t left) {
    if (left >= kHalves) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16((std::uint32_t{1} << left) - 1, from);
  }
  static HWY_INLINE Vector dot(Vector sum, __m512i a, __m512i b) {
    return Vector{
        _mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }

  /// As rows-inl.h's score_rows, for queries of at most kVectors vectors.
  template <int kRows, int kVectors>
  static HWY_INLINE void score_rows(const float* queries, std::int64_t query_stride,
                                    const BFloat16* keys, std::int64_t key_stride,
                                    std::int64_t count, std::int64_t dim, float* scores,
                                    std::int64_t score_stride) {
    const Floats d;
    const auto used = static_cast<int>(vectors(dim));
    __m512i held[kRows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        held[r][v] = v < used ? _mm512_load_si512(queries + r * query_stride + v * kLanes)
                              : _mm512_setzero_si512();
      }
    }
    const auto score = [&](const BFloat16* const(&at)[4], float(&four)[kRows][4]) FOVEA_LAMBDA {
      Vector sums[kRows][4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sums[r][i] = hn::Zero(d);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          if (v >= used) break;
          const __m512i x = load(at[i] + v * kHalves, dim - v * kHalves);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) sums[r][i] = dot(sums[r][i], x, held[r][v]);
        }
        end_of_row();
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) store_sums_of_4(sums[r], four[r]);
    };
    for_4_keys<kRows>(keys, key_stride, count, scores, score_stride, score);
  }

  /// One query that registers don't hold.
  static void score_row(const float* query, const BFloat16* keys, std::int64_t key_stride,
                        std::int64_t count, std::int64_t dim, float* scores) {
    const Floats d;
    const auto score = [&](const BFloat16* const(&at)[4], float(&four)[1][4]) FOVEA_LAMBDA {
      Vector sums[4];
      for (int i = 0; i < 4; ++i) {
        sums[i] = hn::Zero(d);
        for (std::int64_t v = 0; v < vectors(dim); ++v) {
          sums[i] = dot(sums[i], load(at[i] + v * kHalves, dim - v * kHalves),
                        _mm512_load_si512(query + v * kLanes));
        }
        end_of_row();
      }
      store_sums_of_4(sums, four[0]);
    };
    for_4_keys<1>(keys, key_stride, count, scores, 0, score);
  }

  /// Keys whose values one row of sums after the other is added up from, while they stay in the
  /// first cache.
  static constexpr std::int64_t kValuesTogether = 16;
  static constexpr std::int64_t kMostWeightRows = 4;
  /// Vectors of values whose sums, twice as many for each of two rows, stay in registers.
  static constexpr int kMostVectors = 4;

  /// Some rows of weights for a few keys, rounded, and zeros beyond the last.
  struct Weights {
    alignas(64) BFloat16 numbers[kMostWeightRows][kValuesTogether];

    Weights(const float* weights, std::int64_t stride, std::int64_t rows, std::int64_t count) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const __m512 x = _mm512_maskz_loadu_ps(
            static_cast<__mmask16>((std::uint32_t{1} << count) - 1), weights + r * stride);
        _mm256_store_si256(reinterpret_cast<__m256i*>(numbers[r]),
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
      }
    }
    /// Those of keys k and k + 1, in every lane.
    HWY_INLINE __m512i pair(std::int64_t row, std::int64_t k) const {
      std::int32_t both;
      std::memcpy(&both, &numbers[row][k], sizeof both);
      return _mm512_set1_epi32(both);
    }
  };

  /// The sums of at most kVectors vectors of columns, for as many rows at a time as fit the
  /// registers.
  template <int kVectors>
  static HWY_INLINE void add_columns(const BFloat16* values, std::int64_t value_stride,
                                     std::int64_t count, std::int64_t columns,
                                     const Weights& weights, std::int64_t rows, float* context,
                                     std::int64_t context_stride) {
    if constexpr (kVectors > 1) {
      if (columns <= (kVectors - 1) * kHalves) {
        return add_columns<kVectors - 1>(values, value_stride, count, columns, weights, rows,
                                         context, context_stride);
      }
    }
    constexpr int kRows = kVectors <= 2 ? 4 : 2;
    std::int64_t r = 0;
    for (; r + kRows <= rows; r += kRows) {
      add_rows<kRows, kVectors>(values, value_stride, count, columns, weights, r,
                                context + r * context_stride, context_stride);
    }
    for (; r < rows; ++r) {
      add_rows<1, kVectors>(values, value_stride, count, columns, weights, r,
                            context + r * context_stride, context_stride);
    }
  }

  template <int kRows, int kVectors>
  static HWY_INLINE void add_rows(const BFloat16* values, std::int64_t value_stride,
                                  std::int64_t count, std::int64_t columns, const Weights& weights,
                                  std::int64_t row, float* context, std::int64_t context_stride) {
    const Floats d;
    Vector sums[kRows][2 * kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < 2 * kVectors; ++v) {
        sums[r][v] = hn::Load(d, context + r * context_stride + v * kLanes);
      }
    }
    for (std::int64_t k = 0; k < count; k += 2) {
      // A last key by itself is paired with zeros.
      const bool pair = k + 1 < count;
      const BFloat16* const even = values + k * value_stride;
      __m512i x[kVectors], y[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = load(even + v * kHalves, columns - v * kHalves);
      end_of_row();
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        y[v] = pair ? load(even + value_stride + v * kHalves, columns - v * kHalves)
                    : _mm512_setzero_si512();
      }
      end_of_row();
      __m512i weight[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) weight[r] = weights.pair(row + r, k);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m512i low = _mm512_unpacklo_epi16(x[v], y[v]);
        const __m512i high = _mm512_unpackhi_epi16(x[v], y[v]);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          sums[r][2 * v] = dot(sums[r][2 * v], low, weight[r]);
          sums[r][2 * v + 1] = dot(sums[r][2 * v + 1], high, weight[r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < 2 * kVectors; ++v) {
        hn::Store(sums[r][v], d, context + r * context_stride + v * kLanes);
      }
    }
  }
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
