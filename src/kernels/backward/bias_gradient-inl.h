// SPDX-License-Identifier: Apache-2.0
//
// Gradients of the terms added to scores: the bias, and position biases by distance. They are
// accumulated in scratch memory, for one block of keys and one query head at a time.

#if defined(FOVEA_KERNELS_BACKWARD_BIAS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_BIAS_GRADIENT_INL_H_
#undef FOVEA_KERNELS_BACKWARD_BIAS_GRADIENT_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_BIAS_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr std::int64_t whole_vectors(std::int64_t numbers) {
  return (numbers + kLanes - 1) / kLanes * kLanes;
}
constexpr std::int64_t whole_panels(std::int64_t queries) {
  return (queries + kPanelLanes - 1) / kPanelLanes * kPanelLanes;
}

/// Accumulator of a block's gradients of the bias and of position biases, for one query head.
class BiasGradient {
 public:
  BiasGradient(const BackwardSetup& setup, const BackwardScratch& scratch)
      : setup_(setup), scratch_(scratch) {}

  bool any() const { return setup_.grad_bias || setup_.buckets > 0; }

  /// Zeros the bias gradients, for `keys` keys of the block and the queries of the head.
  void clear_bias(std::int64_t keys, const BackwardHead& head) {
    if (!setup_.grad_bias) return;
    per_key_ = head.grad_bias_place.key_stride != 0;
    per_query_ = head.grad_bias_place.query_stride != 0;
    columns_ = per_query_ ? whole_panels(head.q_len) : kPanelLanes;
    std::fill_n(scratch_.bias, (per_key_ ? keys : 1) * columns_, 0.0f);
  }
  void clear_distances(const BackwardHead& head) {
    if (setup_.buckets == 0) return;
    std::fill_n(scratch_.by_distance,
                whole_panels(head.q_len) + setup_.forward.block_keys + kTileRows, 0.0f);
  }

  /// Adds the score gradients of a tile. The tile's first key is key `key` of the block; its first
  /// query is query `query` of the head, in lane `lane` of the panel.
  void add(const float* gradients, std::int64_t key, std::int64_t query, std::int64_t lane,
           std::int64_t lanes) {
    const Floats d;
    for (std::int64_t k = 0; k < kTileRows; ++k) {
      const float* from = gradients + k * kPanelLanes;
      if (setup_.grad_bias) {
        float* to =
            scratch_.bias + (per_key_ ? (key + k) * columns_ : 0) + (per_query_ ? query : lane);
        for (std::int64_t i = 0; i < lanes; i += kLanes) {
          hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::Load(d, from + i)), d, to + i);
        }
      }
      if (setup_.buckets > 0) {
        float* to = scratch_.by_distance + query - (key + k) + setup_.forward.block_keys;
        for (std::int64_t i = 0; i < lanes; i += kLanes) {
          hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::Load(d, from + i)), d, to + i);
        }
      }
    }
  }

  /// Adds the accumulated gradients of `keys` keys of the block to the head's bias gradient.
  void add_bias_to(const BackwardHead& head, std::int64_t first_key, std::int64_t keys) const {
    const BiasRows& place = head.grad_bias_place;
    for (std::int64_t k = 0; k < (per_key_ ? keys : 1); ++k) {
      const float* from = scratch_.bias + k * columns_;
      float* to = head.grad_bias + place.offset + (per_key_ ? first_key + k : 0) * place.key_stride;
      if (per_query_) {
        for (std::int64_t q = 0; q < head.q_len; ++q) to[q * place.query_stride] += from[q];
      } else {
        double sum = 0.0;
        for (std::int64_t q = 0; q < kPanelLanes; ++q) sum += static_cast<double>(from[q]);
        *to += static_cast<float>(sum);
      }
    }
  }

  /// Writes the gradients of the relative table, summed over the distances of each bucket.
  void write_buckets(const BackwardHead& head, std::int64_t first_key) const {
    if (setup_.buckets == 0) return;
    const RelativeTable& relative = *setup_.forward.options->score.relative;
    std::fill_n(head.grad_relative, setup_.buckets, 0.0f);
    const std::int64_t nearest = head.forward.origin.offset - first_key - setup_.forward.block_keys;
    const std::int64_t count = whole_panels(head.q_len) + setup_.forward.block_keys;
    for (std::int64_t i = 0; i < count; ++i) {
      if (scratch_.by_distance[i] == 0.0f) continue;
      head.grad_relative[relative_bucket(-(nearest + i), relative)] += scratch_.by_distance[i];
    }
  }

 private:
  const BackwardSetup& setup_;
  const BackwardScratch& scratch_;
  bool per_key_ = false, per_query_ = false;
  std::int64_t columns_ = 0;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_BIAS_GRADIENT_INL_H_
