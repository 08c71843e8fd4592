// SPDX-License-Identifier: Apache-2.0
//
// The lenses of the forward pass: statistics, top keys and maps of the weights, computed while the
// scores of a panel and a block of keys are in the cache.
//
// Queries are laid out across lanes (tile-inl.h), so every sum of a row is vertical. Per row:
//     entropy   -sum w ln w = -f (ln 2 sum 2^x x + ln f sum 2^x),  w = f 2^x,  x = s - m
//     distance  with c the key of the running maximum, and d = j - c:
//               mean = c + sum 2^x d / sum 2^x, and the variance from sum 2^x d^2. As the weight w
//               of c is the largest, the distance of c from the mean is at most sqrt(variance / w).
//               Sums about c therefore keep their precision. Sums about the row's own position
//               would lose it, because c may be a million keys away. Within a block, sums are about
//               a key of the block.
//     map       sums within a cell and a block of keys, relative to the running maximum of that
//               block. When the row is finished, each sum is multiplied by f 2^(m block - m final).
// Together, these sums add two FMAs, a product and two additions to the softmax pass over the
// scores. If only the top keys are requested, the usual softmax pass runs. The softmax sum has the
// same order either way, so lenses do not change a single bit of the context.
//
// Maxima are kept per tile, not only per block. To find the key of a maximum, or the top keys of a
// row, it is usually enough to compare the maximum of each tile instead of all its kTileRows
// scores.

#if defined(FOVEA_KERNELS_LENSES_LENSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_LENSES_LENSES_INL_H_
#undef FOVEA_KERNELS_LENSES_LENSES_INL_H_
#else
#define FOVEA_KERNELS_LENSES_LENSES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "fovea/simd_math-inl.h"

#include "kernels/lenses/lenses.h"
#include "kernels/lenses/map_cells-inl.h"
#include "kernels/lenses/top_keys-inl.h"
#include "kernels/simd/find-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The implementation for passes without lenses: all functions are empty and compile to nothing.
struct NoLenses {
  static constexpr bool kNone = true;
  NoLenses(const ForwardSetup&, const ForwardHead&, ForwardScratch&, std::byte*, float) {}
  static std::size_t scratch_bytes(const ForwardSetup&) { return 0; }

  void open(std::int64_t, const Panel&) {}
  void rescale(std::int64_t, const Panel&) {}
  void begin_block(const Panel&, std::int64_t) {}
  static float* maximum_of(std::int64_t, float* block_maximum) { return block_maximum; }
  void look_at_scores(std::int64_t, const Panel&, std::int64_t, std::int64_t, std::int64_t) {}
  void begin_weights(std::int64_t, const Panel&, std::int64_t, std::int64_t) {}
  static constexpr bool watches_weights() { return false; }
  template <int kVectors>
  void compute_weights(std::int64_t, const Panel&, std::int64_t, const Segment&) {}
  void look_at_weights(std::int64_t, const Panel&, std::int64_t, const Segment&) {}
  void end_weights(std::int64_t) {}
  void close(std::int64_t, const Panel&, const float*) {}
};

/// The lenses of one work item. Functions are declared in the order in which the pass calls them.
template <class Arithmetic>
class ItemLenses {
 public:
  static constexpr bool kNone = false;
  ItemLenses(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch,
             std::byte* memory, float score_factor)
      : setup_(setup),
        lenses_(setup.lenses),
        head_(head),
        scratch_(scratch),
        own_(LensScratch::at(memory, sizes(setup))),
        top_(lenses_.top),
        cells_(lenses_, head, setup.block_keys),
        score_factor_(score_factor) {
    if (lenses_.map) cells_.find_columns(own_.column_begin);
  }

  static std::size_t scratch_bytes(const ForwardSetup& setup) {
    return LensScratch().lay_out(nullptr, sizes(setup));
  }

  void open(std::int64_t p, const Panel& panel) {
    PanelLenses& seen = own_.panels[p];
    if (lenses_.statistics) {
      for (std::int64_t i = 0; i < kPanelLanes; ++i) {
        seen.exponents[i] = seen.distances[i] = seen.squares[i] = 0.0;
        seen.maximum_key[i] = -1;
        seen.first_score[i] = kMinusInfinity;
      }
    }
    if (lenses_.top > 0) top_.open(panel.rows, seen);
    if (lenses_.map) {
      const std::int64_t first = panel.keys_begin / setup_.block_keys;
      const std::int64_t last = (panel.keys_end + setup_.block_keys - 1) / setup_.block_keys;
      if (first < last) std::fill(seen.block_seen + first, seen.block_seen + last, 0);
    }
  }

  /// Called before the scores of a block are computed. Initialises the maxima of its tiles.
  void begin_block(const Panel& panel, std::int64_t tiles) {
    if (!looks_at_scores()) return;
    const Floats d;
    for (std::int64_t t = 0; t < tiles; ++t) {
      for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
        hn::Store(hn::Set(d, kLowestScore), d, own_.tile_maximum + t * kPanelLanes + lane);
      }
    }
  }
  float* maximum_of(std::int64_t key, float* block_maximum) {
    return looks_at_scores() ? own_.tile_maximum + key / kTileRows * kPanelLanes : block_maximum;
  }

  /// Called after the scores of a block are computed. Computes the block's maximum, and updates the
  /// lenses that depend on scores.
  void look_at_scores(std::int64_t p, const Panel& panel, std::int64_t block, std::int64_t tiles,
                      std::int64_t segments) {
    if (!looks_at_scores()) return;
    const Floats d;
    PanelLenses& seen = own_.panels[p];
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      Vector maximum = hn::Set(d, kLowestScore);
      for (std::int64_t t = 0; t < tiles; ++t) {
        maximum = hn::Max(maximum, hn::Load(d, own_.tile_maximum + t * kPanelLanes + lane));
      }
      hn::Store(maximum, d, scratch_.block_maximum + lane);
      hn::Store(hn::Load(d, panel.maximum + lane), d, own_.before + lane);
    }
    if (lenses_.statistics) {
      if (block == 0) look_at_first_key(segments, seen);
      find_maximum_keys(panel, block, tiles, seen);
    }
    if (lenses_.top > 0) {
      top_.begin(own_.tile_maximum, tiles, panel.vectors, seen);
      top_.look_at_block(block, segments, scratch_, own_.tile_maximum, seen);
    }
  }

  /// Called after the running maxima of the rows are raised. Rescales earlier sums to the new
  /// maxima.
  void begin_weights(std::int64_t p, const Panel& panel, std::int64_t block,
                     std::int64_t segments) {
    PanelLenses& seen = own_.panels[p];
    if (lenses_.map) begin_cells(panel, block, segments, seen);
    if (!lenses_.statistics) return;
    // Without branches, so that the compiler vectorises the loop. Lanes without a row, here and in
    // end_weights(), may have any numbers.
    for (std::int64_t i = 0; i < kPanelLanes; ++i) {
      const double sum = static_cast<double>(panel.sum[i]);  // already rescaled
      const double factor = static_cast<double>(scratch_.factor[i]);
      const double rise =
          static_cast<double>(score_factor_) *
          (static_cast<double>(own_.before[i]) - static_cast<double>(panel.maximum[i]));
      const double moved = static_cast<double>(own_.row[i]);
      const double distances = factor * seen.distances[i];
      seen.exponents[i] = factor * seen.exponents[i] + rise * sum;
      seen.squares[i] = factor * seen.squares[i] + moved * (2.0 * distances + moved * sum);
      seen.distances[i] = distances + moved * sum;
    }
  }

  /// Returns whether compute_weights() replaces the usual softmax pass.
  bool watches_weights() const { return lenses_.statistics || lenses_.map; }

  /// Same as RunningSoftmax::compute_weights(), but also updates the lenses.
  template <int kVectors>
  void compute_weights(std::int64_t p, const Panel& panel, std::int64_t block,
                       const Segment& segment) {
    const PanelLenses& seen = own_.panels[p];
    const bool most = lenses_.pool == Pool::kMax;
    if (!lenses_.statistics) {
      most ? watch<kVectors, false, Pooling::kMax>(seen, panel, block, segment)
           : watch<kVectors, false, Pooling::kSum>(seen, panel, block, segment);
      return;
    }
    // Statistics need so many registers that one vector at a time is faster.
    Segment part = segment;
    part.vectors = 1;
    for (; part.first_vector < segment.first_vector + kVectors; ++part.first_vector) {
      if (!lenses_.map) {
        watch<1, true, Pooling::kNone>(seen, panel, block, part);
      } else {
        most ? watch<1, true, Pooling::kMax>(seen, panel, block, part)
             : watch<1, true, Pooling::kSum>(seen, panel, block, part);
      }
    }
  }

  void end_weights(std::int64_t p) {
    if (!lenses_.statistics) return;
    PanelLenses& seen = own_.panels[p];
    for (std::int64_t i = 0; i < kPanelLanes; ++i) {
      const double sum = static_cast<double>(scratch_.block_sum[i]);
      const double distances = static_cast<double>(own_.distances[i]);
      const double off = static_cast<double>(own_.off[i]);
      seen.exponents[i] += static_cast<double>(own_.exponents[i]);
      seen.distances[i] += distances + off * sum;
      seen.squares[i] += static_cast<double>(own_.squares[i]) + off * (2.0 * distances + off * sum);
    }
  }

  /// Writes the results of the panel's rows. Weights are factor[lane] 2^(score - maximum).
  void close(std::int64_t p, const Panel& panel, const float* factor) {
    PanelLenses& seen = own_.panels[p];
    if (lenses_.statistics) {
      for (std::int64_t i = 0; i < panel.rows; ++i) write_statistics(panel, seen, factor, i);
    }
    if (lenses_.top > 0) {
      const Floats d;
      top_.write(panel, seen, head_, [&](Vector score, std::int64_t lane) HWY_ATTR {
        const Vector below = hn::Sub(score, hn::Load(d, panel.maximum + lane));
        return hn::Mul(hn::Load(d, factor + lane),
                       fovea::HWY_NAMESPACE::exp2_of_nonpositive(
                           d, hn::Mul(hn::Set(d, score_factor_), below)));
      });
    }
    if (lenses_.map) cells_.add(panel, seen, factor, score_factor_);
  }

 private:
  /// Returns whether scores are needed before they become weights. A map needs only weights.
  bool looks_at_scores() const { return lenses_.statistics || lenses_.top > 0; }

  enum class Pooling { kNone, kSum, kMax };
  static constexpr float kLowestScore = std::numeric_limits<float>::lowest();

  static LensScratchSizes sizes(const ForwardSetup& setup) {
    return {.setup = setup.lenses,
            .panels = setup.most_panels,
            .lanes = kPanelLanes,
            .tile_rows = kTileRows,
            .block_keys = setup.block_keys,
            .most_keys = std::max<std::int64_t>(setup.most_keys, 1)};
  }

  void look_at_first_key(std::int64_t segments, PanelLenses& seen) {
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment& segment = scratch_.segments[s];
      if (segment.first_key > 0) continue;
      const std::int64_t lane = segment.first_vector * kLanes;
      std::copy_n(scratch_.scores + lane, segment.vectors * kLanes, seen.first_score + lane);
    }
  }

  /// Updates maximum_key of the rows whose running maximum is in this block. Sets own_.row to the
  /// old maximum_key minus the new one, own_.centre to the key of the block that is nearest to
  /// maximum_key, and own_.off to the centre minus maximum_key. The block's sums are about the
  /// centre.
  void find_maximum_keys(const Panel& panel, std::int64_t block, std::int64_t tiles,
                         PanelLenses& seen) {
    const Floats d;
    const Ints di;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const Vector maximum = hn::Load(d, scratch_.block_maximum + lane);
      const auto raised = hn::Gt(maximum, hn::Load(d, panel.maximum + lane));
      hn::Store(hn::Zero(d), d, own_.row + lane);
      if (!hn::AllFalse(d, raised)) {
        auto first = hn::Zero(di);
        for (std::int64_t t = tiles - 1; t >= 0; --t) {
          const auto here =
              hn::Eq(maximum, hn::Load(d, own_.tile_maximum + t * kPanelLanes + lane));
          first = hn::IfThenElse(hn::RebindMask(di, here), hn::Set(di, static_cast<int>(t)), first);
        }
        HWY_ALIGN std::int32_t tile_of[kLanes], lanes[kLanes];
        hn::Store(first, di, tile_of);
        const std::int64_t count = list_lanes(raised, 0, lanes);
        for (std::int64_t n = 0; n < count; ++n) {
          const std::int64_t at = lane + lanes[n];
          std::int64_t key = std::int64_t{tile_of[lanes[n]]} * kTileRows;
          key += std::countr_zero(
              rows_equal_to(scratch_.scores + key * kPanelLanes + at, scratch_.block_maximum[at]));
          if (seen.maximum_key[at] >= 0) {
            own_.row[at] = static_cast<float>(seen.maximum_key[at] - (block + key));
          }
          seen.maximum_key[at] = block + key;
        }
      }
      for (std::int64_t at = lane; at < lane + kLanes; ++at) {
        const std::int64_t key = seen.maximum_key[at] - block;
        const std::int64_t near = std::clamp<std::int64_t>(key, 0, setup_.block_keys);
        own_.centre[at] = static_cast<float>(near);
        own_.off[at] = static_cast<float>(near - key);
        own_.exponents[at] = own_.distances[at] = own_.squares[at] = 0.0f;
      }
    }
  }

  std::int64_t column_of(std::int64_t key) const { return lenses_.map_columns.of(key); }

  void begin_cells(const Panel& panel, std::int64_t block, std::int64_t segments,
                   PanelLenses& seen) {
    const Floats d;
    const std::int64_t number = block / setup_.block_keys;
    const std::int64_t count = std::min(setup_.block_keys, head_.kv_len - block);
    const std::int64_t first = column_of(block);
    const std::int64_t last = column_of(block + count - 1);
    seen.block_seen[number] = 1;
    const Segment& whole = scratch_.segments[0];
    // A single segment that covers all keys and vectors writes all cells itself.
    cells_are_new_ = segments == 1 && whole.first_key == 0 && whole.keys >= count &&
                     whole.vectors == panel.vectors;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      hn::Store(hn::Load(d, panel.maximum + lane), d,
                seen.block_maximum + number * kPanelLanes + lane);
      for (std::int64_t c = first; c <= last && !cells_are_new_; ++c) {
        hn::Store(hn::Zero(d), d, seen.cells + (number + c) * kPanelLanes + lane);
      }
    }
  }

  /// The softmax pass over the keys of a segment, with statistics and pooling.
  template <int kVectors, bool kStatistics, Pooling kPooling>
  HWY_NOINLINE void watch(const PanelLenses& seen, const Panel& panel, std::int64_t block,
                          const Segment& segment) {
    constexpr bool kPools = kPooling != Pooling::kNone;
    const Floats d;
    const std::int64_t lane = segment.first_vector * kLanes;
    const Vector factor = hn::Set(d, score_factor_);
    Vector maximum[kVectors], sum[kVectors], pooled[kVectors];
    Vector exponents[kVectors], distances[kVectors], squares[kVectors], distance[kVectors];
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      maximum[v] = hn::Load(d, panel.maximum + lane + v * kLanes);
      sum[v] = hn::Load(d, scratch_.block_sum + lane + v * kLanes);
      pooled[v] = exponents[v] = distances[v] = squares[v] = distance[v] = hn::Zero(d);
      if constexpr (kStatistics) {
        distance[v] = hn::Sub(hn::Set(d, static_cast<float>(segment.first_key)),
                              hn::Load(d, own_.centre + lane + v * kLanes));
      }
    }
    std::int64_t column = 0, boundary = 0;
    float* cell = nullptr;
    if constexpr (kPools) {
      column = column_of(block + segment.first_key);
      boundary = own_.column_begin[column + 1] - block;
      cell = seen.cells + (block / setup_.block_keys + column) * kPanelLanes + lane;
    }
    const bool are_new = cells_are_new_;
    const auto finish_cell = [&]() HWY_ATTR {
      HWY_UNROLL(3)
      for (int v = 0; v < kVectors; ++v) {
        float* const to = cell + v * kLanes;
        if (!are_new) pooled[v] = pool<kPooling>(hn::Load(d, to), pooled[v]);
        hn::Store(pooled[v], d, to);
        pooled[v] = hn::Zero(d);
      }
    };

    const float* const scores = scratch_.scores + lane;
    float* const weights = scratch_.weights + lane;
    const std::int64_t end = segment.first_key + segment.keys;
    // Six vectors, or four, at a time: the exponentials need many registers.
    constexpr int kKeys = kVectors == 1 && kTileRows >= 4 ? 4 : 2;
    for (std::int64_t k = segment.first_key; k < end; k += kKeys) {
      Vector below[kKeys * kVectors], weight[kKeys * kVectors];
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) {
        HWY_UNROLL(3)
        for (int v = 0; v < kVectors; ++v) {
          Vector& x = below[i * kVectors + v];
          x = hn::Sub(hn::Load(d, scores + (k + i) * kPanelLanes + v * kLanes), maximum[v]);
          if (!Arithmetic::kScalesQueries) x = hn::Mul(factor, x);
        }
      }
      Arithmetic::template exp2_of_nonpositive<kKeys * kVectors>(below, weight);
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) {
        HWY_UNROLL(3)
        for (int v = 0; v < kVectors; ++v) {
          const Vector w = weight[i * kVectors + v];
          sum[v] = hn::Add(sum[v], w);
          if constexpr (kStatistics) {
            // x may be -inf where 2^x is 0; the bound avoids 0 * -inf.
            const Vector x =
                fovea::HWY_NAMESPACE::simd_math::at_least(d, -127.0f, below[i * kVectors + v]);
            exponents[v] = hn::MulAdd(w, x, exponents[v]);
            const Vector far =
                i == 0 ? distance[v] : hn::Add(distance[v], hn::Set(d, static_cast<float>(i)));
            const Vector product = hn::Mul(w, far);
            distances[v] = hn::Add(distances[v], product);
            squares[v] = hn::MulAdd(product, far, squares[v]);
          }
        }
      }
      HWY_UNROLL(3)
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kStatistics) {
          distance[v] = hn::Add(distance[v], hn::Set(d, static_cast<float>(kKeys)));
        }
        HWY_UNROLL(2)
        for (int i = 0; i < kKeys; i += 2) {
          Arithmetic::store_weights(weight[i * kVectors + v], weight[(i + 1) * kVectors + v],
                                    weights + v * kLanes, k + i);
        }
      }
      if constexpr (kPools) {
        HWY_UNROLL(4)
        for (int i = 0; i < kKeys; ++i) {
          HWY_UNROLL(3)
          for (int v = 0; v < kVectors; ++v) {
            pooled[v] = pool<kPooling>(pooled[v], weight[i * kVectors + v]);
          }
          if (k + i + 1 == boundary) {
            finish_cell();
            ++column;
            cell += kPanelLanes;
            boundary = own_.column_begin[column + 1] - block;
          }
        }
      }
    }
    if constexpr (kPools) finish_cell();
    HWY_UNROLL(3)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = lane + v * kLanes;
      hn::Store(sum[v], d, scratch_.block_sum + at);
      if constexpr (kStatistics) {
        add(own_.exponents + at, exponents[v]);
        add(own_.distances + at, distances[v]);
        add(own_.squares + at, squares[v]);
      }
    }
  }

  template <Pooling kPooling>
  static HWY_INLINE Vector pool(Vector a, Vector b) {
    return kPooling == Pooling::kSum ? hn::Add(a, b) : hn::Max(a, b);
  }

  static HWY_INLINE void add(float* to, Vector more) {
    const Floats d;
    hn::Store(hn::Add(hn::Load(d, to), more), d, to);
  }

  void write_statistics(const Panel& panel, const PanelLenses& seen, const float* factors,
                        std::int64_t i) {
    constexpr double kLn2 = std::numbers::ln2_v<double>;
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const std::int64_t row = panel.first_query + i;
    const double sum = static_cast<double>(panel.sum[i]);
    const double factor = static_cast<double>(factors[i]);
    const std::int64_t key = seen.maximum_key[i];
    double entropy = 0, maximum = 0, mean = kNan, variance = kNan, first = 0, offset = kNan;
    if (std::isnan(sum)) {
      entropy = maximum = first = kNan;
    } else if (sum > 0.0) {
      maximum = factor;
      // A sink may have all of the weight.
      if (factor > 0.0) {
        entropy = -factor * (kLn2 * seen.exponents[i] + std::log(factor) * sum);
      }
      entropy = std::max(entropy, 0.0) + 0.0;  // not -0
      const double off = seen.distances[i] / sum;
      mean = static_cast<double>(row + head_.origin.offset - key) - off;
      offset = off;
      variance = std::max(seen.squares[i] / sum - off * off, 0.0);
      first = factor * std::exp2(static_cast<double>(score_factor_) *
                                 (static_cast<double>(seen.first_score[i]) -
                                  static_cast<double>(panel.maximum[i])));
    }
    const bool none = !(sum > 0.0);
    const HeadLenses& to = *head_.lenses;
    const auto write = [&](const OutputRows& rows, double number) {
      if (rows.data != nullptr) *rows.row_as<float>(row) = static_cast<float>(number);
    };
    write(to.entropy, entropy);
    write(to.maximum, maximum);
    write(to.mean_distance, mean);
    write(to.distance_variance, variance);
    write(to.mean_offset, offset);
    write(to.first_key, first);
    if (to.maximum_key.data != nullptr) {
      *to.maximum_key.row_as<std::int64_t>(row) = none ? -1 : head_.origin.key_start + key;
    }
  }

  const ForwardSetup& setup_;
  const LensSetup& lenses_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  LensScratch own_;
  const TopKeys top_;
  const MapCells cells_;
  const float score_factor_;
  bool cells_are_new_ = false;  // cells of the current panel and block are not initialised
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_LENSES_LENSES_INL_H_
