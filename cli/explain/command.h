// SPDX-License-Identifier: Apache-2.0
//
// `fovea explain`: the story of a scene or a sentence, or the check of what a scene expects. The
// library tells it (fovea/scene.h); this reads the arguments and puts the result where it belongs.

#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "fovea/scene.h"

#include "cli/shell/terminal.h"

namespace fovea::cli {

class ExplainCommand {
 public:
  explicit ExplainCommand(CLI::App& parent);
  ExplainCommand(const ExplainCommand&) = delete;
  ExplainCommand& operator=(const ExplainCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Tells the story; returns the exit code. Throws UsageError, InvalidArgument, IoError and
  /// OutputError.
  int run() const;

 private:
  enum class Format { kText, kJson, kMarkdown, kHtml };

  void add_options();
  /// Throws UsageError for arguments that do not go together.
  void check_usage() const;
  bool given(const char* option) const { return app_->count(option) > 0; }
  Format format() const;
  scene::TextOptions text_options(bool to_file) const;
  scene::Trace trace() const;
  std::string story(const scene::Trace& trace) const;

  CLI::App* app_;
  std::string scene_;
  std::string query_;
  std::string format_;
  std::string output_;
  std::string color_ = "auto";
  std::int64_t width_ = 0;
  bool check_ = false;
  std::string text_;
  scene::SentenceOptions sentence_;
  std::string projections_ = "none";
};

}  // namespace fovea::cli
