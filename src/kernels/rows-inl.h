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

/// Rows of queries or weights that share each load of a key or value, and vectors of a value that
/// are summed up at a time: so many that the sums stay in registers.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kRowsAtOnce = 2;
constexpr int kValueVectors = 4;
#else
constexpr int kRowsAtOnce = 4;
constexpr int kValueVectors = 8;
#endif
/// Neighbouring values that one pair of rows after the other is multiplied with: few enough to stay
/// in the first cache.
constexpr std::int64_t kValuesAtOnce = 16;

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

/// sums[i] += key i . query, for 4 keys and the only query.
template <class T>
HWY_INLINE void multiply_one_row(const float* HWY_RESTRICT query, const T* const (&keys)[4],
                                 std::int64_t dim, Vector (&sums)[4]) {
  const Floats d;
  const std::int64_t whole = dim / kLanes * kLanes;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    for (std::int64_t c = 0; c < whole; c += kLanes) {
      sums[i] = hn::MulAdd(load_floats(d, keys[i] + c), hn::Load(d, query + c), sums[i]);
    }
    if (whole < dim) {
      sums[i] = hn::MulAdd(load_first(d, keys[i] + whole, dim - whole), hn::Load(d, query + whole),
                           sums[i]);
    }
    end_of_row();
  }
}

/// sums[i][r] += key i . query r, for two keys, whose numbers wait in registers for the queries,
/// kVectors vectors at a time.
template <int kVectors, class T>
HWY_INLINE void multiply_rows(const float* HWY_RESTRICT queries, std::int64_t query_stride,
                              const T* HWY_RESTRICT key0, const T* HWY_RESTRICT key1,
                              std::int64_t dim, Vector (&sums)[2][kRowsAtOnce]) {
  const Floats d;
  std::int64_t c = 0;
  const auto multiply = [&](const auto& load) HWY_ATTR {
    Vector x[2][kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[0][v] = load(key0 + c + v * kLanes);
    end_of_row();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[1][v] = load(key1 + c + v * kLanes);
    end_of_row();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const Vector q = hn::Load(d, queries + r * query_stride + c + v * kLanes);
        sums[0][r] = hn::MulAdd(x[0][v], q, sums[0][r]);
        sums[1][r] = hn::MulAdd(x[1][v], q, sums[1][r]);
      }
    }
  };
  for (; c + kVectors * kLanes <= dim; c += kVectors * kLanes) {
    multiply([&](const T* at) HWY_ATTR { return load_floats(d, at); });
  }
  if (c == dim) return;
  if constexpr (kVectors > 1) {
    multiply_rows<kVectors / 2>(queries + c, query_stride, key0 + c, key1 + c, dim - c, sums);
  } else {
    multiply([&](const T* at) HWY_ATTR { return load_first(d, at, dim - c); });
  }
}

/// scores[r * score_stride + k] = query r . key k, for `count` keys; queries are [kRows][stride]
/// and end in zeros. kRows is 1 or kRowsAtOnce.
template <int kRows, class T>
HWY_INLINE void score_keys(const float* HWY_RESTRICT queries, std::int64_t query_stride,
                           const T* HWY_RESTRICT keys, std::int64_t key_stride, std::int64_t count,
                           std::int64_t dim, float* HWY_RESTRICT scores,
                           std::int64_t score_stride) {
  const Floats d;
  for (std::int64_t k = 0; k < count; k += 4) {
    const std::int64_t here = std::min<std::int64_t>(4, count - k);
    // Beyond the last key, that one again.
    const T* at[4];
    for (int i = 0; i < 4; ++i)
      at[i] = keys + std::min<std::int64_t>(k + i, count - 1) * key_stride;
    float four[kRows][4];
    if constexpr (kRows == 1) {
      Vector sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      multiply_one_row(queries, at, dim, sums);
      store_sums_of_4(sums, four[0]);
    } else {
#pragma GCC unroll 2
      for (int pair = 0; pair < 4; pair += 2) {
        Vector sums[2][kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sums[0][r] = sums[1][r] = hn::Zero(d);
        multiply_rows<kValueVectors>(queries, query_stride, at[pair], at[pair + 1], dim, sums);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; r += 2) {
          const Vector both[4] = {sums[0][r], sums[1][r], sums[0][r + 1], sums[1][r + 1]};
          float result[4];
          store_sums_of_4(both, result);
          std::memcpy(four[r] + pair, result, 2 * sizeof(float));
          std::memcpy(four[r + 1] + pair, result + 2, 2 * sizeof(float));
        }
      }
    }
#pragma GCC unroll 4
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
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Load(d, context + r * context_stride + v * kLanes);
    }
  }
  for (std::int64_t k = 0; k < count; ++k, values += value_stride) {
    Vector x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      x[v] = kVectors == 1 && columns < kLanes ? load_first(d, values, columns)
                                               : load_floats(d, values + v * kLanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vector weight = hn::Set(d, weights[r * weight_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(weight, x[v], sums[r][v]);
    }
    end_of_row();
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, context + r * context_stride + v * kLanes);
    }
  }
}

/// The same for all `dim` columns, as many at a time as fit the registers.
template <int kRows, class T, int kVectors = kValueVectors>
HWY_INLINE void add_values(const T* values, std::int64_t value_stride, std::int64_t count,
                           std::int64_t dim, const float* weights, std::int64_t weight_stride,
                           float* context, std::int64_t context_stride) {
  std::int64_t c = 0;
  for (; c + kVectors * kLanes <= dim; c += kVectors * kLanes) {
    add_columns<kRows, kVectors>(values + c, value_stride, count, kVectors * kLanes, weights,
                                 weight_stride, context + c, context_stride);
  }
  if (c == dim) return;
  if constexpr (kVectors > 1) {
    add_values<kRows, T, kVectors / 2>(values + c, value_stride, count, dim - c, weights,
                                       weight_stride, context + c, context_stride);
  } else {
    add_columns<kRows, 1>(values + c, value_stride, count, dim - c, weights, weight_stride,
                          context + c, context_stride);
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_ROWS_INL_H_
