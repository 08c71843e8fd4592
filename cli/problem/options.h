// SPDX-License-Identifier: Apache-2.0
//
// The options for tensors, masks and scores, shared by `fovea attend`, `map`, `tile` and `heads`.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/problem/arguments.h"

namespace fovea::cli {

/// An option and its value as typed.
struct OptionText {
  const char* name = nullptr;
  const std::string* text = nullptr;
};

/// Each function adds options under its own heading. The arguments must outlive the app.
void add_tensor_options(CLI::App& app, AttendArguments& to);
/// Adds the tensor options with the descriptions for weights, which do not depend on values.
void add_weight_tensor_options(CLI::App& app, AttendArguments& to);
void add_mask_options(CLI::App& app, AttendArguments& to);
void add_score_options(CLI::App& app, AttendArguments& to);
/// Adds --threads under the app's current heading.
void add_threads_option(CLI::App& app, AttendArguments& to);

/// Adds --timeout, for commands that run in jobs (shell/job.h).
void add_job_option(CLI::App& app);

/// Adds the common options of commands for weights: recordings, tensors, then the options that
/// `own` adds under `heading`, then threads, masks and scores. `own` must leave the app at the
/// heading "Options".
void add_problem_options(CLI::App& app, AttendArguments& to, const char* heading,
                         const std::function<void()>& own);

/// Throws UsageError for options without a value and for incompatible options, including options
/// beside a recording that it has itself. `tensors` are the
/// options required without --input; `outputs` are the command's own options that take a string.
void check_problem_usage(const CLI::App& app, const AttendArguments& arguments,
                         const std::vector<std::string>& tensors,
                         const std::vector<OptionText>& outputs);

}  // namespace fovea::cli
