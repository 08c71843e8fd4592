// SPDX-License-Identifier: Apache-2.0
//
// The stages between the first product and the softmax, for one work item: selects the stages and
// prepares the inputs of each for a tile. The stages themselves are in score-inl.h. A bias alone
// may be added by the product instead, while the scores are in registers: find_addend().

#if defined(FOVEA_KERNELS_TILE_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_STAGES_INL_H_
#undef FOVEA_KERNELS_TILE_STAGES_INL_H_
#else
#define FOVEA_KERNELS_TILE_STAGES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/position_bias.h"
#include "kernels/tile/score-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"
#include "kernels/tile/tile-inl.h"
#include "problem/query_factor.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr float kLog2E = std::numbers::log2e_v<float>;
/// The number of keys whose additive bias is loaded together: one cache line, or one
/// tile if that is longer.
constexpr std::int64_t kBiasKeys = kTileRows > 16 ? kTileRows : 16;

class ScoreStages {
 public:
  /// If `queries_are_scaled`, query_factor() is applied to the queries, otherwise to the scores.
  ScoreStages(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch,
              bool queries_are_scaled)
      : setup_(setup),
        head_(head),
        score_(setup.options->score),
        mask_(setup.options->mask),
        scratch_(scratch),
        scores_are_scaled_(queries_are_scaled) {}

  float query_factor() const { return fovea::query_factor(score_, setup_.scale); }
  /// Returns the factor that the softmax multiplies scores by: the absolute value of
  /// query_factor(), or 1 if query_factor() is applied earlier. The result is never 0, because the
  /// scores of hidden keys are -inf and 0 * -inf is NaN. For finite scores, the smallest normal
  /// number is practically equivalent to 0.
  float score_factor() const {
    if (scores_are_scaled_ || any()) return 1.0f;
    return std::max(std::abs(query_factor()), std::numeric_limits<float>::min());
  }

  /// Prepares the position biases for the item's queries [q_begin, q_begin + queries) and keys
  /// [keys_begin, keys_end).
  void begin(std::int64_t q_begin, std::int64_t queries, std::int64_t keys_begin,
             std::int64_t keys_end) {
    if (!has_position_bias()) return;
    first_distance_ = q_begin + head_.origin.offset - (keys_end + kTileRows);
    const std::int64_t last = q_begin + queries + head_.origin.offset - keys_begin;
    const std::int64_t count = last - first_distance_ + setup_.block_keys;
    fill_position_bias(score_, head_.origin.head, setup_.q_heads, first_distance_,
                       {scratch_.position_bias, static_cast<std::size_t>(count)});
    untested_positions_ = count;
  }

  /// Returns whether any stage is active. If none is active, run() may be skipped.
  bool any() const {
    return score_.softcap > 0 || score_.custom.tile != nullptr || score_.bias.defined() ||
           has_position_bias();
  }
  /// Returns whether a stage is nonlinear (softcap or custom function), so that run() can compute
  /// its derivative.
  bool has_derivative() const { return score_.softcap > 0 || score_.custom.tile != nullptr; }

  /// Finds what the product may add to the scores of the tile whose first key is block + key,
  /// instead of run(), with the same result. Returns false if the stages are not just a bias of
  /// numbers far from overflow.
  HWY_NOINLINE bool find_addend(const Panel& panel, std::int64_t block, std::int64_t key,
                                std::int64_t lane, std::int64_t lanes, Addend& addend) {
    if (!biases_are_moderate_ || has_derivative() || has_position_bias() == score_.bias.defined()) {
      return false;
    }
    if (has_position_bias()) {
      if (untested_positions_ > 0) {
        const float* const last = scratch_.position_bias + untested_positions_ - kLanes;
        biases_are_moderate_ =
            are_moderate(scratch_.position_bias, untested_positions_ / kLanes * kLanes) &&
            are_moderate(last, kLanes);
        untested_positions_ = 0;
      }
      addend = {position_biases(panel, block + key, lane), -1, 1.0f};
      return biases_are_moderate_;
    }
    load_bias(panel, block + key, lane, lanes);
    addend = {bias_of(block + key), kPanelLanes, kLog2E};
    return biases_are_moderate_;
  }

  /// Applies all stages in order to kVectors vectors of the tile whose first key is block + key.
  /// Unless it is null, `derivative` receives the derivatives of the scores with respect to
  /// scale * product, both taken without the factor log2(e), as lanes from `lane` on of a
  /// [kTileRows][kPanelLanes] buffer. A non-null `derivative` requires has_derivative().
  template <int kVectors>
  void run(const Panel& panel, std::int64_t block, std::int64_t key, std::int64_t lane,
           float* derivative = nullptr) {
    constexpr std::int64_t lanes = kVectors * kLanes;
    float* scores = scratch_.scores + key * kPanelLanes + lane;
    const bool custom = score_.custom.tile != nullptr;
    const float cap = static_cast<float>(score_.softcap) * (custom ? 1.0f : kLog2E);
    if (!scores_are_scaled_) scale_tile(scores, lanes, std::abs(query_factor()));
    if (score_.softcap > 0) softcap_tile<kVectors>(scores, cap);
    if (derivative != nullptr || custom) {
      const ScoreTile tile{.scores = scores,
                           .stride = kPanelLanes,
                           .keys = kTileRows,
                           .lanes = lanes,
                           .first = head_.place(panel.first_query + lane, block + key),
                           .factor = kLog2E};
      if (derivative != nullptr) find_derivative(tile, cap, derivative);
      if (custom) score_.custom.tile(score_.custom.state.get(), tile);
    }
    if (has_position_bias()) {
      add_position_bias(scores, lanes, position_biases(panel, block + key, lane));
    }
    if (score_.bias.defined()) {
      load_bias(panel, block + key, lane, lanes);
      add_bias_tile(scores, lanes, bias_of(block + key), kLog2E);
    }
  }

  /// Prepares the visible keys of a segment's rows for mask_tile().
  void prepare_mask(const Panel& panel, std::int64_t block, const Segment& segment) {
    if (!panel.exact) return fill_visible(panel, block, segment);
    const auto within = [&](std::int64_t key) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(key - block, 0, setup_.block_keys));
    };
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int64_t i = lane; i < lane + segment.vectors * kLanes; ++i) {
      scratch_.key_begin[i] = within(panel.key_begin[i]);
      scratch_.key_end[i] = within(panel.key_end[i]);
    }
  }

  template <int kVectors>
  HWY_NOINLINE void mask_tile(const Panel& panel, std::int64_t key, std::int64_t lane) {
    constexpr std::int64_t lanes = kVectors * kLanes;
    float* scores = scratch_.scores + key * kPanelLanes + lane;
    if (panel.exact) {
      mask_tile_by_range(scores, lanes, static_cast<std::int32_t>(key), scratch_.key_begin + lane,
                         scratch_.key_end + lane);
    } else {
      mask_tile_by_rows(scores, lanes, scratch_.visible + lane * setup_.block_keys + key,
                        setup_.block_keys, scratch_.mask_rows, scratch_.mask_tile);
    }
  }

 private:
  /// Computes the derivatives from the scores after the softcap.
  void find_derivative(const ScoreTile& scores, float cap, float* derivative) {
    for (std::int64_t k = 0; k < kTileRows; ++k) {
      const float* from = scores.scores + k * kPanelLanes;
      float* to = derivative + k * kPanelLanes;
      if (score_.custom.tile == nullptr) {
        std::fill_n(to, scores.lanes, 1.0f);
      } else {
        std::copy_n(from, scores.lanes, to);
      }
    }
    if (score_.custom.tile != nullptr) {
      ScoreTile tile = scores;
      tile.scores = derivative;
      tile.factor = 1.0f;
      score_.custom.tile_derivative(score_.custom.state.get(), tile);
    }
    if (score_.softcap > 0) softcap_derivative_tile(scores.scores, scores.lanes, cap, derivative);
  }

  bool has_position_bias() const { return score_.alibi.has_value() || score_.relative.has_value(); }

  /// Returns the position biases of a key, from `lane` on. Those of the next key begin one before.
  const float* position_biases(const Panel& panel, std::int64_t key, std::int64_t lane) const {
    const std::int64_t distance = panel.first_query + lane + head_.origin.offset - key;
    return scratch_.position_bias + (distance - first_distance_);
  }
  /// Returns the loaded biases of a key.
  const float* bias_of(std::int64_t key) const {
    return scratch_.bias_tile + key % kBiasKeys * kPanelLanes;
  }

  void fill_visible(const Panel& panel, std::int64_t block, const Segment& segment) {
    const std::int64_t key = block + segment.first_key;
    const std::int64_t keys = std::min(segment.keys, head_.kv_len - key);
    const std::int64_t lane = segment.first_vector * kLanes;
    for (std::int64_t i = lane; i < lane + segment.vectors * kLanes; ++i) {
      std::uint8_t* row = scratch_.visible + i * setup_.block_keys + segment.first_key;
      if (i < panel.rows) {
        mask_.fill(head_.place(panel.first_query + i, key), keys, row);
        std::fill(row + keys, row + segment.keys, std::uint8_t{0});
      } else {
        std::fill(row, row + segment.keys, std::uint8_t{0});
      }
    }
  }

  float bias_at(std::int64_t index) const {
    const TensorView& bias = score_.bias;
    if (bias.dtype() == DType::kFloat64) {
      return bias_number(static_cast<const double*>(bias.data())[index]);
    }
    return with_element_type(bias.dtype(), [&](auto* type) {
      return static_cast<float>(static_cast<decltype(type)>(bias.data())[index]);
    });
  }

  /// Loads the additive bias of the aligned group of kBiasKeys keys that contains `key` into
  /// bias_tile[key % kBiasKeys][lane], one cache line per row, and tests it, unless the group is
  /// already loaded. Keys beyond the last key get the bias of the last key, lanes without a row 0.
  void load_bias(const Panel& panel, std::int64_t key, std::int64_t lane, std::int64_t lanes) {
    key = key / kBiasKeys * kBiasKeys;
    const std::int64_t query = panel.first_query + lane;
    if (bias_key_ == key && bias_query_ == query && bias_lanes_ == lanes) return;
    bias_key_ = key;
    bias_query_ = query;
    bias_lanes_ = lanes;

    const TensorView& bias = score_.bias;
    const std::int64_t rows = std::min(lanes, panel.rows - lane);
    const std::int64_t keys = std::min(kBiasKeys, head_.kv_len - key);
    if (rows < lanes) {
      for (std::int64_t k = 0; k < kBiasKeys; ++k) {
        std::fill_n(scratch_.bias_tile + k * kPanelLanes + rows, lanes - rows, 0.0f);
      }
    }
    const std::int64_t query_stride = head_.bias.query_stride;
    const std::int64_t key_stride = head_.bias.key_stride;
    const std::int64_t offset = head_.bias.offset + query * query_stride + key * key_stride;
    if (bias.dtype() == DType::kFloat32 && key_stride == 1 && query_stride != 0 &&
        keys == kBiasKeys) {
      load_bias_lines(static_cast<const float*>(bias.data()) + offset, query_stride, rows);
      return;
    }
    for (std::int64_t k = 0; k < kBiasKeys; ++k) {
      float* row = scratch_.bias_tile + k * kPanelLanes;
      const std::int64_t at = offset + std::min(k, keys - 1) * key_stride;
      if (query_stride == 0) {
        std::fill(row, row + lanes, bias_at(at));
      } else {
        for (std::int64_t i = 0; i < rows; ++i) row[i] = bias_at(at + i * query_stride);
      }
      biases_are_moderate_ = biases_are_moderate_ && are_moderate(row, lanes);
    }
  }

  /// Loads and tests biases whose rows are contiguous, one cache line of each. Tests them in
  /// registers: loads right after the stores, which are narrower, take 1.4 % of a call.
  void load_bias_lines(const float* lines, std::int64_t stride, std::int64_t rows) {
    const Floats d;
    Vector sum = hn::Zero(d);
    const TestedNumbers from{{lines}, &sum};
    std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; r + 4 <= rows; r += 4) {
      for (std::int64_t k = 0; k < kBiasKeys; k += kLanes) {
        transpose_4_rows(d, from.from(r * stride), stride, k,
                         scratch_.bias_tile + k * kPanelLanes + r, kPanelLanes);
      }
    }
#endif
    for (; r < rows; ++r) {
      for (std::int64_t k = 0; k < kBiasKeys; k += kLanes) from.from(r * stride).vector(d, k);
      for (std::int64_t k = 0; k < kBiasKeys; ++k) {
        scratch_.bias_tile[k * kPanelLanes + r] = lines[r * stride + k];
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      __builtin_prefetch(lines + i * stride + 2 * kBiasKeys, 0, 2);
    }
    biases_are_moderate_ = biases_are_moderate_ && is_moderate(sum);
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  const ScoreOptions& score_;
  const Mask& mask_;
  ForwardScratch& scratch_;
  const bool scores_are_scaled_;
  std::int64_t first_distance_ = 0;  // the distance of the first entry in the position bias table
  bool biases_are_moderate_ = true;  // all so far
  std::int64_t untested_positions_ = 0;  // of the table of position biases
  // The arguments of the last load_bias().
  std::int64_t bias_key_ = -1, bias_query_ = -1, bias_lanes_ = -1;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_STAGES_INL_H_
