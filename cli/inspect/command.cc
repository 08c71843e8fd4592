// SPDX-License-Identifier: Apache-2.0
//
// `fovea inspect` (command.h).

#include "cli/inspect/command.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "fovea/error.h"

#include "cli/inspect/recording.h"
#include "cli/inspect/report.h"
#include "cli/pages/pages.h"
#include "cli/shell/message.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

/// Shows the progress of reading on a terminal, once it takes long.
class SlowProgress {
 public:
  void show(const std::string& name, std::size_t place, std::size_t count, double share) {
    constexpr std::chrono::milliseconds kPatience(500);
    if (std::chrono::steady_clock::now() - begin_ < kPatience) return;
    line_.show(
        fmt::format("{} of {}, {:.0f} %: {}", place + 1, count, share * 100.0, visible(name)));
  }
  void clear() { line_.clear(); }

 private:
  Progress line_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Returns the message without the names of the file and the tensor, which are printed next to it.
std::string without_place(std::string_view message, const std::string& name) {
  const std::string place = visible(name) + ": ";
  const std::size_t at = message.find(place);
  return std::string(at == std::string_view::npos ? message : message.substr(at + place.size()));
}

/// The argument: all tensors of a file, or one of them.
struct Inspected {
  TensorFile file;
  std::string name;  // as passed to TensorFile::read; empty for all tensors
};

Inspected open_inspected(const std::string& spec) {
  if (spec == "-" || spec.starts_with("-:")) {
    return {TensorFile::from_standard_input(), spec.size() > 2 ? spec.substr(2) : ""};
  }
  const TensorSpec place = parse_tensor_spec(spec);
  return {TensorFile::open(place.path), place.name};
}

class InspectCommand : public Command {
 public:
  explicit InspectCommand(CLI::App& parent);
  int run() const override;

 private:
  std::string file_;
  bool tensors_ = false;
  bool names_ = false;
  bool json_ = false;
};

InspectCommand::InspectCommand(CLI::App& parent)
    : Command(parent, "inspect", "describe a recording, or list the tensors in a file",
              kInspectPage, Repeated::kRefused) {
  app_->add_option(
      "FILE", file_,
      "A file; FILE:NAME for one tensor; FILE:bf16 or FILE:NAME:bf16 for bfloat16 "
      "stored by NumPy as two bytes without a type; \"-\" for an .npy file on standard "
      "input.");
  app_->add_flag("--tensors", tensors_,
                 "List the tensors of a recording as those of any other file, instead of "
                 "describing the recording.");
  app_->add_flag("--names", names_,
                 "Print only names, types and shapes, without reading the data.");
  app_->add_flag("--json", json_, "Print one JSON object instead of text.");
}

int InspectCommand::run() const {
  if (file_.empty()) {
    const char* got = app_->count("FILE") > 0 ? ", got \"\"" : "";
    throw UsageError(fmt::format("expected a FILE{}", got));
  }
  const auto [file, name] = open_inspected(file_);
  if (name.empty() && !tensors_ && !names_ && is_recording(file.path())) {
    const Recording recording = Recording::open(file.path());
    write_stdout(json_ ? recording_json(recording) : recording_text(recording));
    return 0;
  }
  InspectReport report = {.file = file.path(), .format = file.format(), .names_only = names_};
  for (const TensorInfo& info : file.tensors()) report.tensors.push_back({info, {}});
  if (!name.empty()) report.tensors = {{file.tensors()[file.find(name)], {}}};
  std::string failure;
  SlowProgress progress;
  const std::size_t count = report.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    // Not structured bindings, which Clang 14 cannot capture.
    TensorInfo& info = report.tensors[i].info;
    std::optional<Summary>& summary = report.tensors[i].summary;
    const bool chosen = !name.empty();
    if (!info.unreadable.empty() && !chosen) continue;
    if (names_ && !chosen) continue;
    try {
      const TensorRef tensor = file.read(chosen ? name : info.name);
      info.dtype = tensor->dtype();
      info.unreadable.clear();
      if (names_) continue;
      summary = summarize(tensor, [&](double share) { progress.show(info.name, i, count, share); });
    } catch (const InvalidArgument& error) {
      if (chosen) throw;
      // Continue, because other tensors may be readable.
      info.unreadable = without_place(error.what(), info.name);
      if (failure.empty()) failure = error.what();
    }
  }
  progress.clear();
  write_stdout(json_ ? inspect_json(report) : inspect_text(report));
  if (!failure.empty()) throw InvalidArgument(failure);
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_inspect(CLI::App& parent) {
  return std::make_unique<InspectCommand>(parent);
}

}  // namespace fovea::cli
