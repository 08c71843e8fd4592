// SPDX-License-Identifier: Apache-2.0
//
// Ranks keys by weight (top_keys.h). Weights can be NaN, so they are mapped to ranks that have a
// strict weak order, as sorting requires. page/story.js uses the same order (listed).

#include "scene/trace/top_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fovea::scene {

std::vector<std::int64_t> top_keys(const TraceModel& model, std::int64_t head) {
  const Focus& focus = *model.scene().focus;
  const StepLayout layout = model.layout(*model.find("weights"));
  std::vector<double> rank;
  for (std::int64_t key = 0; key < model.keys(); ++key) {
    const double weight = layout.at(focus.item, head, 0, focus.index, key);
    rank.push_back(std::isnan(weight) ? -std::numeric_limits<double>::infinity() : weight);
  }
  std::vector<std::int64_t> keys(rank.size());
  std::iota(keys.begin(), keys.end(), 0);
  std::stable_sort(keys.begin(), keys.end(), [&](std::int64_t a, std::int64_t b) {
    return rank[static_cast<std::size_t>(a)] > rank[static_cast<std::size_t>(b)];
  });
  keys.resize(std::min(keys.size(), static_cast<std::size_t>(kTopKeys)));
  return keys;
}

}  // namespace fovea::scene
