// SPDX-License-Identifier: Apache-2.0
//
// The numbers of `fovea heads`: what is told of each head.

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
  std::vector<HeadTold> heads;  ///< of the first batch item, then of the next
  std::int64_t blocks = 16;
  int threads = 1;
  double seconds = 0.0;
};

/// What `--sort` takes, the default first.
std::vector<std::string> head_orders();
/// The largest first, nan last, equals as they were; by "head", as they come.
void sort_heads(std::vector<HeadTold>& heads, std::string_view order);

/// Computes, with rules that fit the problem. Throws InvalidArgument, in words of options.
HeadsResult compute_heads(const AttendInputs& inputs, const AttendRules& rules, std::int64_t blocks,
                          int threads, Progress& progress);

}  // namespace fovea::cli
