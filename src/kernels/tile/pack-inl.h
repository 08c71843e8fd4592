// SPDX-License-Identifier: Apache-2.0
//
// Conversion of rows between tensor layouts and tile layouts (tile-inl.h).

#if defined(FOVEA_KERNELS_TILE_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_PACK_INL_H_
#undef FOVEA_KERNELS_TILE_PACK_INL_H_
#else
#define FOVEA_KERNELS_TILE_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// A pointer to tensor elements that are read as float32.
template <class T>
struct Numbers {
  const T* data;

  Numbers from(std::int64_t element) const { return {data + element}; }
  template <class D>
  HWY_INLINE hn::Vec<D> vector(D d, std::int64_t column) const {
    return load_floats(d, data + column);
  }
  /// Returns the first `count` numbers of vector(), fewer than its lanes, and zeros.
  template <class D>
  HWY_INLINE hn::Vec<D> first(D d, std::int64_t column, std::int64_t count) const {
    return load_first(d, data + column, count);
  }
  float one(std::int64_t column) const { return static_cast<float>(data[column]); }
};

/// The same, multiplied by a factor.
template <class T>
struct ScaledNumbers {
  Numbers<T> numbers;
  float factor;

  ScaledNumbers from(std::int64_t element) const { return {numbers.from(element), factor}; }
  template <class D>
  HWY_INLINE hn::Vec<D> vector(D d, std::int64_t column) const {
    return hn::Mul(hn::Set(d, factor), numbers.vector(d, column));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> first(D d, std::int64_t column, std::int64_t count) const {
    return hn::Mul(hn::Set(d, factor), numbers.first(d, column, count));
  }
  float one(std::int64_t column) const { return factor * numbers.one(column); }
};

#if HWY_TARGET != HWY_SCALAR
/// Stores the 128-bit blocks of a vector at to, to + 4 * to_stride, to + 8 * to_stride, ...
template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, float* to, std::int64_t to_stride) {
  constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (kWidth == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), to, to_stride);
    store_blocks(half, hn::UpperHalf(half, v), to + kWidth / 2 * to_stride, to_stride);
  }
}

/// Computes to[c * to_stride + r] = from[r * from_stride + column + c] for 4 rows and one column
/// per lane of D.
template <class D, class Source>
HWY_INLINE void transpose_4_rows(D d, Source from, std::int64_t from_stride, std::int64_t column,
                                 float* to, std::int64_t to_stride) {
  const hn::RepartitionToWide<D> pairs;
  const auto r0 = from.vector(d, column);
  const auto r1 = from.from(from_stride).vector(d, column);
  const auto r2 = from.from(2 * from_stride).vector(d, column);
  const auto r3 = from.from(3 * from_stride).vector(d, column);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  // Interleaving works within 128-bit blocks, so each block of 4 columns is transposed separately.
  store_blocks(d, hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), to, to_stride);
  store_blocks(d, hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), to + to_stride,
               to_stride);
  store_blocks(d, hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), to + 2 * to_stride,
               to_stride);
  store_blocks(d, hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), to + 3 * to_stride,
               to_stride);
}

/// Transposes the columns of 4 rows, starting at column `c`, one full vector of columns at a time.
/// Remaining columns use vectors of half the width, recursively.
template <class D, class Source>
HWY_INLINE void transpose_columns(D d, Source from, std::int64_t from_stride, std::int64_t c,
                                  std::int64_t columns, float* to, std::int64_t to_stride) {
  constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(D()));
  for (; c + kWidth <= columns; c += kWidth) {
    transpose_4_rows(d, from, from_stride, c, to + c * to_stride, to_stride);
  }
  if constexpr (kWidth > 4) {
    transpose_columns(hn::Half<D>(), from, from_stride, c, columns, to, to_stride);
  } else {
    for (; c < columns; ++c) {
      for (std::int64_t r = 0; r < 4; ++r) {
        to[c * to_stride + r] = from.from(r * from_stride).one(c);
      }
    }
  }
}
#endif

/// Computes to[c * to_stride + r] = column c of row r of `from` for `rows` rows and `columns`
/// columns. `from_stride` counts elements.
template <class Source>
HWY_NOINLINE void transpose(Source from, std::int64_t from_stride, std::int64_t rows,
                            std::int64_t columns, float* HWY_RESTRICT to, std::int64_t to_stride) {
  std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; r + 4 <= rows; r += 4) {
    transpose_columns(Floats(), from.from(r * from_stride), from_stride, 0, columns, to + r,
                      to_stride);
  }
#endif
  for (; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c * to_stride + r] = from.from(r * from_stride).one(c);
    }
  }
}

/// Packs one tile of `count` keys into a [columns][kTileRows] buffer, padded with zeros to
/// kTileRows keys.
template <class Source>
HWY_INLINE void pack_key_tile(Source keys, std::int64_t stride, std::int64_t count,
                              std::int64_t columns, float* HWY_RESTRICT to) {
  if (count < kTileRows) std::fill(to, to + columns * kTileRows, 0.0f);
  transpose(keys, stride, count, columns, to, kTileRows);
}

/// Packs values for the second product into consecutive tiles of kTileRows dimensions, the last one
/// narrower. The layout of a tile is [kept][width]; keys from `count` to `kept` are zeros.
/// `tile_stride` is the distance between tiles. Returns whether all values are finite.
template <class T>
HWY_INLINE bool pack_values(Numbers<T> values, std::int64_t stride, std::int64_t count,
                            std::int64_t kept, std::int64_t dim, float* HWY_RESTRICT to,
                            std::int64_t tile_stride) {
  const std::int64_t whole = dim / kTileRows;
  const std::int64_t rest = dim % kTileRows;
#if HWY_TARGET == HWY_SCALAR
  const hn::CappedTag<float, 1> d;
#else
  const hn::CappedTag<float, kTileRows> d;
#endif
  constexpr std::int64_t kStep = static_cast<std::int64_t>(hn::MaxLanes(decltype(d)()));
  // x - x is 0 if x is finite, else NaN.
  auto doubt = hn::Zero(d);
  float rest_doubt = 0.0f;
  for (std::int64_t k = 0; k < count; ++k) {
    const Numbers<T> from = values.from(k * stride);
    float* HWY_RESTRICT row = to + k * kTileRows;
    for (std::int64_t t = 0; t < whole; ++t) {
      for (std::int64_t i = 0; i < kTileRows; i += kStep) {
        const auto x = from.vector(d, t * kTileRows + i);
        doubt = hn::Add(doubt, hn::Sub(x, x));
        hn::StoreU(x, d, row + t * tile_stride + i);
      }
    }
    for (std::int64_t i = 0; i < rest; ++i) {
      const float x = from.one(whole * kTileRows + i);
      rest_doubt += x - x;
      to[whole * tile_stride + k * rest + i] = x;
    }
  }
  for (std::int64_t t = 0; t < whole; ++t) {
    std::fill(to + t * tile_stride + count * kTileRows, to + t * tile_stride + kept * kTileRows,
              0.0f);
  }
  std::fill(to + whole * tile_stride + count * rest, to + whole * tile_stride + kept * rest, 0.0f);
  return hn::AllTrue(d, hn::Eq(doubt, hn::Zero(d))) && rest_doubt == 0.0f;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_PACK_INL_H_
