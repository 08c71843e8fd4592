// SPDX-License-Identifier: Apache-2.0
//
// `fovea bench`: this machine's ceilings, and how near to them attention comes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/attention/measure.h"
#include "bench/attention/problem.h"
#include "bench/attention/table.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

class BenchCommand {
 public:
  explicit BenchCommand(CLI::App& parent);
  BenchCommand(const BenchCommand&) = delete;
  BenchCommand& operator=(const BenchCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Measures and prints; returns the exit code. Throws UsageError, InvalidArgument, OutputError
  /// and WrongResult.
  int run() const;

 private:
  void add_problem_options();
  bool given(const std::string& option) const { return app_->count(option) > 0; }
  /// Whether a problem of the user's own is described.
  bool own_problem() const;
  bool wants(const std::string& part) const;
  /// Throws UsageError for arguments that do not go together.
  void check_usage() const;
  BenchLenses lenses(const BenchProblem& problem) const;
  BenchProblem problem(BenchCall call) const;
  std::vector<BenchRow> rows(BenchCall call) const;
  std::vector<int> ceiling_threads() const;
  BenchEffort effort() const;

  CLI::App* app_;
  std::vector<std::string> parts_;
  std::string dtype_;
  BenchProblem shape_;
  std::vector<std::string> masks_;
  std::vector<std::string> scores_;
  std::vector<std::string> lenses_;
  std::int64_t threads_ = 1;
  std::int64_t repeat_ = 0;
  bool quick_ = false;
  bool json_ = false;
};

}  // namespace fovea::cli
