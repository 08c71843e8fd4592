// SPDX-License-Identifier: Apache-2.0
//
// The two products of decoding: a few queries times keys, and rows of weights times values. Keys
// and values are read in place.

#if defined(FOVEA_KERNELS_DECODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_DECODE_ROWS_INL_H_
#undef FOVEA_KERNELS_DECODE_ROWS_INL_H_
#else
#define FOVEA_KERNELS_DECODE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/decode/runs-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// kHeldVectors is the maximum number of vectors of queries, or of sums of values, that stay in
/// registers. kWeightRows is the maximum number of rows of weights that are multiplied with values
/// at a time. Four rows of eight vectors take all registers of AVX-512; the five that the compiler
/// spills cost less than reading the values a second time.
#if defined(FOVEA_SANITIZED)
// Each vector count instantiates the loops, and Clang takes minutes to instrument all of them.
constexpr int kHeldVectors = 4;
constexpr int kWeightRows = 4;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
// CPUs without AVX2 are rare, and each vector count adds to the compile time.
constexpr int kHeldVectors = 4;
constexpr int kWeightRows = 2;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kHeldVectors = 8;
constexpr int kWeightRows = 2;
#else
constexpr int kHeldVectors = 16;
constexpr int kWeightRows = 4;
#endif
/// The number of queries that do not fit in registers and are multiplied with a key at a time. Not
/// measured with AVX-512, which holds 256 dimensions, and on ARM.
constexpr int kLongRows = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 4 : 1;

// ---- pairs of vectors
// -----------------------------------------------------------------------------

/// Whether two adjacent vectors of elements are loaded at once, as those with even and those with
/// odd numbers: one instruction converts each half of 32-bit words of bfloat16, and two convert a
/// vector in order. Queries and contexts in registers have the same order.
template <class T>
constexpr bool kLoadsPairs = HWY_TARGET != HWY_SCALAR&& std::is_same_v<T, BFloat16>;

struct EvenOdd {
  Vector even, odd;
};
#if HWY_TARGET == HWY_SCALAR
EvenOdd load_pair(const float* from);
EvenOdd load_pair(const BFloat16* from);
void store_pair(const EvenOdd& pair, float* to);
#else
HWY_INLINE EvenOdd load_pair(const BFloat16* from) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::Repartition<std::uint16_t, Floats> halves;
  const auto both =
      hn::BitCast(words, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from)));
  return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
          hn::BitCast(d, hn::And(both, hn::Set(words, 0xffff0000)))};
}
HWY_INLINE EvenOdd load_pair(const float* from) {
  const Floats d;
  const Vector low = hn::Load(d, from), high = hn::Load(d, from + kLanes);
  return {hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)};
}
HWY_INLINE void store_pair(const EvenOdd& pair, float* to) {
  const Floats d;
  // Interleaving works within 128-bit blocks: blocks of 4 numbers belong at every other place.
  store_blocks(d, hn::InterleaveLower(d, pair.even, pair.odd), to, 2);
  store_blocks(d, hn::InterleaveUpper(d, pair.even, pair.odd), to + 4, 2);
}
#endif

/// Loads kVectors vectors, the first kPaired of them in pairs.
template <int kPaired, int kVectors>
HWY_INLINE void load_vectors(const float* from, Vector (&to)[kVectors]) {
  if constexpr (kPaired > 0) {
#pragma GCC unroll 8
    for (int v = 0; v < kPaired; v += 2) {
      const EvenOdd pair = load_pair(from + v * kLanes);
      to[v] = pair.even;
      to[v + 1] = pair.odd;
    }
  }
#pragma GCC unroll 16
  for (int v = kPaired; v < kVectors; ++v) to[v] = hn::Load(Floats(), from + v * kLanes);
}

// ---- products in floats -------------------------------------------------------------------------

/// Computes scores for queries that each occupy kVectors SIMD vectors. Queries are held in
/// registers, two at a time if they fit: if queries were reloaded for each key, loads would wait
/// for each other instead of for memory. With kFourRows, later keys are prefetched, so that four
/// queries are multiplied with a key at a time even if only one or two of them are held.
template <int kVectors, bool kWholeVectors, bool kFourRows, class T>
void score_runs(const Run<T>& run) {
  constexpr int kHeldAtMost = std::clamp(kHeldVectors / kVectors, 1, kFourRows ? 4 : 2);
  constexpr int kWhole = kWholeVectors ? kVectors : kVectors - 1;
  constexpr int kPaired = kLoadsPairs<T> ? kWhole / 2 * 2 : 0;
  const Floats d;
  constexpr int kMaxRows = kFourRows ? 4 : kHeldAtMost;
  for_queries_and_keys<kMaxRows, kFourRows>(run, [&](const float* queries, const T* keys,
                                                     std::int64_t count, float* scores,
                                                     auto several) FOVEA_LAMBDA {
    constexpr int kRows = decltype(several)::value;
    constexpr int kHeldRows = std::min(kRows, kHeldAtMost);
    Vector held[kHeldRows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kHeldRows; ++r) {
      load_vectors<kPaired>(queries + r * run.from.stride, held[r]);
    }
    const auto query = [&](int r, int v) FOVEA_LAMBDA {
      return r < kHeldRows ? held[r][v] : hn::Load(d, queries + r * run.from.stride + v * kLanes);
    };
    for_keys<kRows>(keys, run.cache.stride, count, scores, run.to.stride,
                    [&](const T* at, Vector(&sums)[kRows][4], int i) FOVEA_LAMBDA {
                      if (kFourRows && kRows > 2) prefetch_vectors<kVectors>(at + run.ahead);
                      const auto add = [&](Vector x, int v) FOVEA_LAMBDA {
#pragma GCC unroll 4
                        for (int r = 0; r < kRows; ++r) {
                          sums[r][i] = v == 0 ? hn::Mul(x, query(r, v))
                                              : hn::MulAdd(x, query(r, v), sums[r][i]);
                        }
                      };
                      if constexpr (kPaired > 0) {
#pragma GCC unroll 8
                        for (int v = 0; v < kPaired; v += 2) {
                          const EvenOdd x = load_pair(at + v * kLanes);
                          add(x.even, v);
                          add(x.odd, v + 1);
                        }
                      }
#pragma GCC unroll 16
                      for (int v = kPaired; v < kVectors; ++v) {
                        add(v < kWhole ? load_floats(d, at + v * kLanes)
                                       : load_first(d, at + v * kLanes, run.dim - v * kLanes),
                            v);
                      }
                      end_of_row();
                    });
  });
}

/// Computes the scores of four keys. The four sums are independent, and each vector of the query is
/// loaded once for all of them. The keys are read in turns, which is slow unless they are in a
/// cache.
template <class T>
HWY_INLINE void score_4_keys(const float* query, const T* keys, std::int64_t key_stride,
                             std::int64_t dim, float* scores) {
  const Floats d;
  const std::int64_t whole = dim / kLanes * kLanes;
  Vector sums[4];
#pragma GCC unroll 4
  for (Vector& sum : sums) sum = hn::Zero(d);
  const auto add = [&](std::int64_t c, const auto& load) FOVEA_LAMBDA {
    const Vector from_query = hn::Load(d, query + c);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      sums[i] = hn::MulAdd(load(keys + i * key_stride + c), from_query, sums[i]);
    }
  };
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    add(c, [&](const T* from) FOVEA_LAMBDA { return load_floats(d, from); });
  }
  if (whole < dim) {
    add(whole, [&](const T* from) FOVEA_LAMBDA { return load_first(d, from, dim - whole); });
  }
  store_sums_of_4(sums, scores);
}

/// Same as score_runs() for queries that do not fit in registers, and for dim 0. A vector of a key
/// is loaded, and converted, once for up to kLongRows queries.
template <class T>
void score_long_runs(const Run<T>& run) {
  const Floats d;
  const std::int64_t whole = run.dim / kLanes * kLanes;
  // Float32, which needs no conversion, is mostly faster in order.
  constexpr bool kFoursOfKeys = kPrefetches && sizeof(T) < sizeof(float);
  for_queries_and_keys<kLongRows>(
      run,
      [&](const float* queries, const T* keys, std::int64_t count, float* scores, auto several)
          FOVEA_LAMBDA {
            constexpr int kRows = decltype(several)::value;
            if constexpr (kFoursOfKeys && kRows == 1) {
              for (; count >= 4; count -= 4, keys += 4 * run.cache.stride, scores += 4) {
                score_4_keys(queries, keys, run.cache.stride, run.dim, scores);
              }
            }
            for_keys<kRows>(keys, run.cache.stride, count, scores, run.to.stride,
                            [&](const T* at, Vector(&sums)[kRows][4], int i) FOVEA_LAMBDA {
                              Vector sum[kRows];
#pragma GCC unroll 4
                              for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
                              const auto add = [&](Vector x, std::int64_t c) FOVEA_LAMBDA {
#pragma GCC unroll 4
                                for (int r = 0; r < kRows; ++r) {
                                  sum[r] = hn::MulAdd(
                                      x, hn::Load(d, queries + r * run.from.stride + c), sum[r]);
                                }
                              };
                              for (std::int64_t c = 0; c < whole; c += kLanes) {
                                add(load_floats(d, at + c), c);
                              }
                              if (whole < run.dim) {
                                add(load_first(d, at + whole, run.dim - whole), whole);
                              }
#pragma GCC unroll 4
                              for (int r = 0; r < kRows; ++r) sums[r][i] = sum[r];
                              end_of_row();
                            });
          },
      !kFoursOfKeys || run.rows > 1);  // a single row is visited in groups, to prefetch
}

/// Returns the loop for keys of `dim` elements, for `four_rows` as in DecodeSetup. Called once for
/// thousands of runs.
template <class T, int kVectors = kHeldVectors>
RunLoop<T>* score_loop(std::int64_t dim, bool four_rows) {
  if (dim == 0 || dim > kVectors * kLanes) return &score_long_runs<T>;
  if constexpr (kVectors > 1) {
    if (dim <= (kVectors - 1) * kLanes) return score_loop<T, kVectors - 1>(dim, four_rows);
  }
  // Dimensions that do not fill whole vectors are rare, and each loop adds to the compile time.
  if (dim % kLanes != 0) return &score_runs<kVectors, false, false, T>;
  // A query that is read from memory for each key is not in the order of load_pair().
  if constexpr (kHasFourRows && (kVectors <= kHeldVectors / 4 || !kLoadsPairs<T>)) {
    if (four_rows) return &score_runs<kVectors, true, true, T>;
  }
  return &score_runs<kVectors, true, false, T>;
}

/// Computes context[r][c] += sum over k of weights[r * weight_stride + k] * values[k][c], for
/// kVectors vectors of columns, or for `columns` columns if the only vector is not full. `ahead` is
/// as in Run, if kFourRows.
template <int kRows, int kVectors, bool kFourRows, class T>
HWY_INLINE void add_columns(const T* HWY_RESTRICT values, std::int64_t value_stride,
                            std::int64_t count, std::int64_t columns,
                            const float* HWY_RESTRICT weights, std::int64_t weight_stride,
                            float* HWY_RESTRICT context, std::int64_t context_stride,
                            std::int64_t ahead) {
  constexpr int kPaired = kLoadsPairs<T> ? kVectors / 2 * 2 : 0;
  const Floats d;
  Vector sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    load_vectors<kPaired>(context + r * context_stride, sums[r]);
  }
  for (std::int64_t k = 0; k < count; ++k, values += value_stride) {
    if (kFourRows && kRows > 2) prefetch_vectors<kVectors>(values + ahead);
    Vector weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = hn::Set(d, weights[r * weight_stride + k]);
    const auto add = [&](Vector x, int v) FOVEA_LAMBDA {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][v] = hn::MulAdd(weight[r], x, sums[r][v]);
    };
    if constexpr (kPaired > 0) {
#pragma GCC unroll 8
      for (int v = 0; v < kPaired; v += 2) {
        const EvenOdd x = load_pair(values + v * kLanes);
        add(x.even, v);
        add(x.odd, v + 1);
      }
    }
#pragma GCC unroll 16
    for (int v = kPaired; v < kVectors; ++v) {
      add(kVectors == 1 && columns < kLanes ? load_first(d, values, columns)
                                            : load_floats(d, values + v * kLanes),
          v);
    }
    end_of_row();
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* const to = context + r * context_stride;
    if constexpr (kPaired > 0) {
#pragma GCC unroll 8
      for (int v = 0; v < kPaired; v += 2) {
        store_pair({sums[r][v], sums[r][v + 1]}, to + v * kLanes);
      }
    }
#pragma GCC unroll 16
    for (int v = kPaired; v < kVectors; ++v) hn::Store(sums[r][v], d, to + v * kLanes);
  }
}

/// Same for all `dim` columns, as many at a time as fit in registers.
template <int kRows, int kVectors, bool kFourRows, class T>
HWY_INLINE void add_all_columns(const T* values, std::int64_t value_stride, std::int64_t count,
                                std::int64_t dim, const float* weights, std::int64_t weight_stride,
                                float* context, std::int64_t context_stride, std::int64_t ahead) {
  std::int64_t c = 0;
  for (; c + kVectors * kLanes <= dim; c += kVectors * kLanes) {
    add_columns<kRows, kVectors, kFourRows>(values + c, value_stride, count, kVectors * kLanes,
                                            weights, weight_stride, context + c, context_stride,
                                            ahead);
  }
  if (c == dim) return;
  if constexpr (kVectors > 1) {
    add_all_columns<kRows, kVectors / 2, kFourRows>(values + c, value_stride, count, dim - c,
                                                    weights, weight_stride, context + c,
                                                    context_stride, ahead);
  } else {
    add_columns<kRows, 1, kFourRows>(values + c, value_stride, count, dim - c, weights,
                                     weight_stride, context + c, context_stride, ahead);
  }
}

/// Adds weighted values to the contexts of a run. Processes kVectors vectors of columns at a time
/// for one row of weights, and half as many for several rows.
template <int kVectors, bool kFourRows, class T>
void add_runs(const Run<T>& run) {
  for_rows_and_keys<kWeightRows, kFourRows>(
      run, run.dim <= (run.rows == 1 ? kVectors : kVectors / 2) * kLanes,
      [&](std::int64_t head, std::int64_t row, std::int64_t key, std::int64_t count, auto several)
          FOVEA_LAMBDA {
            constexpr int kRows = decltype(several)::value;
            add_all_columns<kRows, kRows == 1 ? kVectors : kVectors / 2, kFourRows>(
                run.cache.row(head, key), run.cache.stride, count, run.dim,
                run.from.row(head, row) + key, run.from.stride, run.to.row(head, row),
                run.to.stride, run.ahead);
          });
}

/// Returns the loop for values of `dim` elements that uses no more registers for sums than needed,
/// for `four_rows` as in DecodeSetup.
template <class T, int kVectors = kHeldVectors>
RunLoop<T>* value_loop(std::int64_t dim, bool four_rows) {
  if constexpr (kVectors > 2) {
    if (dim < kVectors / 2 * kLanes) return value_loop<T, kVectors / 2>(dim, four_rows);
  }
  if constexpr (kHasFourRows) {
    if (four_rows) return &add_runs<kVectors, true, T>;
  }
  return &add_runs<kVectors, false, T>;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_DECODE_ROWS_INL_H_
