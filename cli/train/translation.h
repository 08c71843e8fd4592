// SPDX-License-Identifier: Apache-2.0
//
// `fovea train translate`: a model learns to translate from pairs in a file. src/train trains it;
// this reads the arguments and shows how far it is.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "train/settings.h"
#include "train/translator.h"

namespace fovea::cli {

class TrainTranslateCommand {
 public:
  explicit TrainTranslateCommand(CLI::App& parent);
  TrainTranslateCommand(const TrainTranslateCommand&) = delete;
  TrainTranslateCommand& operator=(const TrainTranslateCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Trains; returns the exit code. Throws UsageError, InvalidArgument, IoError, OutputError and
  /// train::Diverged.
  int run();

 private:
  void add_options();
  /// Throws UsageError for arguments that do not go together.
  void check_usage() const;
  bool given(const char* option) const { return app_->count(option) > 0; }

  CLI::App* app_;
  std::string output_;
  std::string architecture_ = "transformer";
  bool resume_ = false;
  bool show_attention_ = false;
  train::TranslatorOptions model_;
  std::int64_t layers_ = 2;
  train::RunSettings settings_;
  std::optional<double> learning_rate_, rotary_base_, dropout_, label_smoothing_, until_;
};

}  // namespace fovea::cli
