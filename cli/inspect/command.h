// SPDX-License-Identifier: Apache-2.0
//
// `fovea inspect`: which tensors a file has, and what their numbers are like.

#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "cli/inspect/report.h"

namespace fovea::cli {

class InspectCommand {
 public:
  explicit InspectCommand(CLI::App& parent);
  InspectCommand(const InspectCommand&) = delete;
  InspectCommand& operator=(const InspectCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Reads and prints; returns the exit code. Throws UsageError, InvalidArgument, IoError and
  /// OutputError.
  int run() const;

 private:
  CLI::App* app_;
  std::string file_;
  bool names_ = false;
  bool json_ = false;
};

}  // namespace fovea::cli
