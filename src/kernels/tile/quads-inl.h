// SPDX-License-Identifier: Apache-2.0
//
// The first product for a panel of few queries, with keys in place:
//
//   C[i][lane] = sum over c of A[i][c] * B[lane][c]
//
// With one number of each query in a vector (tile_of_rows() in key_rows-inl.h), each number of a
// key is broadcast for a single vector: every multiplication needs a load. CPUs that multiply two
// vectors per cycle can start hardly more than one of these loads, and lanes without a query waste
// multiplications. Here a vector holds four adjacent numbers, a quad, of each of kLanes / 4
// queries. A load broadcasts a quad of a key to all of them and serves up to four vectors; there
// are only as many as the queries fill. Finally, the four partial sums of each score are added.

#if defined(FOVEA_KERNELS_TILE_QUADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_QUADS_INL_H_
#undef FOVEA_KERNELS_TILE_QUADS_INL_H_
#else
#define FOVEA_KERNELS_TILE_QUADS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/prefetcher.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The dimensions of a quad.
constexpr std::int64_t kQuad = 4;
/// Whether the target uses this product. It is not used with vectors of 4 lanes, which hold a
/// single query, because its speed there has not been measured.
constexpr bool kMayUseQuads = kLanes >= 2 * kQuad;
/// Returns the maximum number of queries of a panel for which this product is used.
constexpr std::int64_t max_queries_in_quads(std::int64_t dim) {
  return kMayUseQuads && dim >= kQuad ? kLanes * 3 / 2 : 0;
}
/// The queries whose quads fill a vector.
constexpr std::int64_t kQueriesOfVector = kLanes < kQuad ? 1 : kLanes / kQuad;
/// The floats of a quad of kLanes queries.
constexpr std::int64_t kQuadStep = kQuad * kLanes;
/// Returns the floats of kLanes queries: [dim / 4, rounded up][kLanes][4].
constexpr std::int64_t quad_floats(std::int64_t dim) {
  return (dim + kQuad - 1) / kQuad * kQuadStep;
}

#if HWY_TARGET == HWY_SCALAR
// Never called.
template <class Source>
void store_quads(Source, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*);
void clear_quads(std::int64_t, std::int64_t, float*);
void tile_of_few(std::int64_t, const float*, std::int64_t, std::int64_t, std::int64_t, const float*,
                 std::int64_t, float*, float*);
#else

/// Stores `count` rows as the queries from `query` on of a [vectors][dim / 4, rounded
/// up][kLanes][4] buffer, padded with zeros.
template <class Source>
HWY_NOINLINE void store_quads(Source from, std::int64_t from_stride, std::int64_t query,
                              std::int64_t count, std::int64_t dim, float* to) {
  const Floats d;
  for (std::int64_t r = 0; r < count; ++r, ++query) {
    const Source source = from.from(r * from_stride);
    float* row = to + query / kLanes * quad_floats(dim) + query % kLanes * kQuad;
    std::int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes, row += kLanes * kLanes) {
      store_blocks(d, source.vector(d, c), row, kLanes);
    }
    if (c == dim) continue;
    alignas(64) float rest[kLanes];
    hn::Store(source.first(d, c, dim - c), d, rest);
    for (std::int64_t i = 0; i < dim - c; i += kQuad, row += kQuadStep) {
      std::copy_n(rest + i, kQuad, row);
    }
  }
}

/// Sets the lanes that follow `queries` queries, in the last vector, to zero.
inline void clear_quads(std::int64_t queries, std::int64_t dim, float* to) {
  if (queries % kLanes == 0) return;
  to += queries / kLanes * quad_floats(dim);
  for (std::int64_t c = 0; c < dim; c += kQuad, to += kQuadStep) {
    std::fill(to + queries % kLanes * kQuad, to + kQuadStep, 0.0f);
  }
}

/// Returns the sums of the quads of kVectors vectors, one lane per query. The other lanes are 0.
template <int kVectors>
HWY_INLINE Vector sums_of_quads(const Vector (&x)[kVectors]) {
  const Floats d;
  const hn::RepartitionToWide<Floats> pairs;
  const auto vector = [&](int v) HWY_ATTR { return v < kVectors ? x[v % kVectors] : hn::Zero(d); };
  const auto sums_of_pairs = [&](Vector a, Vector b) HWY_ATTR {
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto low = sums_of_pairs(vector(0), vector(1));
  const auto high = kVectors > 2 ? sums_of_pairs(vector(2), vector(3)) : hn::Zero(pairs);
  // Block b holds the sums of query b of each vector.
  const Vector sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                              hn::BitCast(d, hn::InterleaveUpper(pairs, low, high)));
  alignas(64) static constexpr auto kFrom = [] {
    std::array<std::int32_t, kLanes> from{};
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      from[static_cast<std::size_t>(lane)] =
          static_cast<std::int32_t>(lane % kQueriesOfVector * kQuad + lane / kQueriesOfVector);
    }
    return from;
  }();
  return hn::TableLookupLanes(sums, hn::SetTableIndices(d, kFrom.data()));
}

/// Computes the scores of kKeys keys of `dim` numbers, for the queries of kVectors vectors of
/// quads. Also prefetches kKeys rows of `next`.
template <int kVectors, int kKeys>
HWY_INLINE void scores_of_quads(const float* const (&key)[kKeys], const float* HWY_RESTRICT queries,
                                std::int64_t dim, RowLines next, Vector (&scores)[kKeys]) {
  const Floats d;
  Vector sum[kKeys][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  const auto add = [&](const auto& quad) HWY_ATTR {
    Vector row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, queries + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) {
      const Vector x = hn::LoadDup128(d, quad(i));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, row[v], sum[i][v]);
    }
    queries += kQuadStep;
  };
  std::int64_t c = 0;
  for (; c + RowLines::kFloats <= dim;) {
    next.fetch<kKeys>();
#pragma GCC unroll 4
    for (std::int64_t end = c + RowLines::kFloats; c < end; c += kQuad) {
      add([&](int i) HWY_ATTR { return key[i] + c; });
    }
  }
  if (c < dim) next.fetch<kKeys>();
  for (; c + kQuad <= dim; c += kQuad) add([&](int i) HWY_ATTR { return key[i] + c; });
  if (c < dim) {
    const hn::CappedTag<float, kQuad> quad;
    alignas(16) float last[kKeys][kQuad];
    for (int i = 0; i < kKeys; ++i) {
      hn::Store(load_first(quad, key[i] + c, dim - c), quad, last[i]);
    }
    add([&](int i) HWY_ATTR { return last[i]; });
  }
#pragma GCC unroll 8
  for (int i = 0; i < kKeys; ++i) scores[i] = sums_of_quads(sum[i]);
}

/// Computes the scores of the kTileRows keys at `keys` and their maximum per lane, as tile() with
/// Finish::kMaximum does. Keys from `count` on repeat the last one. Prefetches the keys that are
/// `ahead` floats after those of the tile.
template <int kVectors>
HWY_NOINLINE void tile_of_quads(const float* keys, std::int64_t stride, std::int64_t ahead,
                                std::int64_t count, const float* queries, std::int64_t dim,
                                float* HWY_RESTRICT c, float* HWY_RESTRICT maximum) {
  // The registers hold kTileRows x kPanelVectors sums (simd-inl.h).
  constexpr int kTogether = kVectors > kPanelVectors ? kTileRows / 2 : kTileRows;
  const Floats d;
  Vector most = hn::Load(d, maximum);
  for (int first = 0; first < kTileRows; first += kTogether) {
    const float* key[kTogether];
    for (int i = 0; i < kTogether; ++i) {
      key[i] = keys + std::min<std::int64_t>(first + i, count - 1) * stride;
    }
    Vector scores[kTogether];
    scores_of_quads<kVectors>(key, queries, dim, RowLines(key[0], ahead, stride, dim), scores);
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i) {
      most = hn::Max(most, scores[i]);
      hn::Store(scores[i], d, c + (first + i) * kPanelLanes);
    }
  }
  hn::Store(most, d, maximum);
}

/// Calls tile_of_quads() with the vectors that `rows` queries fill, at most kLanes.
HWY_INLINE void tile_of_few(std::int64_t rows, const float* keys, std::int64_t stride,
                            std::int64_t ahead, std::int64_t count, const float* queries,
                            std::int64_t dim, float* c, float* maximum) {
  switch ((rows + kQueriesOfVector - 1) / kQueriesOfVector) {
    case 1:
      return tile_of_quads<1>(keys, stride, ahead, count, queries, dim, c, maximum);
    case 2:
      return tile_of_quads<2>(keys, stride, ahead, count, queries, dim, c, maximum);
    case 3:
      return tile_of_quads<3>(keys, stride, ahead, count, queries, dim, c, maximum);
    default:
      return tile_of_quads<4>(keys, stride, ahead, count, queries, dim, c, maximum);
  }
}

#endif

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_QUADS_INL_H_
