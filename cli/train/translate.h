// SPDX-License-Identifier: Apache-2.0
//
// `fovea translate`: what a model that `fovea train translate` trained makes of texts.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "train/run_folder.h"

namespace fovea::cli {

class TranslateCommand {
 public:
  explicit TranslateCommand(CLI::App& parent);
  TranslateCommand(const TranslateCommand&) = delete;
  TranslateCommand& operator=(const TranslateCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Translates; returns the exit code. Throws UsageError, InvalidArgument, IoError and
  /// OutputError.
  int run() const;

 private:
  /// Throws UsageError for arguments that do not go together.
  void check_usage() const;
  bool given(const char* option) const { return app_->count(option) > 0; }
  std::vector<std::string> texts() const;
  int check(train::Model& model) const;
  int translate(train::Model& model) const;

  CLI::App* app_;
  std::string folder_;
  std::vector<std::string> texts_;
  std::int64_t beams_ = 1;
  bool show_attention_ = false;
  std::string html_;
  std::string pairs_;
  bool json_ = false;
};

}  // namespace fovea::cli
