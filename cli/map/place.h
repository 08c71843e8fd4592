// SPDX-License-Identifier: Apache-2.0
//
// The selection of weights for `fovea map` and `fovea tile`, and their common options.

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

/// The options of the selection as typed.
struct PlaceArguments {
  std::int64_t batch = 0;
  std::optional<std::int64_t> head = {};  ///< of the model, if a recording has only some heads
  std::optional<Pool> heads = {};         ///< kMean or kMax pools all heads, and `head` is ignored
  std::string rows;
  std::string cols;
};

/// A range of queries and keys of one head, or of all heads together.
struct MapPlace {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::optional<Pool> heads = {};
  Span queries;
  Span keys;
};

/// The values that --head accepts: only an index, or an index, mean and max.
enum class HeadChoice : std::uint8_t { kOne, kOneOrAll };

struct WeightArguments {
  AttendArguments problem;
  PlaceArguments place;
};

/// Adds the options of add_problem_options. The selection's options come before those that `own`
/// adds.
void add_weight_options(CLI::App& app, WeightArguments& to, const char* heading, HeadChoice heads,
                        const std::function<void()>& own);
/// Calls check_problem_usage for the options of `fovea map` or `fovea tile`. `own` lists the
/// command's own options that take a string.
void check_weight_usage(const CLI::App& app, const WeightArguments& arguments,
                        std::vector<OptionText> own);

/// A problem and the selection of its weights.
struct WeightProblem {
  AttendInputs inputs;
  AttendRules rules;
  MapPlace place;
};
/// Reads the inputs and rules. Throws IoError, or InvalidArgument if inputs and rules do not fit
/// together.
WeightProblem read_weight_problem(const WeightArguments& arguments);

}  // namespace fovea::cli
