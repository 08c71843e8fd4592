// SPDX-License-Identifier: Apache-2.0
//
// The micro-kernel of sums over queries or over keys, those of the gradients and of contexts whose
// values are read in place:
//
//   C[i][lane] = or += sum over c of A[i][c] * B[c][lane]
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
#include <type_traits>

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

/// Adds the sums of tiles to C, which has rows of `stride` numbers and must be aligned.
struct AddSums {
  static constexpr bool kAdds = true;  // a product without steps has no effect
  float* c;
  std::int64_t stride;

  /// Called before a tile multiplies kVectors vectors at `b`.
  template <int kVectors>
  static void before_step(const float* b) {
    static_cast<void>(b);
  }
  /// Takes the sums of a tile whose first row is `row` and whose first lane is `lane`.
  template <int kRows, int kVectors>
  HWY_INLINE void take(const Vector (&sums)[kRows][kVectors], std::int64_t row,
                       std::int64_t lane) const {
    const Floats d;
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* HWY_RESTRICT to = c + (row + i) * stride + lane + v * kLanes;
        hn::Store(hn::Add(hn::Load(d, to), sums[i][v]), d, to);
      }
    }
  }
};

/// Computes the product of A and B for one tile of C, kRows rows by kVectors vectors that start at
/// (row, lane), and gives it to `sums`, for example AddSums. `a` is the first row of A, and `b` has
/// the shape [steps][b_stride] and need not be aligned.
template <class Arithmetic, class A, int kRows, int kVectors, class Sums>
HWY_INLINE void row_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                         std::int64_t b_stride, std::int64_t steps, Sums& sums, std::int64_t row,
                         std::int64_t lane) {
  a += row * A::kRowStride;
  b += lane;
  const Floats d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    sums.template before_step<kVectors>(b);
    Vector lanes[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) lanes[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Vector x = hn::Set(d, a[i * A::kRowStride]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = Arithmetic::multiply_add(x, lanes[v], sum[i][v]);
      }
    }
    a += A::kStepStride;
    b += b_stride;
  }
  sums.take(sum, row, lane);
}

/// Calls row_tile() with a row count up to kRows that is only known at run time.
template <class Arithmetic, class A, int kVectors, int kRows, class Sums>
HWY_INLINE void row_tile_of(std::int64_t rows, const float* a, const float* b,
                            std::int64_t b_stride, std::int64_t steps, Sums& sums, std::int64_t row,
                            std::int64_t lane) {
  if (rows == kRows) {
    row_tile<Arithmetic, A, kRows, kVectors>(a, b, b_stride, steps, sums, row, lane);
  } else if constexpr (kRows > kRowsMultiple) {
    row_tile_of<Arithmetic, A, kVectors, kRows - kRowsMultiple>(rows, a, b, b_stride, steps, sums,
                                                                row, lane);
  }
}

/// Computes the tiles of the rows [row, end) in a column of C that is kVectors vectors wide. The
/// rows are divided evenly: with too few sums, each addition waits for the one before.
template <class Arithmetic, class A, int kVectors, class Sums>
HWY_NOINLINE void column_of_tiles(std::int64_t row, std::int64_t end, const float* a,
                                  const float* b, std::int64_t b_stride, std::int64_t steps,
                                  Sums& sums, std::int64_t lane) {
  constexpr int kRows = row_tile_rows(kVectors);
  for (std::int64_t tiles = (end - row + kRows - 1) / kRows; tiles > 0; --tiles) {
    const std::int64_t even = (end - row + tiles - 1) / tiles;
    const std::int64_t rows = (even + kRowsMultiple - 1) / kRowsMultiple * kRowsMultiple;
    row_tile_of<Arithmetic, A, kVectors, kRows>(rows, a, b, b_stride, steps, sums, row, lane);
    row += rows;
  }
}

/// Computes the rows [row, end) of C = A B, `width` lanes wide, a multiple of kLanes, and gives the
/// tiles to `sums`. The vectors are divided evenly into the smallest number of groups of at most
/// kMaxRowVectors.
template <class Arithmetic, class A, class Sums>
HWY_INLINE void row_products(std::int64_t row, std::int64_t end, std::int64_t width, const float* a,
                             const float* b, std::int64_t b_stride, std::int64_t steps,
                             Sums& sums) {
  constexpr int kThree = kMaxRowVectors >= 3 ? 3 : 1;
  std::int64_t lane = 0;
  for (std::int64_t groups = (width / kLanes + kMaxRowVectors - 1) / kMaxRowVectors; groups > 0;
       --groups) {
    const std::int64_t here = ((width - lane) / kLanes + groups - 1) / groups;
    const auto column = [&](auto vectors) {
      column_of_tiles<Arithmetic, A, decltype(vectors)::value>(row, end, a, b, b_stride, steps,
                                                               sums, lane);
    };
    switch (here) {
      case 1:
        column(std::integral_constant<int, 1>());
        break;
      case 2:
        column(std::integral_constant<int, 2>());
        break;
      case 3:
        column(std::integral_constant<int, kThree>());
        break;
      default:
        column(std::integral_constant<int, kMaxRowVectors>());
        break;
    }
    lane += here * kLanes;
  }
}

/// Computes C += A B, where C has rows of `c_stride` numbers and must be aligned.
template <class Arithmetic, class A>
HWY_INLINE void add_rows(std::int64_t rows, std::int64_t width, const float* a, const float* b,
                         std::int64_t b_stride, std::int64_t steps, float* c,
                         std::int64_t c_stride) {
  const AddSums sums{c, c_stride};
  row_products<Arithmetic, A>(0, rows, width, a, b, b_stride, steps, sums);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_ROW_TILE_INL_H_
