// SPDX-License-Identifier: Apache-2.0
//
// Which weights `fovea map` and `fovea tile` are about, and what both have alike: their options,
// and how these become a problem.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "fovea/lenses.h"
#include "fovea/mask.h"

#include "cli/map/compute.h"
#include "cli/problem/arguments.h"
#include "cli/problem/inputs.h"
#include "cli/problem/options.h"
#include "cli/problem/rules.h"

namespace fovea::cli {

/// As they were typed.
struct PlaceArguments {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::optional<Pool> heads = {};  ///< kMean or kMax over all of them, in place of `head`
  std::string rows;
  std::string cols;
};

/// Some queries and keys of one head, or of all heads together.
struct MapPlace {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::optional<Pool> heads = {};
  Span queries;
  Span keys;
};

/// What --head takes.
enum class HeadChoice : std::uint8_t { kOne, kOneOrAll };

struct WeightArguments {
  AttendArguments problem;
  PlaceArguments place;
};

/// As add_problem_options, with a place before what `own` adds.
void add_weight_options(CLI::App& app, WeightArguments& to, const char* heading, HeadChoice heads,
                        const std::function<void()>& own);
/// As check_problem_usage, of which it names the rest.
void check_weight_usage(const CLI::App& app, const WeightArguments& arguments,
                        std::vector<OptionText> own);

/// What was asked about which weights.
struct WeightProblem {
  AttendInputs inputs;
  AttendRules rules;
  MapPlace place;
};
/// Reads it. Throws InvalidArgument for what does not fit together, IoError.
WeightProblem read_weight_problem(const WeightArguments& arguments);

}  // namespace fovea::cli
