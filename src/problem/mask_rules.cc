// SPDX-License-Identifier: Apache-2.0
//
// Visible key counts (mask_rules.h).

#include "problem/mask_rules.h"

#include <algorithm>

namespace fovea {

std::int64_t count_visible(const Mask& mask, ScorePosition row, std::int64_t kv_len,
                           std::vector<std::uint8_t>& visible) {
  row.key = 0;
  const KeyRange range = mask.key_range(row, kv_len);
  const std::int64_t keys = range.end - range.begin;
  if (range.exact) return keys;
  row.key = range.begin;
  visible.resize(static_cast<std::size_t>(keys));
  mask.fill(row, keys, visible.data());
  return std::count(visible.begin(), visible.end(), 1);
}

}  // namespace fovea
