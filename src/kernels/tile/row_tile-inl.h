// SPDX-License-Identifier: Apache-2.0
//
// The micro-kernel of the gradients, which are sums over queries or over keys:
//
//   C[i][lane] += sum over c of A[i][c] * B[c][lane]
//
// where i counts keys and c the queries of a panel, or i counts queries and c keys; lanes hold
// dimensions. A contains the weights or score gradients in the layout of score tiles, read along
// either axis, and its elements are broadcast one at a time. As in tile-inl.h, the tile of C stays
// in registers. The tile's shape depends on the number of dimensions, so that few lanes are wasted.
// Neither inputs nor outputs need a transpose.

#if defined(FOVEA_KERNELS_TILE_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_ROW_TILE_INL_H_
#undef FOVEA_KERNELS_TILE_ROW_TILE_INL_H_
#else
#define FOVEA_KERNELS_TILE_ROW_TILE_INL_H_
#endif

#include <cstdint>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

// The same number of accumulators as in a score tile: 24 of 32 registers, 12 or 8 of 16.
constexpr int kAccumulators = kTileRows * kPanelVectors;
constexpr int kMaxRowVectors = kAccumulators >= 24 ? 4 : 2;

/// The layout of A: A[i][c] is at i * kRow + c * kStep.
template <std::int64_t kRow, std::int64_t kStep>
struct Layout {
  static constexpr std::int64_t kRowStride = kRow;
  static constexpr std::int64_t kStepStride = kStep;
};

/// Every row count is a multiple of this, because rows are the keys of whole tiles or the lanes of
/// whole vectors.
constexpr int kRowsMultiple = kLanes == 1 ? 1 : 2;

/// Returns the number of rows of a tile that is `vectors` vectors wide.
constexpr int row_tile_rows(int vectors) {
  const int rows = kAccumulators / vectors;
  return rows > 12 ? 12 : rows;
}

/// Adds the product of A and B to one tile of C, kRows rows by kVectors vectors. Shapes:
/// b [steps][b_stride], c [kRows][c_stride]. b need not be aligned.
template <class Arithmetic, class A, int kRows, int kVectors>
HWY_INLINE void row_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                         std::int64_t b_stride, std::int64_t steps, float* HWY_RESTRICT c,
                         std::int64_t c_stride) {
  const Floats d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    Vector row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Vector x = hn::Set(d, a[i * A::kRowStride]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = Arithmetic::multiply_add(x, row[v], sum[i][v]);
      }
    }
    a += A::kStepStride;
    b += b_stride;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* HWY_RESTRICT to = c + i * c_stride + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[i][v]), d, to);
    }
  }
}

/// Calls row_tile() with a row count up to kRows that is only known at run time.
template <class Arithmetic, class A, int kVectors, int kRows = row_tile_rows(kVectors)>
HWY_INLINE void row_tile_of(std::int64_t rows, const float* a, const float* b,
                            std::int64_t b_stride, std::int64_t steps, float* c,
                            std::int64_t c_stride) {
  if (rows == kRows) {
    row_tile<Arithmetic, A, kRows, kVectors>(a, b, b_stride, steps, c, c_stride);
  } else if constexpr (kRows > kRowsMultiple) {
    row_tile_of<Arithmetic, A, kVectors, kRows - kRowsMultiple>(rows, a, b, b_stride, steps, c,
                                                                c_stride);
  }
}

/// Computes all tiles of a column of C that is `rows` rows high and kVectors vectors wide.
template <class Arithmetic, class A, int kVectors>
HWY_NOINLINE void add_row_tiles(std::int64_t rows, const float* a, const float* b,
                                std::int64_t b_stride, std::int64_t steps, float* c,
                                std::int64_t c_stride) {
  constexpr std::int64_t kRows = row_tile_rows(kVectors);
  std::int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    row_tile<Arithmetic, A, kRows, kVectors>(a + i * A::kRowStride, b, b_stride, steps,
                                             c + i * c_stride, c_stride);
  }
  row_tile_of<Arithmetic, A, kVectors>(rows - i, a + i * A::kRowStride, b, b_stride, steps,
                                       c + i * c_stride, c_stride);
}

/// Computes C += A B for `rows` rows and `width` lanes, a multiple of kLanes. The vectors are
/// divided evenly into the smallest number of groups of at most kMaxRowVectors.
template <class Arithmetic, class A>
HWY_INLINE void add_rows(std::int64_t rows, std::int64_t width, const float* a, const float* b,
                         std::int64_t b_stride, std::int64_t steps, float* c,
                         std::int64_t c_stride) {
  constexpr int kThree = kMaxRowVectors >= 3 ? 3 : 1;
  std::int64_t vectors = width / kLanes;
  for (std::int64_t groups = (vectors + kMaxRowVectors - 1) / kMaxRowVectors; groups > 0;
       --groups) {
    const std::int64_t here = (vectors + groups - 1) / groups;
    switch (here) {
      case 1:
        add_row_tiles<Arithmetic, A, 1>(rows, a, b, b_stride, steps, c, c_stride);
        break;
      case 2:
        add_row_tiles<Arithmetic, A, 2>(rows, a, b, b_stride, steps, c, c_stride);
        break;
      case 3:
        add_row_tiles<Arithmetic, A, kThree>(rows, a, b, b_stride, steps, c, c_stride);
        break;
      default:
        add_row_tiles<Arithmetic, A, kMaxRowVectors>(rows, a, b, b_stride, steps, c, c_stride);
        break;
    }
    vectors -= here;
    b += here * kLanes;
    c += here * kLanes;
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_ROW_TILE_INL_H_
