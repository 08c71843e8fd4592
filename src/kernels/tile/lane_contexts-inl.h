// SPDX-License-Identifier: Apache-2.0
//
// Panels with one query per lane: queries as [steps][kPanelLanes], and contexts as
// [value_dim][kPanelLanes], as products of packed values and weights give them.

#if defined(FOVEA_KERNELS_TILE_LANE_CONTEXTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_LANE_CONTEXTS_INL_H_
#undef FOVEA_KERNELS_TILE_LANE_CONTEXTS_INL_H_
#else
#define FOVEA_KERNELS_TILE_LANE_CONTEXTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/doubtful_keys-inl.h"
#include "kernels/tile/pack-inl.h"
#include "kernels/tile/panel-inl.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

template <class Arithmetic>
class LaneContexts {
 public:
  LaneContexts(const ForwardSetup& setup, const ForwardHead& head, ForwardScratch& scratch)
      : setup_(setup), head_(head), scratch_(scratch), doubtful_(setup, head, scratch) {}

  void note_who_sees_doubtful(const Segment& segment) { doubtful_.note_who_sees(segment); }

  void load_queries(const Panel& panel, float factor) const {
    HWY_NAMESPACE::load_queries<Arithmetic>(head_, panel, setup_.head_dim, factor, panel.queries);
  }

  /// Sets the context to zero, unless it has been begun.
  void begin_context(Panel& panel) const {
    if (!panel.begun) std::fill_n(panel.context, setup_.value_dim * kPanelLanes, 0.0f);
    panel.begun = true;
  }

  void add_doubtful(const Panel& panel, const Segment& segment) {
    doubtful_.add(segment, [&](std::int64_t key, std::int64_t lane, std::int64_t c, float value) {
      panel.context[c * kPanelLanes + lane] +=
          Arithmetic::weight(scratch_.weights, key, lane) * value;
    });
  }

  /// Multiplies the contexts by scratch.factor and writes them.
  void write_context(const Panel& panel) const {
    const Floats d;
    for (std::int64_t lane = 0; lane < panel.vectors * kLanes; lane += kLanes) {
      const Vector factor = hn::Load(d, scratch_.factor + lane);
      for (std::int64_t c = 0; c < setup_.value_dim; ++c) {
        float* at = panel.context + c * kPanelLanes + lane;
        hn::Store(hn::Mul(factor, hn::Load(d, at)), d, at);
      }
    }
    if (head_.context.dtype == DType::kFloat32) {
      transpose(Numbers<float>{panel.context}, kPanelLanes, setup_.value_dim, panel.rows,
                head_.context.row_as<float>(panel.first_query), head_.context.stride);
      return;
    }
    // Transpose through the score buffer, which is no longer needed, as many columns at a time as
    // fit.
    const std::int64_t columns = std::min(setup_.value_dim, setup_.block_keys);
    for (std::int64_t c = 0; c < setup_.value_dim; c += columns) {
      const std::int64_t count = std::min(columns, setup_.value_dim - c);
      transpose(Numbers<float>{panel.context + c * kPanelLanes}, kPanelLanes, count, panel.rows,
                scratch_.scores, columns);
      with_element_type(head_.context.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        for (std::int64_t r = 0; r < panel.rows; ++r) {
          write_numbers(scratch_.scores + r * columns, count,
                        head_.context.row_as<T>(panel.first_query + r) + c);
        }
      });
    }
  }

 protected:
  const ForwardSetup& setup_;
  const ForwardHead& head_;
  ForwardScratch& scratch_;
  DoubtfulKeys doubtful_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_LANE_CONTEXTS_INL_H_
