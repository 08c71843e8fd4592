// SPDX-License-Identifier: Apache-2.0
//
// `fovea tile`: one rectangle of the weights of a head, as numbers.

#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "cli/map/place.h"

namespace fovea::cli {

class TileCommand {
 public:
  explicit TileCommand(CLI::App& parent);
  TileCommand(const TileCommand&) = delete;
  TileCommand& operator=(const TileCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Reads, computes, and prints or writes; returns the exit code. Throws UsageError,
  /// InvalidArgument, IoError and OutputError.
  int run() const;

 private:
  bool given(const std::string& option) const { return app_->count(option) > 0; }
  void check_usage() const;

  CLI::App* app_;
  WeightArguments arguments_;
  std::string output_;
  bool scores_ = false;
};

}  // namespace fovea::cli
