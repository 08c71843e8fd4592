// SPDX-License-Identifier: Apache-2.0
//
// The dense additive bias, loaded in groups of keys with one query per lane.
//
// A group takes one cache line of each row in float32, and one or a few tiles of keys. While they
// are computed, tile by tile, the rows of the next group are loaded, so that products are computed
// while lines arrive from the L2 cache. If all rows are loaded at once, the CPU waits, because
// their instructions exceed its out-of-order window.

#if defined(FOVEA_KERNELS_TILE_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_BIAS_INL_H_
#undef FOVEA_KERNELS_TILE_BIAS_INL_H_
#else
#define FOVEA_KERNELS_TILE_BIAS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fovea/tensor.h"

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/bias_numbers-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"
#include "kernels/tile/trim-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The number of keys of a group: one cache line, or one tile if that is longer.
constexpr std::int64_t kBiasKeys = kTileRows > 16 ? kTileRows : 16;
static_assert(kBiasKeys % kTileRows == 0);

/// Adds numbers to a sum for is_moderate(). A number of absolute value 2^102 or more makes the sum
/// infinite or NaN, and it stays so.
HWY_INLINE Vector add_to_moderate(Vector sum, Vector numbers) {
  return hn::MulAdd(hn::Set(Floats(), 0x1p27f), numbers, sum);
}
/// Returns true only if |x| < 2^102 for every number x in the sum. For such x and any score y, the
/// sum log2(e) x + y is -inf or NaN only if y is. Even for y = -FLT_MAX it does not overflow,
/// because log2(e) x is less than half a unit in the last place of y.
HWY_INLINE bool is_moderate(Vector sum) {
  const Floats d;
  return hn::AllTrue(d, hn::Lt(hn::Abs(sum), hn::Set(d, std::numeric_limits<float>::infinity())));
}
/// Returns is_moderate() of the sum of `count` numbers, a multiple of kLanes.
HWY_INLINE bool are_moderate(const float* numbers, std::int64_t count) {
  Vector sum = hn::Zero(Floats());
  for (std::int64_t i = 0; i < count; i += kLanes) {
    sum = add_to_moderate(sum, hn::LoadU(Floats(), numbers + i));
  }
  return is_moderate(sum);
}
/// A source for transpose_4_rows(). Every loaded vector is also added to `sum`, which is then
/// tested by is_moderate().
template <class T>
struct TestedNumbers {
  const T* numbers;
  Vector* sum;

  TestedNumbers from(std::int64_t element) const { return {numbers + element, sum}; }
  HWY_INLINE Vector vector(Floats, std::int64_t column) const {
    const Vector read = bias_numbers(numbers + column);
    *sum = add_to_moderate(*sum, read);
    return read;
  }
};

/// The dense biases of one work item, as tiles.
class BiasTiles {
 public:
  BiasTiles(const TensorView& bias, const ForwardHead& head, ForwardScratch& scratch)
      : bias_(bias), head_(head), scratch_(scratch) {}

  /// Returns the biases of the tile of keys that begins at `key`, as [kTileRows][kPanelLanes].
  /// Column 0 is `lane`. Loads the tile's group if it is not loaded, then some rows of the next
  /// group if that begins before `end`. Keys after the last key get the bias of the last key. Lanes
  /// without a row get 0.
  const float* tile(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes,
                    std::int64_t end) {
    const std::int64_t first = key / kBiasKeys * kBiasKeys;
    Group& group = enter(panel, first, lane, lanes);
    if (group.loaded < group.rows) load(group, group.rows);
    if (const std::int64_t next = first + kBiasKeys;
        next < end && next + kBiasKeys <= head_.kv_len) {
      Group& ahead = enter(panel, next, lane, lanes);
      if (ahead.loaded < ahead.rows) load(ahead, std::min(ahead.rows, ahead.loaded + kRowsAhead));
    }
    return biases_of(group) + (key - first) * kPanelLanes;
  }

  /// Removes tiles that the biases hide from both ends of the segments of a block (trim-inl.h).
  /// Returns the number of segments left.
  std::int64_t trim(const Panel& panel, std::int64_t block, Segment* segments,
                    std::int64_t count) const {
    with_biases(panel.first_query, block, [&](const auto* biases) {
      const TileTrimmer trimmer(biases, head_.bias, panel.rows, head_.kv_len - block);
      count = trimmer.trim(segments, count);
    });
    return count;
  }

  /// Returns whether is_moderate() holds for all biases so far.
  bool are_moderate() const { return are_moderate_; }

 private:
  static constexpr std::int64_t kTilesOfGroup = kBiasKeys / kTileRows;
  /// The number of rows of the next group to load in each call of tile(), a multiple of 4.
  static constexpr std::int64_t kRowsAhead =
      (kPanelLanes + 4 * kTilesOfGroup - 1) / (4 * kTilesOfGroup) * 4;

  struct Group {
    std::int64_t key = -1, query = -1, lanes = -1;
    std::int64_t rows = 0;
    std::int64_t loaded = 0;  // of the rows
  };

  /// Calls visit() with a pointer to the bias of (query, key), of the biases' type.
  template <class Visit>
  void with_biases(std::int64_t query, std::int64_t key, const Visit& visit) const {
    const BiasRows& place = head_.bias;
    const std::int64_t at = place.offset + query * place.query_stride + key * place.key_stride;
    with_bias_type(bias_.dtype(),
                   [&](auto* type) { visit(static_cast<decltype(type)>(bias_.data()) + at); });
  }

  float* biases_of(const Group& group) const {
    return scratch_.bias_tiles + (&group - groups_) * kBiasKeys * kPanelLanes;
  }

  /// Returns the buffer for the group that begins at `key`. Empties it if it holds another group or
  /// other rows.
  Group& enter(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes) {
    Group& group = groups_[key / kBiasKeys % 2];
    const std::int64_t query = panel.first_query + lane;
    if (group.key == key && group.query == query && group.lanes == lanes) return group;
    group = {key, query, lanes, std::min(lanes, panel.rows - lane), 0};
    if (group.rows < lanes) {
      for (std::int64_t k = 0; k < kBiasKeys; ++k) {
        std::fill_n(biases_of(group) + k * kPanelLanes + group.rows, lanes - group.rows, 0.0f);
      }
    }
    return group;
  }

  /// Loads the rows of a group up to row `end`, and tests their biases.
  void load(Group& group, std::int64_t end) {
    with_biases(group.query, group.key, [&](const auto* from) {
      if (head_.bias.key_stride == 1 && head_.bias.query_stride != 0 &&
          group.key + kBiasKeys <= head_.kv_len) {
        load_lines(from, group, end);
      } else {
        load_numbers(from, group);
      }
    });
  }

  /// Loads all rows of a group, from a bias with any strides.
  template <class T>
  void load_numbers(const T* from, Group& group) {
    const std::int64_t last = std::min(kBiasKeys, head_.kv_len - group.key) - 1;
    const bool same = head_.bias.query_stride == 0;  // for all rows
    HWY_ALIGN float of_keys[kBiasKeys];
    for (std::int64_t k = 0; k < kBiasKeys; ++k) {
      float* const to = biases_of(group) + k * kPanelLanes;
      const T* const at = from + std::min(k, last) * head_.bias.key_stride;
      if (same) {
        of_keys[k] = bias_number(*at);
        std::fill_n(to, group.rows, of_keys[k]);
      } else {
        for (std::int64_t r = 0; r < group.rows; ++r) {
          to[r] = bias_number(at[r * head_.bias.query_stride]);
        }
        are_moderate_ = are_moderate_ && HWY_NAMESPACE::are_moderate(to, group.lanes);
      }
    }
    if (same) are_moderate_ = are_moderate_ && HWY_NAMESPACE::are_moderate(of_keys, kBiasKeys);
    group.loaded = group.rows;
  }

  /// Loads the rows up to row `end` of a group of kBiasKeys contiguous keys. Tests the biases in
  /// registers, because loads right after narrower stores would take 1.4 % of a call.
  template <class T>
  void load_lines(const T* lines, Group& group, std::int64_t end) {
    const Floats d;
    const std::int64_t stride = head_.bias.query_stride;
    float* const to = biases_of(group);
    Vector sum = hn::Zero(d);
    const TestedNumbers<T> from{lines, &sum};
    std::int64_t r = group.loaded;
#if HWY_TARGET != HWY_SCALAR
    for (; r + 4 <= end; r += 4) {
      for (std::int64_t k = 0; k < kBiasKeys; k += kLanes) {
        transpose_4_rows(d, from.from(r * stride), stride, k, to + k * kPanelLanes + r,
                         kPanelLanes);
      }
    }
#endif
    for (; r < end; ++r) {
      for (std::int64_t k = 0; k < kBiasKeys; k += kLanes) from.from(r * stride).vector(d, k);
      for (std::int64_t k = 0; k < kBiasKeys; ++k) {
        to[k * kPanelLanes + r] = bias_number(lines[r * stride + k]);
      }
    }
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (r = group.loaded; r < end; ++r) {
      for (std::int64_t k = 0; k < kBiasKeys; k += kLine) {
        __builtin_prefetch(lines + r * stride + 2 * kBiasKeys + k, 0, 2);
      }
    }
    are_moderate_ = are_moderate_ && is_moderate(sum);
    group.loaded = end;
  }

  const TensorView& bias_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  Group groups_[2];
  bool are_moderate_ = true;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_BIAS_INL_H_
