// SPDX-License-Identifier: Apache-2.0
//
// The visible pairs of a problem (visible_pairs.h).

#include "problem/visible_pairs.h"

#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/element_type.h"
#include "problem/broadcast.h"

namespace fovea {
namespace {

template <class T>
bool is_minus_infinity(T number) {
  if constexpr (std::is_same_v<T, Float16>) {
    return number.bits == 0xfc00;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return number.bits == 0xff80;
  } else {
    return static_cast<double>(number) == -std::numeric_limits<double>::infinity();
  }
}

/// The biases of the keys from `first` on. Calls visit(biases, stride) with a pointer of their
/// type.
template <class Visit>
auto with_biases(const TensorView& bias, const std::array<std::int64_t, 4>& strides,
                 const ScorePosition& first, const Visit& visit) {
  const std::int64_t offset = first.batch * strides[0] + first.head * strides[1] +
                              (first.query_start + first.query) * strides[2] +
                              (first.key_start + first.key) * strides[3];
  return with_element(bias.dtype(), [&](auto zero) {
    return visit(static_cast<const decltype(zero)*>(bias.data()) + offset, strides[3]);
  });
}

/// Without branches, so that compilers vectorise the loop.
template <class T>
bool any_is_minus_infinity(const T* numbers, std::int64_t stride, std::int64_t count) {
  bool any = false;
  if (stride == 1) {
    for (std::int64_t k = 0; k < count; ++k) any |= is_minus_infinity(numbers[k]);
  } else {
    for (std::int64_t k = 0; k < count; ++k) any |= is_minus_infinity(numbers[k * stride]);
  }
  return any;
}

}  // namespace

VisiblePairs::VisiblePairs(const AttentionOptions& options) : options_(options) {
  if (options.score.bias.defined()) strides_ = broadcast_strides(options.score.bias);
}

bool VisiblePairs::visible(const ScorePosition& at) const {
  return options_.mask.visible(at) && !bias_hides_any(at, 1);
}

void VisiblePairs::fill(const ScorePosition& first, std::int64_t count,
                        std::uint8_t* visible) const {
  options_.mask.fill(first, count, visible);
  if (count == 0 || !options_.score.bias.defined()) return;
  with_biases(options_.score.bias, strides_, first, [&](const auto* biases, std::int64_t stride) {
    for (std::int64_t k = 0; k < count; ++k) {
      if (is_minus_infinity(biases[k * stride])) visible[k] = 0;
    }
  });
}

KeyRange VisiblePairs::key_range(const ScorePosition& first, std::int64_t count) const {
  KeyRange range = options_.mask.key_range(first, count);
  ScorePosition seen = first;
  seen.key = range.begin;
  if (range.begin < range.end && bias_hides_any(seen, range.end - range.begin)) {
    range.exact = false;
  }
  return range;
}

bool VisiblePairs::bias_hides_any(const ScorePosition& first, std::int64_t count) const {
  if (count == 0 || !options_.score.bias.defined()) return false;
  return with_biases(options_.score.bias, strides_, first,
                     [&](const auto* biases, std::int64_t stride) {
                       return any_is_minus_infinity(biases, stride, count);
                     });
}

}  // namespace fovea
