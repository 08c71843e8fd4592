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
#include <type_traits>

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
constexpr std::int64_t kTilesOfGroup = kBiasKeys / kTileRows;
/// The number of rows of the next group to load per tile of keys, a multiple of 4.
constexpr std::int64_t kRowsAhead = (kPanelLanes + 4 * kTilesOfGroup - 1) / (4 * kTilesOfGroup) * 4;

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

/// Prefetches kBiasKeys numbers of each of some rows.
template <class T>
HWY_INLINE void prefetch_rows(const T* lines, std::int64_t stride, std::int64_t rows) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < kBiasKeys; k += kLine) {
      __builtin_prefetch(lines + r * stride + k, 0, 2);
    }
  }
}

/// Rows of biases for LoadRowsAhead.
struct RowsAhead {
  const void* lines = nullptr;  // of the first row
  std::int64_t stride = 0;
  float* to = nullptr;
  std::int64_t parts = 0;     // of four rows
  std::int64_t distance = 0;  // from `lines` to the rows to prefetch, in elements
};

/// Loads the biases of four rows and kBiasKeys contiguous keys, stores them transposed, with rows
/// along the lanes, and adds them to `sum` for is_moderate().
template <class T>
HWY_INLINE void load_4_rows([[maybe_unused]] const T* lines, [[maybe_unused]] std::int64_t stride,
                            [[maybe_unused]] float* to, [[maybe_unused]] Vector& sum) {
#if HWY_TARGET == HWY_SCALAR
  static_assert(kPanelLanes < 4);  // never called
#else
  for (std::int64_t k = 0; k < kBiasKeys; k += kLanes) {
    transpose_4_rows(Floats(), TestedNumbers<T>{lines, &sum}, stride, k, to + k * kPanelLanes,
                     kPanelLanes);
  }
#endif
}

/// A callback for tile() that loads RowsAhead, four rows per call, from biases of type T. If all
/// rows were loaded before the product, the product would wait for them.
template <class T>
class LoadRowsAhead {
 public:
  explicit LoadRowsAhead(const RowsAhead& rows)
      : rows_(rows), lines_(static_cast<const T*>(rows.lines)) {}

  static constexpr std::int64_t kParts = kRowsAhead / 4;
  HWY_INLINE void operator()() {
    if (rows_.parts == 0) return;
    --rows_.parts;
    load_4_rows(lines_, rows_.stride, rows_.to, sum_);
    prefetch_rows(lines_ + rows_.distance, rows_.stride, 4);
    lines_ += 4 * rows_.stride;
    rows_.to += 4;
  }
  /// Returns whether is_moderate() holds for the loaded biases.
  HWY_INLINE bool are_moderate() const { return is_moderate(sum_); }

 private:
  RowsAhead rows_;
  const T* lines_;
  Vector sum_ = hn::Zero(Floats());
};

/// The dense biases of one work item, as tiles.
class BiasTiles {
 public:
  BiasTiles(const TensorView& bias, const ForwardHead& head, ForwardScratch& scratch)
      : bias_(bias), head_(head), scratch_(scratch) {}

  /// Returns the biases of the tile of keys that begins at `key`, as [kTileRows][kPanelLanes].
  /// Column 0 is `lane`. Loads the tile's group if it is not loaded. Keys after the last key get
  /// the bias of the last key. Lanes without a row get 0.
  const float* tile(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes) {
    const std::int64_t first = key / kBiasKeys * kBiasKeys;
    Group& group = enter(panel, first, lane, lanes);
    if (group.loaded < group.rows) load(group, group.rows);
    return biases_of(group) + (key - first) * kPanelLanes;
  }
  /// Loads up to kRowsAhead rows of the group that follows that of `key`, if it begins before
  /// `end`.
  void load_ahead(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes,
                  std::int64_t end) {
    Group* const group = group_ahead(panel, key, lane, lanes, end);
    if (group != nullptr) load(*group, std::min(group->rows, group->loaded + kRowsAhead));
  }
  /// Sets `ahead` to the rows that load_ahead() would load. The caller must pass them to
  /// load_rows_ahead() unless ahead.parts is 0. Loads the whole group if its keys are not
  /// contiguous. [begin, end) are the keys of the segment.
  void find_rows_ahead(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes,
                       std::int64_t begin, std::int64_t end, RowsAhead& ahead) {
    ahead.parts = 0;
    Group* const group = group_ahead(panel, key, lane, lanes, end);
    if (group == nullptr) return;
    if (!has_lines(*group)) return load(*group, group->rows);
    // Written in place, because a copy would load vectors of numbers that are still being stored.
    ahead.stride = head_.bias.query_stride;
    with_biases(group->query + group->loaded, group->key,
                [&](const auto* lines) { ahead.lines = lines; });
    ahead.to = biases_of(*group) + group->loaded;
    ahead.parts = std::min(kRowsAhead, group->rows - group->loaded) / 4;
    // After the last groups of the segment, the next panel needs the first ones.
    ahead.distance = 2 * kBiasKeys;
    if (group->key + ahead.distance >= end && panel.rows == kPanelLanes) {
      ahead.distance += begin - end + kPanelLanes * ahead.stride;
    }
    group->loaded += ahead.parts * 4;
  }
  /// Calls product(between), where `between` is LoadRowsAhead. The product must call it as tile()
  /// does.
  template <class Product>
  HWY_INLINE void load_rows_ahead(const RowsAhead& rows, const Product& product) {
    with_bias_type(bias_.dtype(), [&](auto* type) HWY_ATTR {
      LoadRowsAhead<std::remove_cvref_t<decltype(*type)>> between(rows);
      product(between);
      are_moderate_ = are_moderate_ && between.are_moderate();
    });
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

  /// Returns the group that follows that of `key`, or null if it does not begin before `end` or is
  /// already loaded.
  Group* group_ahead(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes,
                     std::int64_t end) {
    const std::int64_t next = (key / kBiasKeys + 1) * kBiasKeys;
    if (next >= end || next + kBiasKeys > head_.kv_len) return nullptr;
    Group& group = enter(panel, next, lane, lanes);
    return group.loaded < group.rows ? &group : nullptr;
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

  /// Returns whether the keys of a group are contiguous.
  bool has_lines(const Group& group) const {
    return head_.bias.key_stride == 1 && head_.bias.query_stride != 0 &&
           group.key + kBiasKeys <= head_.kv_len;
  }

  /// Loads the rows of a group up to row `end`, or all if keys are not contiguous, and tests their
  /// biases.
  void load(Group& group, std::int64_t end) {
    with_biases(group.query, group.key, [&](const auto* from) {
      if (has_lines(group)) {
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
    const std::int64_t stride = head_.bias.query_stride;
    float* const to = biases_of(group);
    Vector sum = hn::Zero(Floats());
    std::int64_t r = group.loaded;
#if HWY_TARGET != HWY_SCALAR
    for (; r + 4 <= end; r += 4) load_4_rows(lines + r * stride, stride, to + r, sum);
#endif
    prefetch_rows(lines + group.loaded * stride + 2 * kBiasKeys, stride, end - group.loaded);
    for (; r < end; ++r) {
      const TestedNumbers<T> from{lines + r * stride, &sum};
      for (std::int64_t k = 0; k < kBiasKeys; k += kLanes) from.vector(Floats(), k);
      for (std::int64_t k = 0; k < kBiasKeys; ++k) {
        to[k * kPanelLanes + r] = bias_number(lines[r * stride + k]);
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
