// SPDX-License-Identifier: Apache-2.0
//
// The visible pairs of a problem: those that neither the mask nor a bias of -inf hides. For code
// that counts them.

#pragma once

#include <array>
#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/mask.h"

namespace fovea {

/// Pairs count as visible if a relative table or a custom score function hides them.
class FOVEA_API VisiblePairs {
 public:
  /// The options must be valid, and outlive this object.
  explicit VisiblePairs(const AttentionOptions& options);

  bool visible(const ScorePosition& at) const;
  /// Writes 1 for each of the keys [first.key, first.key + count) that is visible, else 0.
  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const;

  /// Returns a range of the `count` keys starting at first.key that contains all that are visible
  /// to the query, as Mask::key_range() does; `exact` if it contains no others.
  KeyRange key_range(const ScorePosition& first, std::int64_t count) const;
  /// Returns the mask, which decides alone where the bias hides nothing.
  const Mask& mask() const { return options_.mask; }
  /// Returns whether a bias of -inf hides one of the keys [first.key, first.key + count).
  bool bias_hides_any(const ScorePosition& first, std::int64_t count) const;

 private:
  const AttentionOptions& options_;
  std::array<std::int64_t, 4> strides_{};  // of the bias
};

}  // namespace fovea
