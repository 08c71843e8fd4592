// SPDX-License-Identifier: Apache-2.0
//
// Computation of the head statistics of `fovea heads`.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"
#include "engine/weights/head_names.h"

namespace fovea::cli {

using engine::HeadPlace;
using engine::HeadTold;
using enum engine::HeadPlace;

struct HeadsResult {
  std::vector<HeadTold> heads;  ///< by batch item, then by head
  std::int64_t blocks = 16;
  int threads = 1;
  double seconds = 0.0;
};

/// Returns the values of `--sort`, the default first.
std::vector<std::string> head_orders();
/// Sorts in descending order with NaN last. The sort is stable; "head" leaves the order unchanged.
void sort_heads(std::vector<HeadTold>& heads, std::string_view order);

/// Computes the statistics of all heads. `rules` must be valid for the inputs. Throws
/// InvalidArgument with a message that names the option.
HeadsResult compute_heads(const AttendInputs& inputs, const AttendRules& rules, std::int64_t blocks,
                          int threads, Progress& progress);

}  // namespace fovea::cli
