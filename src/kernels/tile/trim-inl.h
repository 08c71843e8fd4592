// SPDX-License-Identifier: Apache-2.0
//
// Tiles at the ends of a block that a dense bias of -inf hides from all rows of a panel. They are
// not computed, so an additive causal mask costs half as much. Hidden tiles between others are
// computed, so that numbers are added in the same order whatever the biases of other rows are.

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

/// Removes hidden tiles from the segments of a block. Requires that the biases of a row or of a key
/// are contiguous; otherwise it removes none, because the test would take longer than the tiles.
template <class T>
class TileTrimmer {
 public:
  /// `biases` points to the bias of the panel's first row and the block's first key. `keys` is the
  /// number of keys from there to the end of the sequence.
  TileTrimmer(const T* biases, const BiasRows& place, std::int64_t rows, std::int64_t keys)
      : biases_(biases),
        row_stride_(place.query_stride),
        key_stride_(place.key_stride),
        rows_(rows),
        keys_(keys) {}

  /// Removes hidden tiles from both ends of the segments. Returns the number of segments left.
  std::int64_t trim(Segment* segments, std::int64_t count) const {
    if (key_stride_ != 1 && row_stride_ != 1) return count;
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

  /// Returns whether the biases of a row are contiguous. If not, those of a key are.
  bool row_by_row() const { return key_stride_ == 1; }

  // Rows that usually see most keys are tested first: the last row at the end of the keys, the
  // first row at their beginning. A key that one row sees is not tested for the others.

  void trim_end(Segment& segment) const {
    const std::int64_t begin = segment.first_key, end = begin + segment.keys;
    const std::int64_t first_row = segment.first_vector * kLanes;
    std::int64_t seen_end = begin;
    for (std::int64_t r = lines_end(segment); r-- > first_row && seen_end < end;) {
      const auto step = [&](std::int64_t key) { return std::max(key - kStep, seen_end); };
      std::int64_t key = end;
      while (key > seen_end && hides(segment, r, step(key), key)) key = step(key);
      seen_end = key;
    }
    segment.keys = seen_end - begin;
  }

  void trim_begin(Segment& segment) const {
    const std::int64_t begin = segment.first_key, end = begin + segment.keys;
    const std::int64_t lines_end = this->lines_end(segment);
    std::int64_t seen_begin = end;
    for (std::int64_t r = segment.first_vector * kLanes; r < lines_end && seen_begin > begin; ++r) {
      const auto step = [&](std::int64_t key) { return std::min(key + kStep, seen_begin); };
      std::int64_t key = begin;
      while (key < seen_begin && hides(segment, r, key, step(key))) key = step(key);
      seen_begin = key;
    }
    segment.first_key = seen_begin;
    segment.keys = end - seen_begin;
  }

  std::int64_t rows_end(const Segment& segment) const {
    return std::min((segment.first_vector + segment.vectors) * kLanes, rows_);
  }
  /// Returns the end of the rows to call hides() for: one row if its answer holds for all.
  std::int64_t lines_end(const Segment& segment) const {
    const bool one = row_stride_ == 0 || !row_by_row();
    return one ? segment.first_vector * kLanes + 1 : rows_end(segment);
  }

  /// Returns whether all biases of the keys [begin, end) are -inf. Tests row `row` if row_by_row(),
  /// otherwise all rows of the segment.
  HWY_INLINE bool hides(const Segment& segment, std::int64_t row, std::int64_t begin,
                        std::int64_t end) const {
    end = std::min(end, keys_);
    const T* const biases = biases_ + row * row_stride_;
    if (row_by_row()) return are_hidden(biases + begin, end - begin);
    const std::int64_t rows = rows_end(segment) - row;
    for (std::int64_t k = begin; k < end; ++k) {
      if (!are_hidden(biases + k * key_stride_, rows)) return false;
      if (key_stride_ == 0) break;
    }
    return true;
  }

  /// Returns whether `count` adjacent numbers are -inf.
  static HWY_INLINE bool are_hidden(const T* numbers, std::int64_t count) {
    const Floats d;
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const auto hidden = hn::Eq(bias_numbers(numbers + i), hn::Set(d, kMinusInfinity));
      if (!hn::AllTrue(d, hidden)) return false;
    }
    for (; i < count; ++i) {
      if (bias_number(numbers[i]) != kMinusInfinity) return false;
    }
    return true;
  }

  const T* biases_;
  std::int64_t row_stride_, key_stride_, rows_, keys_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_TRIM_INL_H_
