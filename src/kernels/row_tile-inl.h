// SPDX-License-Identifier: Apache-2.0
//
// The micro-kernel of the gradients of keys and values, which sum over queries:
//
//   C[i][lane] += sum over c of A[i][c] * B[c][lane]
//
// with i keys, lanes dimensions, and c the queries of a panel. A is what the scores' tiles leave: a
// row per key, whose numbers are broadcast one by one. As in tile-inl.h the tile of C stays in
// registers, but its shape follows from the number of dimensions, so that few lanes go to waste.

#if defined(FOVEA_KERNELS_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_ROW_TILE_INL_H_
#undef FOVEA_KERNELS_ROW_TILE_INL_H_
#else
#define FOVEA_KERNELS_ROW_TILE_INL_H_
#endif

#include <cstdint>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

// As many accumulators as a tile of scores has: 24 of 32 registers, 12 or 8 of 16.
constexpr int kAccumulators = kTileRows * kPanelVectors;
constexpr int kMostRowVectors = kAccumulators >= 24 ? 4 : 2;

/// Keys of a tile of `vectors` vectors; even, as all numbers of keys are here.
constexpr int row_tile_keys(int vectors) {
  const int keys = kAccumulators / vectors;
  return keys > 12 ? 12 : keys;
}

/// a [kKeys][a_stride], b [steps][b_stride], c [kKeys][c_stride].
template <class Arithmetic, int kKeys, int kVectors>
HWY_INLINE void row_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                         std::int64_t b_stride, std::int64_t steps, float* HWY_RESTRICT c,
                         std::int64_t c_stride) {
  constexpr std::int64_t kStride = Arithmetic::kRowStride;
  const Floats d;
  Vector sum[kKeys][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    Vector row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kKeys; ++i) {
      const Vector x = hn::Set(d, a[i * kStride + step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = Arithmetic::multiply_add(x, row[v], sum[i][v]);
      }
    }
    b += b_stride;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* HWY_RESTRICT to = c + i * c_stride + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[i][v]), d, to);
    }
  }
}

/// The same with an even number of keys up to kKeys that is known only now.
template <class Arithmetic, int kVectors, int kKeys = row_tile_keys(kVectors)>
HWY_INLINE void row_tile_of(std::int64_t keys, const float* a, const float* b,
                            std::int64_t b_stride, std::int64_t steps, float* c,
                            std::int64_t c_stride) {
  if (keys == kKeys) {
    row_tile<Arithmetic, kKeys, kVectors>(a, b, b_stride, steps, c, c_stride);
  } else if constexpr (kKeys > 2) {
    row_tile_of<Arithmetic, kVectors, kKeys - 2>(keys, a, b, b_stride, steps, c, c_stride);
  }
}

/// All tiles of `keys` keys, an even number, and kVectors vectors.
template <class Arithmetic, int kVectors>
HWY_NOINLINE void add_row_tiles(std::int64_t keys, const float* a, const float* b,
                                std::int64_t b_stride, std::int64_t steps, float* c,
                                std::int64_t c_stride) {
  constexpr std::int64_t kKeys = row_tile_keys(kVectors);
  std::int64_t k = 0;
  for (; k + kKeys <= keys; k += kKeys) {
    row_tile<Arithmetic, kKeys, kVectors>(a + k * Arithmetic::kRowStride, b, b_stride, steps,
                                          c + k * c_stride, c_stride);
  }
  row_tile_of<Arithmetic, kVectors>(keys - k, a + k * Arithmetic::kRowStride, b, b_stride, steps,
                                    c + k * c_stride, c_stride);
}

/// C += A B for `keys` keys and `width` lanes, a multiple of kLanes; b and c have rows of c_stride
/// numbers. As many vectors at a time as there may be, the rest shared out evenly.
template <class Arithmetic>
HWY_INLINE void add_rows(std::int64_t keys, std::int64_t width, const float* a, const float* b,
                         std::int64_t steps, float* c, std::int64_t c_stride) {
  std::int64_t vectors = width / kLanes;
  for (std::int64_t groups = (vectors + kMostRowVectors - 1) / kMostRowVectors; groups > 0;
       --groups) {
    const std::int64_t here = (vectors + groups - 1) / groups;
    switch (here) {
      case 1:
        add_row_tiles<Arithmetic, 1>(keys, a, b, c_stride, steps, c, c_stride);
        break;
      case 2:
        add_row_tiles<Arithmetic, 2>(keys, a, b, c_stride, steps, c, c_stride);
        break;
      case 3:
        add_row_tiles<Arithmetic, kMostRowVectors >= 3 ? 3 : 1>(keys, a, b, c_stride, steps, c,
                                                                c_stride);
        break;
      default:
        add_row_tiles<Arithmetic, kMostRowVectors>(keys, a, b, c_stride, steps, c, c_stride);
        break;
    }
    vectors -= here;
    b += here * kLanes;
    c += here * kLanes;
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_ROW_TILE_INL_H_
