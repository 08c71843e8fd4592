// SPDX-License-Identifier: Apache-2.0
//
// `fovea info`: what this build is and what it found on this machine.

#pragma once

#include <CLI/CLI.hpp>

namespace fovea::cli {

class InfoCommand {
 public:
  explicit InfoCommand(CLI::App& parent);
  InfoCommand(const InfoCommand&) = delete;
  InfoCommand& operator=(const InfoCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Prints the facts; returns the exit code.
  int run() const;

 private:
  CLI::App* app_;
  bool json_ = false;
};

}  // namespace fovea::cli
