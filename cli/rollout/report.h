// SPDX-License-Identifier: Apache-2.0
//
// The output of `fovea rollout`: a table of tokens, JSON, CSV, or a map of layers and tokens.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/analysis.h"
#include "fovea/map.h"
#include "fovea/recording.h"
#include "fovea/tensor.h"

#include "picture/words.h"

namespace fovea::cli {

struct RolloutReport {
  const Recording& recording;
  const std::vector<const RecordedAttention*>& layers;
  const RolloutRequest& request;
  const Tensor& shares;             ///< [layers, tokens], of attention_rollout()
  std::vector<std::string> tokens;  ///< empty if there are none
  int threads = 1;
  double seconds = 0.0;
};

/// Returns a table of the `top` tokens with the largest shares.
std::string rollout_text(const RolloutReport& report, std::int64_t top);
std::string rollout_json(const RolloutReport& report);
/// Returns one line per layer and token.
std::string rollout_csv(const RolloutReport& report);

/// Returns the shares as a map of layers and tokens, and its texts.
MapCells rollout_map(const RolloutReport& report);
MapWords rollout_words(const RolloutReport& report);

}  // namespace fovea::cli
