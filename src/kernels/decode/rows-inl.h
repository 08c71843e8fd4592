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
#include <cstring>
#include <type_traits>

#include "kernels/decode/next_run.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/simd/sums-inl.h"
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
/// Bytes of adjacent keys or values that are reused for successive groups of queries or rows of
/// weights: few enough to stay in the L1 cache.
constexpr std::int64_t kBytesTogether = 4 << 10;

/// Keeps the compiler from interleaving the loads of one row with those of the next. Memory only
/// reaches its full bandwidth if it is read in order: with interleaved loads, decoding took three
/// times as long.
HWY_INLINE void end_of_row() { __asm__ volatile("" ::: "memory"); }

/// Loads the first `count` elements, fewer than the lanes of `d`, and zeros the other lanes.
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

// ---- loops over runs of rows --------------------------------------------------------------------

/// Strided rows of a few heads.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride, head_stride;  // in elements

  T* row(std::int64_t head, std::int64_t number) const {
    return data + head * head_stride + number * stride;
  }
};

/// A run of keys or values of each of a few heads, with the rows of queries or weights to multiply
/// by. The loops keep these parameters in registers: a hundred reloads of parameters every few keys
/// would displace as many loads of the next keys (Zen 4 has 88 in flight at a time).
template <class T>
struct Run {
  HeadRows<const T> cache;
  NextRun next;
  std::int64_t heads, rows, count, dim;
  /// Score loop: queries, padded with zeros. Value loop: weights, [rows][count].
  HeadRows<const float> from;
  /// Score loop: output scores[r][k] = query r . key k, [rows][count]. Value loop: contexts; the
  /// sum over k of weights[r][k] times value k is added to context r.
  HeadRows<float> to;
  /// Unless 0, three or four rows prefetch the key or value this many elements later.
  std::int64_t ahead;
};

template <class T>
using RunLoop = void(const Run<T>& run);

/// Attributes of lambdas. Unless they are always inlined, GCC keeps their captures in memory.
#define FOVEA_LAMBDA HWY_ATTR __attribute__((always_inline))

/// Returns the number of keys or values of `dim` elements that fit in kBytesTogether: a multiple of
/// 4, and at least 4.
template <class T>
std::int64_t keys_together(std::int64_t dim) {
  const std::int64_t row_bytes = dim * static_cast<std::int64_t>(sizeof(T));
  return std::max<std::int64_t>(kBytesTogether / std::max<std::int64_t>(row_bytes, 1) / 4 * 4, 4);
}

/// Calls visit(row, several) for all rows in groups of `several`, a compile-time constant of at
/// most 4 and at most kMaxRows.
template <int kMaxRows, class Visit>
HWY_INLINE void for_rows(std::int64_t rows, const Visit& visit) {
  std::int64_t r = 0;
  if constexpr (kMaxRows >= 4) {
    for (; r + 4 <= rows; r += 4) visit(r, std::integral_constant<int, 4>());
    if (r + 3 == rows) return visit(r, std::integral_constant<int, 3>());
  }
  if constexpr (kMaxRows >= 2) {
    for (; r + 2 <= rows; r += 2) visit(r, std::integral_constant<int, 2>());
  }
  for (; r < rows; ++r) visit(r, std::integral_constant<int, 1>());
}

/// Whether runs of at least kPrefetchedBytes prefetch the next keys or values. With AVX2, memory is
/// otherwise idle while the current ones are multiplied. Prefetching makes decoding up to 20 %
/// slower on Zen 4 with AVX-512, and short runs with AVX2 up to 8 % slower.
constexpr bool kPrefetches = HWY_TARGET == HWY_AVX2;
constexpr std::int64_t kPrefetchedBytes = 1 << 20;
/// Whether there are loops for DecodeSetup::fours.
constexpr bool kHasFours = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3;
/// The number of queries that do not fit in registers and are multiplied with a key at a time. Not
/// measured with AVX-512, which holds 256 dimensions, and on ARM.
constexpr int kLongRows = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 4 : 1;

/// Prefetches kVectors vectors.
template <int kVectors, class T>
HWY_INLINE void prefetch_vectors(const T* from) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
#pragma GCC unroll 16
  for (std::int64_t c = 0; c < kVectors * kLanes; c += kLine) __builtin_prefetch(from + c, 0, 3);
}

/// Prefetches the keys or values [key, end) of a head. Not inlined, so that the loops keep their
/// registers.
template <class T>
HWY_NOINLINE void prefetch_keys(const Run<T>& run, std::int64_t head, std::int64_t key,
                                std::int64_t end) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (; key < end; ++key) {
    const T* const row = run.cache.row(head, key);
    for (std::int64_t c = 0; c < run.dim; c += kLine) __builtin_prefetch(row + c, 0, 3);
  }
  end_of_row();  // GCC omits calls of functions that do nothing but prefetch
}

/// Calls visit(head, row, key, key_count, several) for all rows and keys of a run, with rows
/// grouped as in for_rows(). Keys are visited in groups that stay in the L1 cache. Exception: if
/// `one_visit_may_do` is set and all rows fit in a single group of rows, all keys are visited at
/// once. Before a group of keys is visited, the next one is prefetched.
template <int kMaxRows, class T, class Visit>
HWY_INLINE void for_rows_and_keys(const Run<T>& run, bool one_visit_may_do, const Visit& visit) {
  const bool at_once = one_visit_may_do && run.rows <= kMaxRows;
  const std::int64_t together = at_once ? run.count : keys_together<T>(run.dim);
  // Each group of rows prefetches its share of the next keys.
  const std::int64_t bytes = run.count * run.dim * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t share = kPrefetches && !at_once && bytes >= kPrefetchedBytes
                                 ? (together * kMaxRows + run.rows - 1) / run.rows
                                 : 0;
  for (std::int64_t head = 0; head < run.heads; ++head) {
    run.next.fetch(head);
    for (std::int64_t k = 0; k < run.count; k += together) {
      const std::int64_t here = std::min(together, run.count - k);
      std::int64_t fetched = k + here;
      const std::int64_t fetched_end = share > 0 ? std::min(fetched + together, run.count) : 0;
      for_rows<kMaxRows>(run.rows, [&](std::int64_t row, auto several) FOVEA_LAMBDA {
        if constexpr (kPrefetches) {
          if (fetched < fetched_end) {
            prefetch_keys(run, head, fetched, std::min(fetched + share, fetched_end));
            fetched += share;
          }
        }
        visit(head, row, k, here, several);
      });
    }
  }
}

/// Calls score(queries, keys, count, scores, several) for all queries and keys of a run, in the
/// order of for_rows_and_keys.
template <int kMaxRows, class T, class Score>
HWY_INLINE void for_queries_and_keys(const Run<T>& run, const Score& score,
                                     bool one_visit_may_do = true) {
  for_rows_and_keys<kMaxRows>(run, one_visit_may_do,
                              [&](std::int64_t head, std::int64_t row, std::int64_t key,
                                  std::int64_t count, auto several) FOVEA_LAMBDA {
                                score(run.from.row(head, row), run.cache.row(head, key), count,
                                      run.to.row(head, row) + key, several);
                              });
}

/// Calls multiply(key, sums, i) for each key, and stores the scores. `multiply` writes the product
/// of the key with query r, as one partial sum per lane, to sums[r][i].
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

/// Computes scores for queries that each occupy kVectors SIMD vectors. Queries are held in
/// registers, two at a time if they fit: if queries were reloaded for each key, loads would wait
/// for each other instead of for memory. With kFours, four queries are multiplied with a key at a
/// time, even if the last ones are loaded for each key, and later keys are prefetched.
template <int kVectors, bool kWholeVectors, bool kFours, class T>
void score_runs(const Run<T>& run) {
  constexpr int kHeldAtMost = kVectors > kHeldVectors / 2              ? 1
                              : kFours && kVectors <= kHeldVectors / 4 ? 4
                                                                       : 2;
  constexpr int kWhole = kWholeVectors ? kVectors : kVectors - 1;
  constexpr int kPaired = kLoadsPairs<T> ? kWhole / 2 * 2 : 0;
  const Floats d;
  constexpr int kMaxRows = kFours ? 4 : kHeldAtMost;
  for_queries_and_keys<kMaxRows>(run, [&](const float* queries, const T* keys, std::int64_t count,
                                          float* scores, auto several) FOVEA_LAMBDA {
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
                      if (kFours && run.ahead > 0) prefetch_vectors<kVectors>(at + run.ahead);
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

/// Returns the loop for keys of `dim` elements, for `fours` as in DecodeSetup. Called once for
/// thousands of runs.
template <class T, int kVectors = kHeldVectors>
RunLoop<T>* score_loop(std::int64_t dim, bool fours) {
  if (dim == 0 || dim > kVectors * kLanes) return &score_long_runs<T>;
  if constexpr (kVectors > 1) {
    if (dim <= (kVectors - 1) * kLanes) return score_loop<T, kVectors - 1>(dim, fours);
  }
  const bool whole = dim % kLanes == 0;
  // Queries in memory do not have the order of pairs.
  if constexpr (kHasFours && (kVectors <= kHeldVectors / 4 || !kLoadsPairs<T>)) {
    if (fours) {
      return whole ? &score_runs<kVectors, true, true, T> : &score_runs<kVectors, false, true, T>;
    }
  }
  return whole ? &score_runs<kVectors, true, false, T> : &score_runs<kVectors, false, false, T>;
}

/// Computes context[r][c] += sum over k of weights[r * weight_stride + k] * values[k][c], for
/// kVectors vectors of columns, or for `columns` columns if the only vector is not full. `ahead` is
/// as in Run.
template <int kRows, int kVectors, class T>
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
    if (kRows > 2 && ahead > 0) prefetch_vectors<kVectors>(values + ahead);
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
template <int kRows, int kVectors, class T>
HWY_INLINE void add_all_columns(const T* values, std::int64_t value_stride, std::int64_t count,
                                std::int64_t dim, const float* weights, std::int64_t weight_stride,
                                float* context, std::int64_t context_stride, std::int64_t ahead) {
  std::int64_t c = 0;
  for (; c + kVectors * kLanes <= dim; c += kVectors * kLanes) {
    add_columns<kRows, kVectors>(values + c, value_stride, count, kVectors * kLanes, weights,
                                 weight_stride, context + c, context_stride, ahead);
  }
  if (c == dim) return;
  if constexpr (kVectors > 1) {
    add_all_columns<kRows, kVectors / 2>(values + c, value_stride, count, dim - c, weights,
                                         weight_stride, context + c, context_stride, ahead);
  } else {
    add_columns<kRows, 1>(values + c, value_stride, count, dim - c, weights, weight_stride,
                          context + c, context_stride, ahead);
  }
}

/// Adds weighted values to the contexts of a run. Processes kVectors vectors of columns at a time
/// for one row of weights, and half as many for several rows.
template <int kVectors, class T>
void add_runs(const Run<T>& run) {
  for_rows_and_keys<kWeightRows>(run, run.dim <= (run.rows == 1 ? kVectors : kVectors / 2) * kLanes,
                                 [&](std::int64_t head, std::int64_t row, std::int64_t key,
                                     std::int64_t count, auto several) FOVEA_LAMBDA {
                                   constexpr int kRows = decltype(several)::value;
                                   add_all_columns<kRows, kRows == 1 ? kVectors : kVectors / 2>(
                                       run.cache.row(head, key), run.cache.stride, count, run.dim,
                                       run.from.row(head, row) + key, run.from.stride,
                                       run.to.row(head, row), run.to.stride, run.ahead);
                                 });
}

/// Returns the loop for values of `dim` elements that uses no more registers for sums than needed.
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
