// SPDX-License-Identifier: Apache-2.0
//
// The forward pass in floats, whatever type the tensors have: numbers become floats on their way
// into tiles, which costs nothing there, and the context is rounded once on its way out. What the
// pass (forward-inl.h) needs to know of its arithmetic has this form; bf16_arithmetic-inl.h is the
// other one.

#if defined(FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
#undef FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
#else
#define FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "fovea/simd_math-inl.h"

#include "kernels/simd/rows_of.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

struct FloatArithmetic {
  /// Dimensions (in the first product) or keys (in the second) per step of a tile.
  static constexpr std::int64_t kPerStep = 1;
  /// Whether queries are multiplied by the scale as they are loaded; else scores are, later.
  static constexpr bool kScalesQueries = true;

  static HWY_INLINE Vector multiply_add(Vector a, Vector b, Vector sum) {
    return hn::MulAdd(a, b, sum);
  }

  /// `count` queries from `first` on, times `factor`, to [dim][kPanelLanes].
  static void load_queries(const InputRows& rows, std::int64_t first, std::int64_t count,
                           std::int64_t dim, float factor, float* to) {
    with_element_type(rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      transpose(Numbers<T>{rows.row_as<T>(first)}, rows.stride, count, dim, to, kPanelLanes);
    });
    const Floats d;
    const Vector f = hn::Set(d, factor);
    for (std::int64_t c = 0; c < dim; ++c) {
      for (std::int64_t lane = 0; lane < count; lane += kLanes) {
        float* at = to + c * kPanelLanes + lane;
        hn::Store(hn::Mul(f, hn::Load(d, at)), d, at);
      }
    }
  }

  /// `count` keys from `first` on, to tiles of [dim][kTileRows]; zeros where there are fewer.
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

  /// As kernels' pack_values().
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

  /// Weights, to the digits that products keep of them.
  static HWY_INLINE Vector exp2_of_nonpositive(Vector x) {
    return fovea::HWY_NAMESPACE::exp2_of_nonpositive(Floats(), x);
  }

  /// The weights of two neighbouring keys, `key` and the next, to [keys][kPanelLanes].
  static HWY_INLINE void store_weights(Vector first, Vector second, float* weights,
                                       std::int64_t key) {
    const Floats d;
    hn::Store(first, d, weights + key * kPanelLanes);
    hn::Store(second, d, weights + (key + 1) * kPanelLanes);
  }
  static float weight(const float* weights, std::int64_t key, std::int64_t lane) {
    return weights[key * kPanelLanes + lane];
  }

  // Of the backward pass, whose sums over queries take weights row by row.

  /// Whether these rows are what store_weights() makes as well.
  static constexpr bool kRowsArePairs = true;
  /// Between rows of a key each, of the panel's queries.
  static constexpr std::int64_t kRowStride = kPanelLanes;

  /// Those of two neighbouring keys, `key` and the next.
  static HWY_INLINE void store_rows(Vector first, Vector second, float* rows, std::int64_t key,
                                    std::int64_t lane) {
    hn::Store(first, Floats(), rows + key * kRowStride + lane);
    hn::Store(second, Floats(), rows + (key + 1) * kRowStride + lane);
  }
  static float row_weight(const float* rows, std::int64_t key, std::int64_t lane) {
    return rows[key * kRowStride + lane];
  }

  /// `count` rows from `first` on, to [kept][width], zeros beyond `dim` and `count`. Returns
  /// whether all numbers are finite.
  static bool pack_rows(const InputRows& rows, std::int64_t first, std::int64_t count,
                        std::int64_t kept, std::int64_t dim, float* to, std::int64_t width) {
    const Floats d;
    Vector doubt = hn::Zero(d);
    for (std::int64_t r = 0; r < count; ++r) {
      float* HWY_RESTRICT row = to + r * width;
      with_element_type(rows.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        const T* from = rows.row_as<T>(first + r);
        std::int64_t c = 0;
        for (; c + kLanes <= dim; c += kLanes) hn::Store(load_floats(d, from + c), d, row + c);
        for (; c < dim; ++c) row[c] = static_cast<float>(from[c]);
      });
      std::fill(row + dim, row + width, 0.0f);
      // A number minus itself is 0, or nan for nan and inf.
      for (std::int64_t c = 0; c < width; c += kLanes) {
        const Vector x = hn::Load(d, row + c);
        doubt = hn::Add(doubt, hn::Sub(x, x));
      }
    }
    std::fill(to + count * width, to + kept * width, 0.0f);
    return hn::AllTrue(d, hn::Eq(doubt, hn::Zero(d)));
  }
  /// Sets a packed row to zero.
  static void clear_row(float* rows, std::int64_t row, std::int64_t width) {
    std::fill_n(rows + row * width, width, 0.0f);
  }
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_FLOAT_ARITHMETIC_INL_H_
