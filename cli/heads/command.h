// SPDX-License-Identifier: Apache-2.0
//
// `fovea heads`: what each head is like, in a few numbers and a name.

#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/problem/arguments.h"

namespace fovea::cli {

class HeadsCommand {
 public:
  explicit HeadsCommand(CLI::App& parent);
  HeadsCommand(const HeadsCommand&) = delete;
  HeadsCommand& operator=(const HeadsCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Reads, computes, and prints or writes; returns the exit code. Throws UsageError,
  /// InvalidArgument, IoError and OutputError.
  int run() const;

 private:
  bool given(const std::string& option) const { return app_->count(option) > 0; }
  void check_usage() const;

  CLI::App* app_;
  AttendArguments arguments_;
  std::int64_t blocks_ = 16;
  std::string sort_ = "share";
  std::string output_;
};

}  // namespace fovea::cli
