// SPDX-License-Identifier: Apache-2.0
//
// The products of decoding (rows-inl.h) in bfloat16, with AVX-512's vdpbf16ps. The first product
// needs pairs of adjacent dimensions, which queries and keys already are in memory. The second
// product needs pairs of adjacent keys, so two rows of values are interleaved. Interleaving works
// within 128-bit blocks, so the columns of a context are permuted while it is accumulated. Weights
// are rounded to bfloat16.
//
// Included only by decode_bf16.cc, which is compiled for processors with the instruction.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/decode/decode.h"
#include "kernels/decode/runs-inl.h"
#include "kernels/simd/bf16_pairs-inl.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Arithmetic in bfloat16, with the interface of FloatRows (decode-inl.h).
struct Bf16Rows {
  static constexpr bool kScalesQueries = false;
  /// 16-bit elements per vector.
  static constexpr std::int64_t kHalves = 32;

  static std::int64_t vectors(std::int64_t dim) { return (dim + kHalves - 1) / kHalves; }
  static std::int64_t query_size(std::int64_t dim) { return vectors(dim) * kLanes; }
  static std::int64_t context_size(std::int64_t dim) { return vectors(dim) * kHalves; }

  static void load_query(const InputRows& rows, std::int64_t row, std::int64_t offset,
                         std::int64_t dim, float, float* to) {
    std::memcpy(to, rows.row_as<BFloat16>(row) + offset,
                static_cast<std::size_t>(dim) * sizeof(BFloat16));
  }

  template <class Act>
  static HWY_INLINE void with_type(DType, const Act& act) {
    act(static_cast<const BFloat16*>(nullptr));
  }

  template <class T>
  static RunLoop<T>* score_loop(std::int64_t dim, bool four_rows) {
    if (dim % kHalves != 0) return score_loop_of<kMaxHeld, false, false>(vectors(dim));
    return four_rows ? score_loop_of<kMaxHeld, true, true>(vectors(dim))
                     : score_loop_of<kMaxHeld, true, false>(vectors(dim));
  }
  template <class T>
  static RunLoop<T>* value_loop(std::int64_t dim, bool four_rows) {
    // With prefetching, the order in memory matters less: half of the columns are processed for
    // four rows, instead of all columns for two, so that values are interleaved once for four rows.
    return four_rows ? value_loop_of<kFewVectors, true>(vectors(dim))
                     : value_loop_of<kMaxVectors, false>(vectors(dim));
  }

  static void store_context(const float* context, std::int64_t dim, float* to) {
    for (std::int64_t c = 0; c < dim; ++c) {
      // Column 8 b + i of a block of 32 is in the lower vector if i < 4, else in the upper one.
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
    return add_products_of_pairs(a, b, sum);
  }

  /// Maximum number of vectors per query that stay in registers if two queries are processed
  /// together. If four are, the maximum is half as large.
  static constexpr int kMaxHeld = 8;

  /// Same as score_runs in rows-inl.h.
  template <int kVectors, bool kWholeVectors, bool kFourRows>
  static void score_runs(const Run<BFloat16>& run) {
    constexpr int kMaxRows = kVectors <= kMaxHeld / 2 ? 4 : 2;
    for_queries_and_keys<kMaxRows, kFourRows>(run, [&](const float* queries, const BFloat16* keys,
                                                       std::int64_t count, float* scores,
                                                       auto several) FOVEA_LAMBDA {
      constexpr int kRows = decltype(several)::value;
      __m512i held[kRows][kVectors];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          held[r][v] = _mm512_load_si512(queries + r * run.from.stride + v * kLanes);
        }
      }
      for_keys<kRows>(keys, run.cache.stride, count, scores, run.to.stride,
                      [&](const BFloat16* at, Vector(&sums)[kRows][4], int i) FOVEA_LAMBDA {
#pragma GCC unroll 4
                        for (int r = 0; r < kRows; ++r) sums[r][i] = hn::Zero(Floats());
                        if (kFourRows && kRows > 2) {
                          prefetch_vectors<2 * kVectors>(at + run.ahead);
                        }
#pragma GCC unroll 8
                        for (int v = 0; v < kVectors; ++v) {
                          const bool whole = kWholeVectors || v + 1 < kVectors;
                          const __m512i x = whole ? _mm512_loadu_si512(at + v * kHalves)
                                                  : load(at + v * kHalves, run.dim - v * kHalves);
#pragma GCC unroll 4
                          for (int r = 0; r < kRows; ++r)
                            sums[r][i] = dot(sums[r][i], x, held[r][v]);
                        }
                        end_of_row();
                      });
    });
  }

  static void score_long_runs(const Run<BFloat16>& run) {
    for_queries_and_keys<1>(run, [&](const float* query, const BFloat16* keys, std::int64_t count,
                                     float* scores, auto) FOVEA_LAMBDA {
      for_keys<1>(keys, run.cache.stride, count, scores, run.to.stride,
                  [&](const BFloat16* at, Vector(&sums)[1][4], int i) FOVEA_LAMBDA {
                    Vector sum = hn::Zero(Floats());
                    for (std::int64_t v = 0; v < vectors(run.dim); ++v) {
                      sum = dot(sum, load(at + v * kHalves, run.dim - v * kHalves),
                                _mm512_load_si512(query + v * kLanes));
                    }
                    sums[0][i] = sum;
                    end_of_row();
                  });
    });
  }

  template <int kVectors, bool kWholeVectors, bool kFourRows>
  static RunLoop<BFloat16>* score_loop_of(std::int64_t used) {
    if (used == 0 || used > kVectors) return &score_long_runs;
    if constexpr (kVectors > 1) {
      if (used < kVectors) return score_loop_of<kVectors - 1, kWholeVectors, kFourRows>(used);
    }
    constexpr bool kInFours = kFourRows && kVectors <= kMaxHeld / 2;
    return &score_runs<kVectors, kWholeVectors, kInFours>;
  }

  /// Maximum number of vectors of values whose sums stay in registers for two rows of weights. Each
  /// vector of values has two accumulators per row.
  static constexpr int kMaxVectors = 4;
  /// The same for four rows.
  static constexpr int kFewVectors = kMaxVectors / 2;

  // The number of rows of weights, and of weights per row, that are rounded together.
  static constexpr std::int64_t kMaxWeightRows = 4;
  static constexpr std::int64_t kWeightsTogether = 16;

  /// Rows of weights for a few keys, rounded to bfloat16 and padded with zeros.
  struct Weights {
    alignas(64) BFloat16 numbers[kMaxWeightRows][kWeightsTogether];

    HWY_INLINE Weights(const float* weights, std::int64_t stride, std::int64_t rows,
                       std::int64_t count) {
      const auto there = static_cast<__mmask16>((std::uint32_t{1} << count) - 1);
      for (std::int64_t r = 0; r < rows; ++r) {
        const Vector x{_mm512_maskz_loadu_ps(there, weights + r * stride)};
        _mm256_store_si256(reinterpret_cast<__m256i*>(numbers[r]), round_to_bf16(x));
      }
    }
    /// Returns the weights of keys k and k + 1, broadcast to every lane.
    HWY_INLINE __m512i pair(std::int64_t row, std::int64_t k) const {
      std::int32_t both;
      std::memcpy(&both, &numbers[row][k], sizeof both);
      return _mm512_set1_epi32(both);
    }
  };

  /// Same as add_runs in rows-inl.h: kVectors vectors of columns at a time, for as many rows as fit
  /// in registers.
  template <int kVectors, bool kFourRows>
  static void add_runs(const Run<BFloat16>& run) {
    constexpr int kMaxRows = kVectors <= kFewVectors ? 4 : 2;
    for (std::int64_t head = 0; head < run.heads; ++head) {
      run.next.fetch(head);
      for (std::int64_t k = 0; k < run.count; k += kWeightsTogether) {
        const std::int64_t here = std::min(kWeightsTogether, run.count - k);
        for (std::int64_t first = 0; first < run.rows; first += kMaxWeightRows) {
          const std::int64_t rows = std::min(kMaxWeightRows, run.rows - first);
          const Weights weights(run.from.row(head, first) + k, run.from.stride, rows, here);
          for (std::int64_t v = 0; v < vectors(run.dim); v += kVectors) {
            for_rows<kMaxRows, kFourRows>(rows, [&](std::int64_t row, auto several) FOVEA_LAMBDA {
              add_columns<decltype(several)::value, kVectors, kFourRows>(
                  run.cache.row(head, k) + v * kHalves, run.cache.stride, here,
                  run.dim - v * kHalves, weights, row, run.to.row(head, first + row) + v * kHalves,
                  run.to.stride, run.ahead);
            });
          }
        }
      }
    }
  }

  template <int kVectors, bool kFourRows>
  static RunLoop<BFloat16>* value_loop_of(std::int64_t used) {
    if constexpr (kVectors > 1) {
      if (used < kVectors) return value_loop_of<kVectors - 1, kFourRows>(used);
    }
    return &add_runs<kVectors, kFourRows>;
  }

  /// Adds weighted values to the sums of the first `columns` columns, but of at most kVectors
  /// vectors of columns. `ahead` is as in Run, if kFourRows.
  template <int kRows, int kVectors, bool kFourRows>
  static HWY_INLINE void add_columns(const BFloat16* values, std::int64_t value_stride,
                                     std::int64_t count, std::int64_t columns,
                                     const Weights& weights, std::int64_t row, float* context,
                                     std::int64_t context_stride, std::int64_t ahead) {
    if constexpr (kVectors > 1) {
      if (columns <= (kVectors - 1) * kHalves) {
        return add_columns<kRows, kVectors - 1, kFourRows>(
            values, value_stride, count, columns, weights, row, context, context_stride, ahead);
      }
    }
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
      // An odd last key is paired with zeros.
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
      if (kFourRows && kRows > 2) {
        prefetch_vectors<2 * kVectors>(even + ahead);
        prefetch_vectors<2 * kVectors>(even + value_stride + ahead);
      }
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
