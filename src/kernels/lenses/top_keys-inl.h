// SPDX-License-Identifier: Apache-2.0
//
// The largest scores of each row, with one row per lane (lenses-inl.h, amx_lenses-inl.h).
// PanelLenses has the lists of all rows as [length][kPanelLanes], in descending order. Scores above
// the last one of their row are marked by bits, without branches; then one key of each row is
// inserted at a time.
//
// The number of insertions determines the cost. With random scores, about k / j of the scores at
// key j enter the list, so the first block is the most expensive. For this block, a lower bound of
// the row's k-th largest score is therefore computed first: the k-th largest of the maxima of
// groups of keys, which are scores themselves, if k is at most kMaxBounded and there are k groups.

#if defined(FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
#undef FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
#else
#define FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/lenses/lenses.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

class TopKeys {
 public:
  /// The number of keys whose marks one call of insert() takes.
  static constexpr std::int64_t kKeysTogether = 64;

  explicit TopKeys(std::int64_t k) : k_(k) {}

  bool any() const { return k_ > 0; }

  void open(std::int64_t rows, PanelLenses& seen) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::int64_t length = top_list_length(k_);
    std::fill_n(seen.top_scores, length * kPanelLanes, -kInfinity);
    std::fill_n(seen.top_keys, length * kPanelLanes, -1);
    // Lanes without a row, or all of them, accept no score.
    const std::int64_t accept = any() ? rows : 0;
    std::fill_n(seen.top_least, accept, -kInfinity);
    std::fill_n(seen.top_least + accept, kPanelLanes - accept, kInfinity);
    seen.top_begun = !any();
  }

  /// Raises the thresholds of a panel's first keys to a lower bound of the k-th largest score.
  /// `scores` [count][kPanelLanes] are those of the keys, or the maxima of their tiles.
  void begin(const float* scores, std::int64_t count, std::int64_t vectors,
             PanelLenses& seen) const {
    if (seen.top_begun) return;
    seen.top_begun = true;
    std::int64_t group = 1;
    while (count / (group * 2) >= 2 * k_) group *= 2;
    if (count / group < k_ || k_ > kMaxBounded) return;
    for (std::int64_t lane = 0; lane < vectors * kLanes; lane += kLanes) {
      raise_least(scores + lane, count, group, seen.top_least + lane);
    }
  }

  /// Updates the lists with the scores of a block. `tile_maximum` [][kPanelLanes] has the
  /// maxima of its tiles.
  void look_at_block(std::int64_t block, std::int64_t segments, const ForwardScratch& scratch,
                     const float* tile_maximum, PanelLenses& seen) const {
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch.segments[s];
      const std::int64_t end = segment.first_key + segment.keys;
      for (std::int64_t v = segment.first_vector; v < segment.first_vector + segment.vectors; ++v) {
        const std::int64_t lane = v * kLanes;
        for (std::int64_t k = segment.first_key; k < end; k += kKeysTogether) {
          const auto hits = [&](std::int64_t from) HWY_ATTR {
            return mark(scratch.scores + from * kPanelLanes + lane,
                        tile_maximum + from / kTileRows * kPanelLanes + lane,
                        std::min(end - from, kKeysPerWord), seen.top_least + lane);
          };
          insert(scratch.scores + k * kPanelLanes + lane, block + k, lane, hits(k),
                 hits(k + kKeysPerWord), seen);
        }
      }
    }
  }

  /// Inserts keys of the rows of one vector, from `lane` on. Bit i of `low` is key `first_key` + i,
  /// whose score is in row i of `scores` [kKeysTogether][kPanelLanes]; `high` is for the 32 keys
  /// after those.
  HWY_INLINE void insert(const float* scores, std::int64_t first_key, std::int64_t lane,
                         hn::Vec<Words> low, hn::Vec<Words> high, PanelLenses& seen) const {
    const Words words;
    if (hn::AllTrue(words, hn::Eq(hn::Or(low, high), hn::Zero(words)))) return;
    float* const list = seen.top_scores + lane;
    std::int32_t* const keys = seen.top_keys + lane;
    if (k_ == 1) {
      insert_all<1>(scores, first_key, low, high, list, keys);
    } else if (k_ <= kFewTopKeys) {
      insert_all<kFewTopKeys>(scores, first_key, low, high, list, keys);
    } else {
      insert_all<0>(scores, first_key, low, high, list, keys);
    }
    const Floats d;
    float* const least = seen.top_least + lane;
    hn::Store(hn::Max(hn::Load(d, least), hn::Load(d, list + (k_ - 1) * kPanelLanes)), d, least);
  }

  Vector largest(const PanelLenses& seen, std::int64_t lane) const {
    return hn::Load(Floats(), seen.top_scores + lane);
  }
  std::int64_t largest_key(const PanelLenses& seen, std::int64_t lane) const {
    return seen.top_keys[lane];
  }

  /// Writes the lists of the panel's rows. `weight_of(score, lane)` returns the weights of the
  /// scores of the rows from `lane` on.
  template <class WeightOf>
  void write(const Panel& panel, const PanelLenses& seen, const ForwardHead& head,
             const WeightOf& weight_of) const {
    const Floats d;
    const HeadLenses& to = *head.lenses;
    HWY_ALIGN float weights[kPanelLanes];
    for (std::int64_t n = 0; n < k_; ++n) {
      const float* const scores = seen.top_scores + n * kPanelLanes;
      const std::int32_t* const keys = seen.top_keys + n * kPanelLanes;
      for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
        hn::Store(weight_of(hn::Load(d, scores + lane), lane), d, weights + lane);
      }
      for (std::int64_t i = 0; i < panel.rows; ++i) {
        const std::int64_t row = panel.first_query + i;
        const bool spoilt = std::isnan(panel.sum[i]);
        const bool none = keys[i] < 0;
        if (to.top_keys.data != nullptr) {
          to.top_keys.row_as<std::int64_t>(row)[n] =
              none || spoilt ? -1 : head.origin.key_start + keys[i];
        }
        if (to.top_weights.data != nullptr) {
          to.top_weights.row_as<float>(row)[n] = spoilt ? std::numeric_limits<float>::quiet_NaN()
                                                 : none ? 0.0f
                                                        : weights[i];
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kMaxBounded = 16;
  static constexpr std::int64_t kKeysPerWord = 32;
  static_assert(kKeysPerWord % kTileRows == 0);

  void raise_least(const float* scores, std::int64_t count, std::int64_t group,
                   float* least) const {
    const Floats d;
    const Vector none = hn::Set(d, -std::numeric_limits<float>::infinity());
    Vector largest[kMaxBounded];
    std::fill_n(largest, k_, none);
    for (std::int64_t k = 0; k + group <= count; k += group) {
      Vector x = none;
      for (std::int64_t i = 0; i < group; ++i) {
        // In this order, Max() ignores NaN, which hidden keys may have here.
        x = hn::Max(hn::Load(d, scores + (k + i) * kPanelLanes), x);
      }
      for (std::int64_t n = 0; n < k_; ++n) {
        const Vector before = largest[n];
        largest[n] = hn::Max(before, x);
        x = hn::Min(before, x);
      }
    }
    // Slightly lower, because a score must exceed the threshold and may equal the bound.
    const Vector bound = largest[k_ - 1];
    const Vector below =
        hn::Sub(bound, hn::MulAdd(hn::Abs(bound), hn::Set(d, 2.4e-7f), hn::Set(d, 1.2e-38f)));
    hn::Store(hn::Max(below, hn::Load(d, least)), d, least);
  }

  /// Returns bits for the scores of `keys` keys, whole tiles, that are above the thresholds.
  /// Compares all scores if any tile has such a maximum, because a branch per tile is
  /// unpredictable.
  HWY_INLINE hn::Vec<Words> mark(const float* scores, const float* tile_maximum, std::int64_t keys,
                                 const float* thresholds) const {
    const Floats d;
    const Words words;
    auto hits = hn::Zero(words);
    if (keys <= 0) return hits;
    Vector maximum = hn::Load(d, tile_maximum);
    for (std::int64_t t = 1; t < tiles_of(keys); ++t) {
      maximum = hn::Max(maximum, hn::Load(d, tile_maximum + t * kPanelLanes));
    }
    const Vector least = hn::Load(d, thresholds);
    if (hn::AllFalse(d, hn::Gt(maximum, least))) return hits;
    for (std::int64_t k = 0; k < keys; k += kTileRows) {
      auto of_tile = hn::Zero(words);
      HWY_UNROLL(8)
      for (int i = 0; i < kTileRows; ++i) {
        const auto above = hn::Gt(hn::Load(d, scores + (k + i) * kPanelLanes), least);
        of_tile = hn::Or(of_tile,
                         hn::IfThenElseZero(hn::RebindMask(words, above), hn::Set(words, 1u << i)));
      }
      hits = hn::Or(hits, hn::ShiftLeftSame(of_tile, static_cast<int>(k)));
    }
    return hits;
  }

  struct Element {
    Vector score;
    hn::Vec<Ints> key;
  };
  static HWY_INLINE Element load(const float* list, const std::int32_t* keys, std::int64_t n) {
    return {hn::Load(Floats(), list + n * kPanelLanes), hn::Load(Ints(), keys + n * kPanelLanes)};
  }
  static HWY_INLINE void store(const Element& element, float* list, std::int32_t* keys,
                               std::int64_t n) {
    hn::Store(element.score, Floats(), list + n * kPanelLanes);
    hn::Store(element.key, Ints(), keys + n * kPanelLanes);
  }

  static HWY_INLINE Vector scores_at(const float* scores, hn::Vec<Ints> at) {
    const Floats d;
    if constexpr (kLanes > 8) return hn::GatherIndex(d, scores, at);
    // Loads in turn are as fast as an instruction for 8 lanes, and much faster on CPUs where that
    // is slow.
    HWY_ALIGN std::int32_t from[kLanes];
    HWY_ALIGN float lanes[kLanes];
    hn::Store(at, Ints(), from);
    for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = scores[from[i]];
    return hn::Load(d, lanes);
  }

  /// Inserts each row's marked scores after all scores that are at least as large. kCount is the
  /// length of the lists, or 0 for any.
  template <int kCount>
  HWY_NOINLINE void insert_all(const float* scores, std::int64_t first_key, hn::Vec<Words> low,
                               hn::Vec<Words> high, float* list, std::int32_t* keys) const {
    const Floats d;
    const Ints ints;
    const Words words;
    // With 32 registers, short lists stay there while keys are inserted. An array of Element would
    // not compile on NEON: its implicit constructor lacks the target attribute of the vectors'.
    constexpr int kKept = kCount > 0 ? kCount : 1;
    Vector kept_scores[kKept];
    hn::Vec<Ints> kept_keys[kKept];
    const auto kept = [&](int n) HWY_ATTR { return Element{kept_scores[n], kept_keys[n]}; };
    const auto keep = [&](int n, const Element& element) HWY_ATTR {
      kept_scores[n] = element.score;
      kept_keys[n] = element.key;
    };
    if constexpr (kCount > 0) {
      HWY_UNROLL(8)
      for (int n = 0; n < kCount; ++n) keep(n, load(list, keys, n));
    }
    const auto one = hn::Set(words, 1u);
    const auto zero = hn::Zero(words);
    const auto lanes = hn::Iota(ints, 0);
    const Vector none = hn::Set(d, -std::numeric_limits<float>::infinity());
    const auto first = hn::Set(ints, static_cast<std::int32_t>(first_key));
    do {
      // The lowest bit of each row; its number is the exponent of that power of two.
      const auto in_low = hn::Ne(low, zero);
      const auto bits = hn::IfThenElse(in_low, low, high);
      const auto some = hn::RebindMask(ints, hn::Ne(bits, zero));
      const auto rest = hn::And(bits, hn::Sub(bits, one));
      const auto power = hn::ConvertTo(d, hn::BitCast(ints, hn::Xor(bits, rest)));
      const auto exponent =
          hn::And(hn::BitCast(ints, hn::ShiftRight<23>(hn::BitCast(words, power))),
                  hn::Set(ints, 255));  // 2^31 has a sign
      const auto number =
          hn::Sub(exponent, hn::IfThenElse(hn::RebindMask(ints, in_low), hn::Set(ints, 127),
                                           hn::Set(ints, 127 - 32)));
      low = hn::IfThenElse(in_low, rest, low);
      high = hn::IfThenElse(in_low, high, rest);
      auto row = number;  // number * kPanelLanes, without the latency of a product
      for (int v = 1; v < kPanelVectors; ++v) row = hn::Add(row, number);
      row = hn::ShiftLeft<std::countr_zero(static_cast<unsigned>(kLanes))>(row);
      const auto at = hn::IfThenElseZero(some, hn::Add(row, lanes));
      const Vector x = hn::IfThenElse(hn::RebindMask(d, some), scores_at(scores, at), none);
      const auto key = hn::Add(first, number);
      // From the end: an element moves if `x` comes before it, and the one before it follows,
      // unless `x` comes before that, too.
      using Mask = hn::Mask<Floats>;
      const auto moved = [&](const Element& here, const Element& previous, Mask moves,
                             Mask previous_moves) HWY_ATTR {
        const auto new_key =
            hn::IfThenElse(hn::RebindMask(ints, previous_moves), previous.key, key);
        return Element{hn::IfThenElse(moves, hn::Min(x, previous.score), here.score),
                       hn::IfThenElse(hn::RebindMask(ints, moves), new_key, here.key)};
      };
      const auto moves = [&](const Element& element) HWY_ATTR { return hn::Gt(x, element.score); };
      const auto moved_first = [&](const Element& here, Mask here_moves) HWY_ATTR {
        return Element{hn::IfThenElse(here_moves, x, here.score),
                       hn::IfThenElse(hn::RebindMask(ints, here_moves), key, here.key)};
      };
      if constexpr (kCount > 0) {
        Mask here_moves = moves(kept(kCount - 1));
        HWY_UNROLL(8)
        for (int n = kCount - 1; n > 0; --n) {
          const Mask previous_moves = moves(kept(n - 1));
          keep(n, moved(kept(n), kept(n - 1), here_moves, previous_moves));
          here_moves = previous_moves;
        }
        keep(0, moved_first(kept(0), here_moves));
      } else {
        Element here = load(list, keys, k_ - 1);
        Mask here_moves = moves(here);
        for (std::int64_t n = k_ - 1; n > 0; --n) {
          const Element previous = load(list, keys, n - 1);
          const Mask previous_moves = moves(previous);
          store(moved(here, previous, here_moves, previous_moves), list, keys, n);
          here = previous;
          here_moves = previous_moves;
        }
        store(moved_first(here, here_moves), list, keys, 0);
      }
    } while (!hn::AllTrue(words, hn::Eq(hn::Or(low, high), zero)));
    if constexpr (kCount > 0) {
      HWY_UNROLL(8)
      for (int n = 0; n < kCount; ++n) store(kept(n), list, keys, n);
    }
  }

  std::int64_t k_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_LENSES_TOP_KEYS_INL_H_
