// SPDX-License-Identifier: Apache-2.0
//
// The options that say which attention it is, of `fovea attend` and `fovea map` alike: tensors,
// masks and scores.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/problem/arguments.h"

namespace fovea::cli {

/// An option and the text it was given.
struct OptionText {
  const char* name = nullptr;
  const std::string* text = nullptr;
};

/// Each under a heading of its own; the arguments must live as long as the app.
void add_tensor_options(CLI::App& app, AttendArguments& to);
void add_mask_options(CLI::App& app, AttendArguments& to);
void add_score_options(CLI::App& app, AttendArguments& to);
/// Under the heading that is the app's at the moment.
void add_threads_option(CLI::App& app, AttendArguments& to);

/// All options of a command for weights, but for those of a place: tensors, what `own` adds under
/// `heading`, which leaves the app at the heading "Options", threads there, masks and scores.
void add_problem_options(CLI::App& app, AttendArguments& to, const char* heading,
                         const std::function<void()>& own);

/// Throws UsageError for options that have no value or do not go together. `tensors` are those that
/// have to be given where --input is not; `outputs` are the command's own options with a text.
void check_problem_usage(const CLI::App& app, const AttendArguments& arguments,
                         const std::vector<std::string>& tensors,
                         const std::vector<OptionText>& outputs);

}  // namespace fovea::cli
