// SPDX-License-Identifier: Apache-2.0
//
// How rules given side by side make a mask, and how many keys it shows.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/mask.h"

namespace fovea {

/// A prefix language model where both are there: the prefix whole, the rest causally. What else is
/// hidden is joined by `&`.
inline Mask causal_or_prefix(bool is_causal, const std::optional<std::int64_t>& prefix_keys) {
  if (!prefix_keys) return is_causal ? causal() : Mask();
  return is_causal ? causal() | prefix(*prefix_keys) : prefix(*prefix_keys);
}

/// The number of keys that a row sees (row.key has no meaning); `visible` is scratch memory.
std::int64_t count_visible(const Mask& mask, ScorePosition row, std::int64_t kv_len,
                           std::vector<std::uint8_t>& visible);

}  // namespace fovea
