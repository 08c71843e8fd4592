// SPDX-License-Identifier: Apache-2.0
//
// The two products of decoding: a few queries, or rows of weights, with rows of keys or values as
// they lie in memory.

#if defined(FOVEA_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_ROWS_INL_H_
#undef FOVEA_KERNELS_ROWS_INL_H_
#else
#define FOVEA_KERNELS_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/simd-inl.h"
#include "kernels/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Vectors of queries, or of sums of values, that stay in registers.
#if defined(FOVEA_SANITIZED)
// Every number of them is a variant of the loops, and Clang takes minutes to instrument them all.
constexpr int kHeldVectors = 4;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kHeldVectors = 8;
#else
constexpr int kHeldVectors = 16;
#endif
/// Rows of queries or weights that share each load of a key or value.
constexpr int kRowsTogether = 2;
/// Neighbouring keys or values that one pair of rows after the other is multiplied with: few enough
/// to stay in the first cache.
constexpr std::int64_t kKeysTogether = 8;

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

#if HWY_TARGET != HWY_SCALAR
/// to[i] = the sum of the numbers i of all blocks of 128 bits.
template <class D>
HWY_INLINE void store_sum_of_blocks(D d, hn::Vec<D> x, float* to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(x, d, to);
  } else {
    const hn::Half<D> half;
    store_sum_of_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), to);
  }
}
#endif

/// The sums of the lanes of four vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums_of_4(const Vector (&x)[4], float* to) {
  for (int i = 0; i < 4; ++i) to[i] = hn::GetLane(x[i]);
}
#else
HWY_INLINE void store_sums_of_4(const Vector (&x)[4], float* to) {
  const Floats d;
  const hn::RepartitionToWide<Floats> pairs;
  const auto low = hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const auto high = hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  const auto low_pairs = hn::BitCast(pairs, low);
  const auto high_pairs = hn::BitCast(pairs, high);
  // Blocks of 128 bits now hold partial sums of all four.
  store_sum_of_blocks(d,
                      hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low_pairs, high_pairs)),
                              hn::BitCast(d, hn::InterleaveUpper(pairs, low_pairs, high_pairs))),
                      to);
}
#endif

/// Partial sums of a long query times a key.
template <class T>
HWY_INLINE Vector multiply_long(const float* HWY_RESTRICT query, const T* HWY_RESTRICT key,
                                std::int64_t dim) {
  const Floats d;
  const std::int64_t whole = dim / kLanes * kLanes;
  Vector sum = hn::Zero(d);
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    sum = hn::MulAdd(load_floats(d, key + c), hn::Load(d, query + c), sum);
  }
  if (whole < dim) {
    sum = hn::MulAdd(load_first(d, key + whole, dim - whole), hn::Load(d, query + whole), sum);
  }
  end_of_row();
  return sum;
}

/// scores[r * score_stride + k] = query r . key k, for 4 keys and queries of kVectors vectors,
/// which are held in registers: were they read anew for each key, loads would be waiting for each
/// other instead of for memory (88 at a time, on Zen 4).
template <int kRows, int kVectors, class T>
HWY_INLINE void score_4_keys(const Vector (&queries)[kRows][kVectors], const T* const (&keys)[4],
                             std::int64_t dim, float (&scores)[kRows][4]) {
  const Floats d;
  Vector sums[kRows][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const bool last = v + 1 == kVectors && dim % kLanes != 0;
      const Vector x = last ? load_first(d, keys[i] + v * kLanes, dim - v * kLanes)
                            : load_floats(d, keys[i] + v * kLanes);
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) {
        sums[r][i] = v == 0 ? hn::Mul(x, queries[r][v]) : hn::MulAdd(x, queries[r][v], sums[r][i]);
      }
    }
    end_of_row();
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) store_sums_of_4(sums[r], scores[r]);
}

/// For the lambdas of for_4_keys: where they are not inlined at once, GCC keeps the queries that
/// they have caught in memory, and writes them there for every few keys.
#define FOVEA_LAMBDA HWY_ATTR __attribute__((always_inline))

/// Calls score(keys, scores, k) for 4 keys at a time; beyond the last key, that one again, whose
/// scores are left out.
template <int kRows, class T, class Score>
HWY_INLINE void for_4_keys(const T* keys, std::int64_t key_stride, std::int64_t count,
                           float* scores, std::int64_t score_stride, const Score& score) {
  for (std::int64_t k = 0; k < count; k += 4) {
    const std::int64_t here = std::min<std::int64_t>(4, count - k);
    const T* at[4];
    for (int i = 0; i < 4; ++i)
      at[i] = keys + std::min<std::int64_t>(k + i, count - 1) * key_stride;
    float four[kRows][4];
    score(at, four);
    for (int r = 0; r < kRows; ++r) {
      float* const to = scores + r * score_stride + k;
      if (here == 4) {
        std::memcpy(to, four[r], sizeof four[r]);
      } else {
        std::memcpy(to, four[r], static_cast<std::size_t>(here) * sizeof(float));
      }
    }
  }
}

/// scores[r * score_stride + k] = query r . key k, for `count` keys; queries are [kRows][stride]
/// and end in zeros.
template <int kRows, class T, int kVectors = kHeldVectors / kRows>
HWY_INLINE void score_rows(const float* HWY_RESTRICT queries, std::int64_t query_stride,
                           const T* HWY_RESTRICT keys, std::int64_t key_stride, std::int64_t count,
                           std::int64_t dim, float* HWY_RESTRICT scores,
                           std::int64_t score_stride) {
  const Floats d;
  if (dim > kVectors * kLanes) {
    // Too long for registers (or for this number of them: the largest comes first).
    for (int r = 0; r < kRows; ++r) {
      const float* const query = queries + r * query_stride;
      for_4_keys<1>(keys, key_stride, count, scores + r * score_stride, score_stride,
                    [&](const T* const(&at)[4], float(&four)[1][4]) FOVEA_LAMBDA {
                      Vector sums[4];
                      for (int i = 0; i < 4; ++i) sums[i] = multiply_long(query, at[i], dim);
                      store_sums_of_4(sums, four[0]);
                    });
    }
    return;
  }
  if constexpr (kVectors > 1) {
    if (dim <= (kVectors - 1) * kLanes) {
      return score_rows<kRows, T, kVectors - 1>(queries, query_stride, keys, key_stride, count, dim,
                                                scores, score_stride);
    }
  }
  Vector held[kRows][kVectors];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      held[r][v] = hn::Load(d, queries + r * query_stride + v * kLanes);
    }
  }
  for_4_keys<kRows>(keys, key_stride, count, scores, score_stride,
                    [&](const T* const(&at)[4], float(&four)[kRows][4])
                        FOVEA_LAMBDA { score_4_keys<kRows, kVectors>(held, at, dim, four); });
}

/// The same for any number of rows: two at a time, over a few keys.
template <class T>
HWY_INLINE void score_keys(const float* HWY_RESTRICT queries, std::int64_t query_stride,
                           std::int64_t rows, const T* HWY_RESTRICT keys, std::int64_t key_stride,
                           std::int64_t count, std::int64_t dim, float* HWY_RESTRICT scores,
                           std::int64_t score_stride) {
  // One query needs no second pass, and none between which keys would have to stay in the cache.
  const std::int64_t together = rows > kRowsTogether ? kKeysTogether : count;
  const bool pairs = dim <= kHeldVectors / kRowsTogether * kLanes;
  for (std::int64_t k = 0; k < count; k += together) {
    const std::int64_t here = std::min(together, count - k);
    const T* const at = keys + k * key_stride;
    std::int64_t r = 0;
    for (; pairs && r + kRowsTogether <= rows; r += kRowsTogether) {
      score_rows<kRowsTogether>(queries + r * query_stride, query_stride, at, key_stride, here, dim,
                                scores + r * score_stride + k, score_stride);
    }
    for (; r < rows; ++r) {
      score_rows<1>(queries + r * query_stride, query_stride, at, key_stride, here, dim,
                    scores + r * score_stride + k, score_stride);
    }
  }
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
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Load(d, context + r * context_stride + v * kLanes);
    }
  }
  for (std::int64_t k = 0; k < count; ++k, values += value_stride) {
    Vector weight[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) weight[r] = hn::Set(d, weights[r * weight_stride + k]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const Vector x = kVectors == 1 && columns < kLanes ? load_first(d, values, columns)
                                                         : load_floats(d, values + v * kLanes);
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) sums[r][v] = hn::MulAdd(weight[r], x, sums[r][v]);
    }
    end_of_row();
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, context + r * context_stride + v * kLanes);
    }
  }
}

/// The same for all `dim` columns, as many at a time as fit the registers.
template <int kRows, class T, int kVectors = kHeldVectors / kRows>
HWY_INLINE void add_rows(const T* values, std::int64_t value_stride, std::int64_t count,
                         std::int64_t dim, const float* weights, std::int64_t weight_stride,
                         float* context, std::int64_t context_stride) {
  std::int64_t c = 0;
  for (; c + kVectors * kLanes <= dim; c += kVectors * kLanes) {
    add_columns<kRows, kVectors>(values + c, value_stride, count, kVectors * kLanes, weights,
                                 weight_stride, context + c, context_stride);
  }
  if (c == dim) return;
  if constexpr (kVectors > 1) {
    add_rows<kRows, T, kVectors / 2>(values + c, value_stride, count, dim - c, weights,
                                     weight_stride, context + c, context_stride);
  } else {
    add_columns<kRows, 1>(values + c, value_stride, count, dim - c, weights, weight_stride,
                          context + c, context_stride);
  }
}

/// context[r][c] += sum over k of weights[r * weight_stride + k] * value k [c], for any number of
/// rows: two at a time, over a few values.
template <class T>
HWY_INLINE void add_values(const T* values, std::int64_t value_stride, std::int64_t count,
                           std::int64_t dim, const float* weights, std::int64_t weight_stride,
                           std::int64_t rows, float* context, std::int64_t context_stride) {
  const std::int64_t together = rows > 1 ? kKeysTogether : count;
  const bool pairs = dim <= kHeldVectors / kRowsTogether * kLanes;
  for (std::int64_t k = 0; k < count; k += together) {
    const std::int64_t here = std::min(together, count - k);
    const T* const at = values + k * value_stride;
    std::int64_t r = 0;
    for (; pairs && r + kRowsTogether <= rows; r += kRowsTogether) {
      add_rows<kRowsTogether>(at, value_stride, here, dim, weights + r * weight_stride + k,
                              weight_stride, context + r * context_stride, context_stride);
    }
    for (; r < rows; ++r) {
      add_rows<1>(at, value_stride, here, dim, weights + r * weight_stride + k, weight_stride,
                  context + r * context_stride, context_stride);
    }
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_ROWS_INL_H_
