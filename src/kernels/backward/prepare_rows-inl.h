// SPDX-License-Identifier: Apache-2.0
//
// Per-query values that the backward pass needs before it processes any block of keys.

#if defined(FOVEA_KERNELS_BACKWARD_PREPARE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_PREPARE_ROWS_INL_H_
#undef FOVEA_KERNELS_BACKWARD_PREPARE_ROWS_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_PREPARE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/backward/backward.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"
#include "kernels/tile/stages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Returns the dot product of two rows.
template <class A, class B>
HWY_INLINE float dot(const A* a, const B* b, std::int64_t count) {
  const Floats d;
  Vector sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    sum = hn::MulAdd(load_floats(d, a + c), load_floats(d, b + c), sum);
  }
  float rest = 0.0f;
  for (; c < count; ++c) rest += static_cast<float>(a[c]) * static_cast<float>(b[c]);
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

inline float row_dot(const InputRows& a, const InputRows& b, std::int64_t row, std::int64_t count) {
  return with_element_type(a.dtype, [&](auto* of_a) {
    using A = std::remove_cvref_t<decltype(*of_a)>;
    return with_element_type(b.dtype, [&](auto* of_b) {
      using B = std::remove_cvref_t<decltype(*of_b)>;
      return dot(a.row_as<A>(row), b.row_as<B>(row), count);
    });
  });
}

inline KeyBounds bounds_of(const Mask& mask, const ForwardHead& head, std::int64_t first_query,
                           std::int64_t last_query) {
  if (mask.allows_all()) return {0, head.kv_len};
  KeyBounds bounds{head.kv_len, 0};
  for (std::int64_t q = first_query; q < last_query; ++q) {
    const KeyRange range = mask.key_range(head.place(q, 0), head.kv_len);
    if (range.begin >= range.end) continue;
    bounds.begin = std::min(bounds.begin, range.begin);
    bounds.end = std::max(bounds.end, range.end);
  }
  return bounds;
}

inline void prepare_rows(const BackwardSetup& setup, const BackwardRows& rows) {
  const BackwardHead& head = rows.head;
  for (std::int64_t q = rows.first_query; q < rows.last_query; ++q) {
    const float lse = *rows.lse.row_as<float>(q);
    const float of_lse = rows.grad_lse.data == nullptr ? 0.0f : *rows.grad_lse.row_as<float>(q);
    const bool sees_nothing = lse == kMinusInfinity;
    // An infinite log2_sum makes all weights 0. A finite one saturates, as scores do.
    constexpr float kMost = std::numeric_limits<float>::max();
    rows.log2_sum[q] = sees_nothing         ? std::numeric_limits<float>::infinity()
                       : std::isfinite(lse) ? std::clamp(lse * kLog2E, -kMost, kMost)
                                            : lse;
    rows.delta[q] =
        sees_nothing
            ? 0.0f
            : row_dot(rows.context, head.grad_context, q, setup.forward.value_dim) - of_lse;
    if (head.grad_query != nullptr) {
      std::fill_n(head.grad_query + q * head.grad_query_stride, setup.forward.head_dim, 0.0f);
    }
  }
  const std::int64_t together = setup.queries_together;
  for (std::int64_t q = rows.first_query; q < rows.last_query; q += together) {
    rows.bounds[q / together] = bounds_of(setup.forward.options->mask, head.forward, q,
                                          std::min(q + together, rows.last_query));
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_PREPARE_ROWS_INL_H_
