// SPDX-License-Identifier: Apache-2.0
//
// Helpers for masks: combining causal and prefix rules, and counting visible keys.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/mask.h"

namespace fovea {

/// Returns the mask for a causal flag and an optional prefix. With both, it is the mask of a prefix
/// language model: the prefix is fully visible, the rest is causal. Callers combine further rules
/// by `&`.
inline Mask causal_or_prefix(bool is_causal, const std::optional<std::int64_t>& prefix_keys) {
  if (!prefix_keys) return is_causal ? causal() : Mask();
  return is_causal ? causal() | prefix(*prefix_keys) : prefix(*prefix_keys);
}

/// Returns the number of keys visible to a row. `row.key` is ignored; `visible` is scratch memory.
std::int64_t count_visible(const Mask& mask, ScorePosition row, std::int64_t kv_len,
                           std::vector<std::uint8_t>& visible);

}  // namespace fovea
