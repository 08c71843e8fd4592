// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of the tiled passes in float32, for all tensor types. Elements are converted to
// float32 while they are packed into tiles, at no extra cost, and the context is rounded once when
// it is written. This class documents the interface that the passes (forward-inl.h) require of an
// arithmetic; bf16_arithmetic-inl.h is the other implementation.

#if defined(FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
#undef FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
#else
#define FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
#endif

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "fovea/simd_math-inl.h"

#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

struct FloatArithmetic {
  /// The number of dimensions (first product) or keys (second product) per step of a tile.
  static constexpr std::int64_t kPerStep = 1;
  /// True if the scale is applied to queries as they are loaded; otherwise it is applied to scores.
  static constexpr bool kScalesQueries = true;

  static HWY_INLINE Vector multiply_add(Vector a, Vector b, Vector sum) {
    return hn::MulAdd(a, b, sum);
  }

  /// Loads `count` queries, starting at `first` and multiplied by `factor`, into a
  /// [dim][kPanelLanes] buffer.
  static void load_queries(const InputRows& rows, std::int64_t first, std::int64_t count,
                           std::int64_t dim, float factor, float* to) {
    with_element_type(rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      transpose(ScaledNumbers<T>{{rows.row_as<T>(first)}, factor}, rows.stride, count, dim, to,
                kPanelLanes);
    });
  }

  /// Packs `count` keys, starting at `first`, into tiles of [dim][kTileRows], padded with zeros.
  static void pack_keys(const InputRows& rows, std::int64_t first, std::int64_t count,
                        std::int64_t dim, float* to) {
    with_element_type(rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      for (std::int64_t k = 0; k < count; k += kTileRows) {
        pack_key_tile(Numbers<T>{rows.row_as<T>(first + k)}, rows.stride,
                      std::min<std::int64_t>(kTileRows, count - k), dim, to + k * dim);
      }
    });
  }

  /// Packs values as HWY_NAMESPACE::pack_values() does.
  static bool pack_values(const InputRows& rows, std::int64_t first, std::int64_t count,
                          std::int64_t kept, std::int64_t dim, float* to,
                          std::int64_t tile_stride) {
    return with_element_type(rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      return HWY_NAMESPACE::pack_values(Numbers<T>{rows.row_as<T>(first)}, rows.stride, count, kept,
                                        dim, to, tile_stride);
    });
  }

  /// Sets a packed value of `width` dimensions to zero.
  static void clear_value(float* tile, std::int64_t key, std::int64_t width) {
    std::fill_n(tile + key * width, width, 0.0f);
  }

  /// Returns 2^x for x <= 0, with the precision of the weights in the second product.
  static HWY_INLINE Vector exp2_of_nonpositive(Vector x) {
    return fovea::HWY_NAMESPACE::exp2_of_nonpositive(Floats(), x);
  }
  template <int kCount>
  static HWY_INLINE void exp2_of_nonpositive(const Vector* x, Vector* power) {
    fovea::HWY_NAMESPACE::exp2_of_nonpositive<kCount>(Floats(), x, power);
  }

  /// Stores the weights of two adjacent keys, `key` and key + 1, in a [keys][kPanelLanes] buffer.
  static HWY_INLINE void store_weights(Vector first, Vector second, float* weights,
                                       std::int64_t key) {
    const Floats d;
    hn::Store(first, d, weights + key * kPanelLanes);
    hn::Store(second, d, weights + (key + 1) * kPanelLanes);
  }
  static float weight(const float* weights, std::int64_t key, std::int64_t lane) {
    return weights[key * kPanelLanes + lane];
  }

  // For the backward pass, whose sums over queries read weights as one row per key.

  /// True if store_weights() uses the same layout as store_rows().
  static constexpr bool kRowsArePairs = true;
  /// The stride between the rows of adjacent keys; a row holds the weights of the panel's queries.
  static constexpr std::int64_t kRowStride = kPanelLanes;

  /// Stores the weights of two adjacent keys, `key` and key + 1, as rows.
  static HWY_INLINE void store_rows(Vector first, Vector second, float* rows, std::int64_t key,
                                    std::int64_t lane) {
    hn::Store(first, Floats(), rows + key * kRowStride + lane);
    hn::Store(second, Floats(), rows + (key + 1) * kRowStride + lane);
  }
  static float row_weight(const float* rows, std::int64_t key, std::int64_t lane) {
    return rows[key * kRowStride + lane];
  }

  /// Packs `count` rows, starting at row `first`, into a [kept][width] buffer, padded with zeros
  /// beyond `dim` and `count`. `width` is that of copy_rows(). Returns whether all elements are
  /// finite.
  static bool pack_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                        std::int64_t kept, std::int64_t dim, float* to, std::int64_t width) {
    const Floats d;
    Vector doubt = hn::Zero(d);
    for (std::int64_t r = 0; r < count; ++r) {
      float* const row = to + r * width;
      copy_rows(rows, first + r, 1, dim, row, width);
      // x - x is 0 if x is finite, else NaN.
      for (std::int64_t c = 0; c < width; c += kLanes) {
        const Vector x = hn::Load(d, row + c);
        doubt = hn::Add(doubt, hn::Sub(x, x));
      }
    }
    std::fill(to + count * width, to + kept * width, 0.0f);
    return hn::AllTrue(d, hn::Eq(doubt, hn::Zero(d)));
  }
  /// Copies `count` rows of `dim` numbers, padded with zeros to `width`: `dim` rounded up to whole
  /// vectors.
  static HWY_INLINE void copy_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                                   std::int64_t dim, float* to, std::int64_t width) {
    assert(dim <= width && width < dim + kLanes);
    const Floats d;
    with_element_type(rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      for (std::int64_t r = 0; r < count; ++r) {
        const T* const from = rows.row_as<T>(first + r);
        float* const HWY_RESTRICT row = to + r * width;
        std::int64_t c = 0;
        for (; c + kLanes <= dim; c += kLanes) hn::Store(load_floats(d, from + c), d, row + c);
        if (c < dim) hn::Store(load_first(d, from + c, dim - c), d, row + c);
      }
    });
  }
  /// Sets a packed row to zero.
  static void clear_row(float* rows, std::int64_t row, std::int64_t width) {
    std::fill_n(rows + row * width, width, 0.0f);
  }
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
