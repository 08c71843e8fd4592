// SPDX-License-Identifier: Apache-2.0
//
// Tiles at the ends of a block that a dense bias of -inf hides from all rows of a panel. They are
// not computed, so an additive causal mask costs half as much. Tiles between others are computed,
// so that sums are divided as without the biases and the biases of a row change no other row.

#if defined(FOVEA_KERNELS_TILE_TRIM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_TRIM_INL_H_
#undef FOVEA_KERNELS_TILE_TRIM_INL_H_
#else
#define FOVEA_KERNELS_TILE_TRIM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/bias_numbers-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The biases of a panel's rows for the keys of one block.
template <class T>
class HiddenTiles {
 public:
  /// `biases` points to that of the first row and key. Keys from number `keys` on do not exist.
  HiddenTiles(const T* biases, const BiasRows& place, std::int64_t rows, std::int64_t keys)
      : biases_(biases),
        row_stride_(place.query_stride),
        key_stride_(place.key_stride),
        rows_(rows),
        keys_(keys) {}

  /// Removes hidden tiles from both ends of the segments. Returns the number of segments left.
  std::int64_t trim(Segment* segments, std::int64_t count) const {
    for (; count > 0; --count) {
      trim_end(segments[count - 1]);
      if (segments[count - 1].keys > 0) break;
    }
    std::int64_t first = 0;
    for (; first < count; ++first) {
      trim_begin(segments[first]);
      if (segments[first].keys > 0) break;
    }
    if (first > 0) std::copy(segments + first, segments + count, segments);
    return count - first;
  }

 private:
  /// Keys are tested in steps of a few tiles.
  static constexpr std::int64_t kStep = kTileRows > 16 ? kTileRows : 16;
  static_assert(kStep % kTileRows == 0);

  // Usually the last row sees the most of the last keys and the first row of the first ones, as
  // under a causal mask or a sliding window. Other rows are then tested for hidden keys alone.

  void trim_end(Segment& segment) const {
    const std::int64_t begin = segment.first_key, end = begin + segment.keys;
    const std::int64_t first_row = segment.first_vector * kLanes;
    std::int64_t seen_end = begin;
    for (std::int64_t r = rows_end(segment); r-- > first_row && seen_end < end;) {
      const auto step = [&](std::int64_t key) { return std::max(key - kStep, seen_end); };
      std::int64_t key = end;
      while (key > seen_end && hides(r, step(key), key)) key = step(key);
      seen_end = key;
    }
    segment.keys = seen_end - begin;
  }

  void trim_begin(Segment& segment) const {
    const std::int64_t begin = segment.first_key, end = begin + segment.keys;
    const std::int64_t rows_end = this->rows_end(segment);
    std::int64_t seen_begin = end;
    for (std::int64_t r = segment.first_vector * kLanes; r < rows_end && seen_begin > begin; ++r) {
      const auto step = [&](std::int64_t key) { return std::min(key + kStep, seen_begin); };
      std::int64_t key = begin;
      while (key < seen_begin && hides(r, key, step(key))) key = step(key);
      seen_begin = key;
    }
    segment.first_key = seen_begin;
    segment.keys = end - seen_begin;
  }

  /// Returns the end of a segment's rows whose biases differ.
  std::int64_t rows_end(const Segment& segment) const {
    const std::int64_t first = segment.first_vector * kLanes;
    return row_stride_ == 0 ? first + 1 : std::min(first + segment.vectors * kLanes, rows_);
  }

  /// Returns whether the biases of a row are -inf for all keys of [begin, end).
  HWY_INLINE bool hides(std::int64_t row, std::int64_t begin, std::int64_t end) const {
    const Floats d;
    const T* const biases = biases_ + row * row_stride_;
    end = std::min(end, keys_);
    std::int64_t k = begin;
    if (key_stride_ == 1) {
      for (; k + kLanes <= end; k += kLanes) {
        const auto hidden = hn::Eq(bias_numbers(biases + k), hn::Set(d, kMinusInfinity));
        if (!hn::AllTrue(d, hidden)) return false;
      }
    }
    for (; k < end; ++k) {
      if (bias_number(biases[k * key_stride_]) != kMinusInfinity) return false;
    }
    return true;
  }

  const T* biases_;
  std::int64_t row_stride_, key_stride_, rows_, keys_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_TRIM_INL_H_
