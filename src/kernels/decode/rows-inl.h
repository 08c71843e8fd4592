// SPDX-License-Identifier: Apache-2.0
//
// The two products of decoding: a few queries, or rows of weights, with rows of keys or values as
// they lie in memory.

#if defined(FOVEA_KERNELS_DECODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_DECODE_ROWS_INL_H_
#undef FOVEA_KERNELS_DECODE_ROWS_INL_H_
#else
#define FOVEA_KERNELS_DECODE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/decode/next_run.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Vectors of queries, or of sums of values, that stay in registers, and the rows of weights that
/// values are multiplied with at a time. Four rows of eight vectors are all registers of AVX-512;
/// the five that the compiler keeps on the stack cost less than reading the values once more.
#if defined(FOVEA_SANITIZED)
// Every number of them is a variant of the loops, and Clang takes minutes to instrument them all.
constexpr int kHeldVectors = 4;
constexpr int kWeightRows = 4;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
// CPUs without AVX2 are rare by now, and each number of vectors is a variant of the loops to
// compile.
constexpr int kHeldVectors = 4;
constexpr int kWeightRows = 2;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kHeldVectors = 8;
constexpr int kWeightRows = 2;
#else
constexpr int kHeldVectors = 16;
constexpr int kWeightRows = 4;
#endif
/// Bytes of neighbouring keys or values that some queries or rows of weights after the other are
/// multiplied with: few enough to stay in the first cache.
constexpr std::int64_t kBytesTogether = 4 << 10;

/// Keeps the compiler from mixing the loads of one row with those of the next: memory streams only
/// where it is read in order (mixed, decoding took three times as long).
HWY_INLINE void end_of_row() { __asm__ volatile("" ::: "memory"); }

/// The first `count` numbers, fewer than `d` has lanes, and zeros.
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

// ---- loops over runs of rows --------------------------------------------------------------------

/// Rows of numbers of each of a few heads.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride, head_stride;  // numbers

  T* row(std::int64_t head, std::int64_t number) const {
    return data + head * head_stride + number * stride;
  }
};

/// A run of keys or values of each of a few heads, and the rows of queries or weights that go with
/// it. Once begun, a run needs nothing but registers: a hundred loads of what it is about, every
/// few keys, would take the place of as many loads of the next keys (88 at a time, on Zen 4).
template <class T>
struct Run {
  HeadRows<const T> cache;
  NextRun next;
  std::int64_t heads, rows, count, dim;
  /// Scores: queries, which end in zeros. Values: weights, [rows][count].
  HeadRows<const float> from;
  /// Scores: scores r, k = query r . key k, [rows][count]. Values: what weights r, k times value k,
  /// summed over k, are added to.
  HeadRows<float> to;
};

template <class T>
using RunLoop = void(const Run<T>& run);

/// For lambdas: where they are not inlined at once, GCC keeps what they have caught in memory.
#define FOVEA_LAMBDA HWY_ATTR __attribute__((always_inline))

/// How many keys or values of `dim` numbers rows take their turns with.
template <class T>
std::int64_t keys_together(std::int64_t dim) {
  const std::int64_t row_bytes = dim * static_cast<std::int64_t>(sizeof(T));
  return std::max<std::int64_t>(kBytesTogether / std::max<std::int64_t>(row_bytes, 1) / 4 * 4, 4);
}

/// Calls visit(row, several) for all rows, `several` at a time, a constant: kMaxRows, 2 or 1.
template <int kMaxRows, class Visit>
HWY_INLINE void for_rows(std::int64_t rows, const Visit& visit) {
  std::int64_t r = 0;
  if constexpr (kMaxRows >= 4) {
    for (; r + 4 <= rows; r += 4) visit(r, std::integral_constant<int, 4>());
  }
  if constexpr (kMaxRows >= 2) {
    for (; r + 2 <= rows; r += 2) visit(r, std::integral_constant<int, 2>());
  }
  for (; r < rows; ++r) visit(r, std::integral_constant<int, 1>());
}

/// Calls visit(head, row, key, keys, several) for all of a run, as for_rows does. Unless one visit
/// does it, of one, two or four rows, keys come so few at a time that they stay in the first cache.
template <int kMaxRows, class T, class Visit>
HWY_INLINE void for_rows_and_keys(const Run<T>& run, bool one_visit_may_do, const Visit& visit) {
  const bool one_visit = run.rows <= kMaxRows && run.rows != 3;
  const bool at_once = one_visit_may_do && one_visit;
  const std::int64_t together = at_once ? run.count : keys_together<T>(run.dim);
  for (std::int64_t head = 0; head < run.heads; ++head) {
    run.next.fetch(head);
    for (std::int64_t k = 0; k < run.count; k += together) {
      const std::int64_t here = std::min(together, run.count - k);
      for_rows<kMaxRows>(run.rows, [&](std::int64_t row, auto several)
                                       FOVEA_LAMBDA { visit(head, row, k, here, several); });
    }
  }
}

/// Calls score(queries, keys, count, scores, several) for all of a run, likewise.
template <int kMaxRows, class T, class Score>
HWY_INLINE void for_queries_and_keys(const Run<T>& run, const Score& score) {
  for_rows_and_keys<kMaxRows>(run, true,
                              [&](std::int64_t head, std::int64_t row, std::int64_t key,
                                  std::int64_t count, auto several) FOVEA_LAMBDA {
                                score(run.from.row(head, row), run.cache.row(head, key), count,
                                      run.to.row(head, row) + key, several);
                              });
}

/// Calls multiply(key, sums, i) for each key, which finds the partial sums number i of kRows
/// queries times it, and stores their sums.
template <int kRows, class T, class Multiply>
HWY_INLINE void for_keys(const T* keys, std::int64_t key_stride, std::int64_t count, float* scores,
                         std::int64_t score_stride, const Multiply& multiply) {
  std::int64_t k = 0;
  for (; k + 4 <= count; k += 4, keys += 4 * key_stride) {
    Vector sums[kRows][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) multiply(keys + i * key_stride, sums, i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) store_sums_of_4(sums[r], scores + r * score_stride + k);
  }
  for (; k < count; ++k, keys += key_stride) {
    Vector sums[kRows][4];
    multiply(keys, sums, 0);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      for (int i = 1; i < 4; ++i) sums[r][i] = hn::Zero(Floats());
      float four[4];
      store_sums_of_4(sums[r], four);
      scores[r * score_stride + k] = four[0];
    }
  }
}

// ---- products in floats -------------------------------------------------------------------------

/// Scores of queries of kVectors vectors, which are held in registers, two at a time where those
/// do: were they read anew for each key, loads would be waiting for each other instead of for
/// memory.
template <int kVectors, bool kWholeVectors, class T>
void score_runs(const Run<T>& run) {
  constexpr int kMaxRows = kVectors <= kHeldVectors / 2 ? 2 : 1;
  const Floats d;
  for_queries_and_keys<kMaxRows>(run, [&](const float* queries, const T* keys, std::int64_t count,
                                          float* scores, auto several) FOVEA_LAMBDA {
    constexpr int kRows = decltype(several)::value;
    Vector held[kRows][kVectors];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        held[r][v] = hn::Load(d, queries + r * run.from.stride + v * kLanes);
      }
    }
    for_keys<kRows>(
        keys, run.cache.stride, count, scores, run.to.stride,
        [&](const T* at, Vector(&sums)[kRows][4], int i) FOVEA_LAMBDA {
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) {
            const bool whole = kWholeVectors || v + 1 < kVectors;
            const Vector x = whole ? load_floats(d, at + v * kLanes)
                                   : load_first(d, at + v * kLanes, run.dim - v * kLanes);
#pragma GCC unroll 2
            for (int r = 0; r < kRows; ++r) {
              sums[r][i] = v == 0 ? hn::Mul(x, held[r][v]) : hn::MulAdd(x, held[r][v], sums[r][i]);
            }
          }
          end_of_row();
        });
  });
}

/// The same for queries that registers don't hold, or of no numbers.
template <class T>
void score_long_runs(const Run<T>& run) {
  const Floats d;
  const std::int64_t whole = run.dim / kLanes * kLanes;
  for_queries_and_keys<1>(run, [&](const float* query, const T* keys, std::int64_t count,
                                   float* scores, auto) FOVEA_LAMBDA {
    for_keys<1>(keys, run.cache.stride, count, scores, run.to.stride,
                [&](const T* at, Vector(&sums)[1][4], int i) FOVEA_LAMBDA {
                  Vector sum = hn::Zero(d);
                  for (std::int64_t c = 0; c < whole; c += kLanes) {
                    sum = hn::MulAdd(load_floats(d, at + c), hn::Load(d, query + c), sum);
                  }
                  if (whole < run.dim) {
                    sum = hn::MulAdd(load_first(d, at + whole, run.dim - whole),
                                     hn::Load(d, query + whole), sum);
                  }
                  sums[0][i] = sum;
                  end_of_row();
                });
  });
}

/// The loop for keys of `dim` numbers: chosen once for thousands of runs.
template <class T, int kVectors = kHeldVectors>
RunLoop<T>* score_loop(std::int64_t dim) {
  if (dim == 0 || dim > kVectors * kLanes) return &score_long_runs<T>;
  if constexpr (kVectors > 1) {
    if (dim <= (kVectors - 1) * kLanes) return score_loop<T, kVectors - 1>(dim);
  }
  return dim % kLanes == 0 ? &score_runs<kVectors, true, T> : &score_runs<kVectors, false, T>;
}

/// context[r][c] += sum over k of weights[r * weight_stride + k] * value k [c], for kVectors
/// vectors of columns (`columns` numbers where the only one is not full).
template <int kRows, int kVectors, class T>
HWY_INLINE void add_columns(const T* HWY_RESTRICT values, std::int64_t value_stride,
                            std::int64_t count, std::int64_t columns,
                            const float* HWY_RESTRICT weights, std::int64_t weight_stride,
                            float* HWY_RESTRICT context, std::int64_t context_stride) {
  const Floats d;
  Vector sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Load(d, context + r * context_stride + v * kLanes);
    }
  }
  for (std::int64_t k = 0; k < count; ++k, values += value_stride) {
    Vector weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = hn::Set(d, weights[r * weight_stride + k]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const Vector x = kVectors == 1 && columns < kLanes ? load_first(d, values, columns)
                                                         : load_floats(d, values + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][v] = hn::MulAdd(weight[r], x, sums[r][v]);
    }
    end_of_row();
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, context + r * context_stride + v * kLanes);
    }
  }
}

/// All `dim` columns, as many at a time as fit the registers.
template <int kRows, int kVectors, class T>
HWY_INLINE void add_all_columns(const T* values, std::int64_t value_stride, std::int64_t count,
                                std::int64_t dim, const float* weights, std::int64_t weight_stride,
                                float* context, std::int64_t context_stride) {
  std::int64_t c = 0;
  for (; c + kVectors * kLanes <= dim; c += kVectors * kLanes) {
    add_columns<kRows, kVectors>(values + c, value_stride, count, kVectors * kLanes, weights,
                                 weight_stride, context + c, context_stride);
  }
  if (c == dim) return;
  if constexpr (kVectors > 1) {
    add_all_columns<kRows, kVectors / 2>(values + c, value_stride, count, dim - c, weights,
                                         weight_stride, context + c, context_stride);
  } else {
    add_columns<kRows, 1>(values + c, value_stride, count, dim - c, weights, weight_stride,
                          context + c, context_stride);
  }
}

/// Sums of values, kVectors vectors of columns of one row of weights, or half as many of several,
/// at a time.
template <int kVectors, class T>
void add_runs(const Run<T>& run) {
  for_rows_and_keys<kWeightRows>(run, run.dim <= (run.rows == 1 ? kVectors : kVectors / 2) * kLanes,
                                 [&](std::int64_t head, std::int64_t row, std::int64_t key,
                                     std::int64_t count, auto several) FOVEA_LAMBDA {
                                   constexpr int kRows = decltype(several)::value;
                                   add_all_columns<kRows, kRows == 1 ? kVectors : kVectors / 2>(
                                       run.cache.row(head, key), run.cache.stride, count, run.dim,
                                       run.from.row(head, row) + key, run.from.stride,
                                       run.to.row(head, row), run.to.stride);
                                 });
}

/// The loop for values of `dim` numbers, whose sums fill no more registers than they need.
template <class T, int kVectors = kHeldVectors>
RunLoop<T>* value_loop(std::int64_t dim) {
  if constexpr (kVectors > 2) {
    if (dim < kVectors / 2 * kLanes) return value_loop<T, kVectors / 2>(dim);
  }
  return &add_runs<kVectors, T>;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_DECODE_ROWS_INL_H_
