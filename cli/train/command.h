// SPDX-License-Identifier: Apache-2.0
//
// `fovea train`: the commands that learn, under one name. train_absent.cc is the same in a build
// without fovea::nn.

#pragma once

#include <memory>

#include <CLI/CLI.hpp>

namespace fovea::cli {

class TrainSceneCommand;
class TrainTranslateCommand;

class TrainCommand {
 public:
  explicit TrainCommand(CLI::App& parent);
  ~TrainCommand();
  TrainCommand(const TrainCommand&) = delete;
  TrainCommand& operator=(const TrainCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Runs the command chosen; returns the exit code. Throws UsageError where there is none, and as
  /// that does.
  int run() const;

 private:
  CLI::App* app_;
  std::unique_ptr<TrainSceneCommand> scene_;
  std::unique_ptr<TrainTranslateCommand> translate_;
};

}  // namespace fovea::cli
