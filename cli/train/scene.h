// SPDX-License-Identifier: Apache-2.0
//
// `fovea train scene`: a scene learns where to look. The library teaches it (fovea/train_scene.h);
// this reads the arguments, shows how far it is and puts the result where it belongs.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "fovea/scene.h"

namespace fovea::cli {

class TrainSceneCommand {
 public:
  explicit TrainSceneCommand(CLI::App& parent);
  TrainSceneCommand(const TrainSceneCommand&) = delete;
  TrainSceneCommand& operator=(const TrainSceneCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Learns; returns the exit code. Throws UsageError, InvalidArgument, IoError and OutputError.
  int run() const;

 private:
  /// Throws UsageError for arguments that do not go together.
  void check_usage() const;
  bool given(const char* option) const { return app_->count(option) > 0; }
  std::string name() const { return scene_ == "-" ? "standard input" : scene_; }
  scene::Scene load() const;

  CLI::App* app_;
  std::string scene_;
  std::string output_;
  std::int64_t steps_;
  std::optional<double> learning_rate_;
  std::uint64_t seed_ = 0;
  bool json_ = false;
};

}  // namespace fovea::cli
