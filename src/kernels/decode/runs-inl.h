// SPDX-License-Identifier: Apache-2.0
//
// Runs of keys or values, which the products of decoding read in place: parameters of a run, loops
// over rows and keys, prefetching.

#if defined(FOVEA_KERNELS_DECODE_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_DECODE_RUNS_INL_H_
#undef FOVEA_KERNELS_DECODE_RUNS_INL_H_
#else
#define FOVEA_KERNELS_DECODE_RUNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/decode/next_run.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Bytes of adjacent keys or values that are reused for successive groups of queries or rows of
/// weights: few enough to stay in the L1 cache.
constexpr std::int64_t kBytesTogether = 4 << 10;

/// Keeps the compiler from interleaving the loads of one row with those of the next. Memory only
/// reaches its full bandwidth if it is read in order: with interleaved loads, decoding took three
/// times as long.
HWY_INLINE void end_of_row() { __asm__ volatile("" ::: "memory"); }

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
  /// The distance, in elements, from a key or value to the one that is prefetched with it, by loops
  /// with kFourRows.
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
/// most kMaxRows: 4, 2 or 1, and for loops of DecodeSetup::four_rows (kFourRows) also 3.
template <int kMaxRows, bool kFourRows = false, class Visit>
HWY_INLINE void for_rows(std::int64_t rows, const Visit& visit) {
  static_assert(!kFourRows || kMaxRows == 4);
  std::int64_t r = 0;
  if constexpr (kMaxRows >= 4) {
    for (; r + 4 <= rows; r += 4) visit(r, std::integral_constant<int, 4>());
  }
  if constexpr (kFourRows) {
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

/// Whether this target has loops for DecodeSetup::four_rows.
constexpr bool kHasFourRows = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3;

/// Prefetches the cache lines of kVectors vectors of floats, or of as many 16-bit elements.
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
/// once. With kPrefetches, the next group of keys of a long run is prefetched before a group is
/// visited.
template <int kMaxRows, bool kFourRows = false, class T, class Visit>
HWY_INLINE void for_rows_and_keys(const Run<T>& run, bool one_visit_may_do, const Visit& visit) {
  const bool one_visit = run.rows <= kMaxRows && (kFourRows || run.rows != 3);
  const bool at_once = one_visit_may_do && one_visit;
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
      for_rows<kMaxRows, kFourRows>(run.rows, [&](std::int64_t row, auto several) FOVEA_LAMBDA {
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
template <int kMaxRows, bool kFourRows = false, class T, class Score>
HWY_INLINE void for_queries_and_keys(const Run<T>& run, const Score& score,
                                     bool one_visit_may_do = true) {
  for_rows_and_keys<kMaxRows, kFourRows>(run, one_visit_may_do,
                                         [&](std::int64_t head, std::int64_t row, std::int64_t key,
                                             std::int64_t count, auto several) FOVEA_LAMBDA {
                                           score(run.from.row(head, row), run.cache.row(head, key),
                                                 count, run.to.row(head, row) + key, several);
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

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_DECODE_RUNS_INL_H_
