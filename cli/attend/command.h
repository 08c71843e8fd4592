// SPDX-License-Identifier: Apache-2.0
//
// `fovea attend`: attention of tensors in files, into files.

#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "cli/attend/outputs.h"
#include "cli/attend/report.h"
#include "cli/problem/arguments.h"
#include "cli/problem/call.h"
#include "cli/problem/inputs.h"

namespace fovea::cli {

class AttendCommand {
 public:
  explicit AttendCommand(CLI::App& parent);
  AttendCommand(const AttendCommand&) = delete;
  AttendCommand& operator=(const AttendCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Reads, computes, writes and reports; returns the exit code. Throws UsageError,
  /// InvalidArgument, IoError, OutputError, and WrongResult where --verify finds one.
  int run() const;

 private:
  void add_output_options();
  bool given(const std::string& option) const { return app_->count(option) > 0; }
  /// Throws UsageError for arguments that do not go together.
  void check_usage() const;
  /// The tensors to be filled.
  AttendResult make_result(const AttendInputs& inputs) const;
  void print(const AttendReport& report) const;

  CLI::App* app_;
  AttendArguments arguments_;
};

}  // namespace fovea::cli
