// SPDX-License-Identifier: Apache-2.0
//
// Recordings as arguments (recorded.h).

#include "cli/problem/recorded.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "core/fail.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr std::array kFromTheFile = {"--query",
                                     "--key",
                                     "--value",
                                     "--input",
                                     "--layout",
                                     "--dtype",
                                     "--causal",
                                     "--prefix",
                                     "--window",
                                     "--documents",
                                     "--mask",
                                     "--key-lengths",
                                     "--alignment",
                                     "--scale",
                                     "--softcap",
                                     "--bias",
                                     "--alibi",
                                     "--relative",
                                     "--relative-one-way",
                                     "--relative-distance",
                                     "--sinks"};
constexpr std::array kSelection = {"--layer", "--kind", "--attention"};

bool has_option(const CLI::App& app, const char* name) {
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option != nullptr && option->count() > 0;
}

bool matches_selection(const RecordedAttention& attention, const RecordedArguments& arguments) {
  return (!arguments.layer || attention.layer == *arguments.layer) &&
         (!arguments.kind || attention.kind == *arguments.kind) &&
         (arguments.attention.empty() || attention.name == arguments.attention);
}

/// Returns the selection as typed: "--layer 3 --kind cross".
std::string selection_words(const RecordedArguments& arguments) {
  std::vector<std::string> words;
  if (arguments.layer) words.push_back(fmt::format("--layer {}", *arguments.layer));
  if (arguments.kind) {
    words.push_back(fmt::format("--kind {}", attention_kind_name(*arguments.kind)));
  }
  if (!arguments.attention.empty()) {
    words.push_back(fmt::format("--attention {}", visible(arguments.attention)));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

void add_selection_options(CLI::App& app, RecordedArguments& to) {
  app.option_defaults()->group("Recordings");
  add_index(app, "--layer", to.layer, "The layer of the model.");
  add_choice(app, "--kind", to.kind,
             {{"self", AttentionKind::kSelf},
              {"encoder", AttentionKind::kEncoder},
              {"decoder", AttentionKind::kDecoder},
              {"cross", AttentionKind::kCross}},
             "The kind of attention, if a layer has several: self, encoder, decoder or cross.")
      ->type_name("KIND");
  app.add_option("--attention", to.attention,
                 "The name of the attention in the recording, instead of --layer.")
      ->type_name("NAME");
}

void add_recorded_options(CLI::App& app, RecordedArguments& to) {
  app.option_defaults()->group("Recordings");
  app.add_option("RECORDING", to.file, kRecordingHelp);
  add_selection_options(app, to);
}

bool check_recorded_usage(const CLI::App& app, std::span<const std::string> recordings) {
  // `fovea record` has options with the same names, but no such argument.
  if (app.get_option_no_throw("RECORDING") == nullptr) return false;
  if (!has_option(app, "RECORDING")) {
    for (const char* const option : kSelection) {
      if (has_option(app, option)) {
        throw UsageError(fmt::format("{} goes with a RECORDING", option));
      }
    }
    return false;
  }
  for (const std::string& recording : recordings) {
    if (recording.empty()) throw UsageError("RECORDING: expected a file, got \"\"");
  }
  for (const char* const option : kFromTheFile) {
    if (has_option(app, option)) {
      throw UsageError(fmt::format(
          "{}: expected no tensors, masks or scores beside the recording \"{}\", which has its own",
          option, recordings.front()));
    }
  }
  return true;
}

std::vector<RecordedAttention> select_recorded(const Recording& recording,
                                               const RecordedArguments& arguments) {
  std::vector<RecordedAttention> found;
  for (const RecordedAttention& attention : recording.attentions()) {
    if (matches_selection(attention, arguments)) found.push_back(attention);
  }
  if (!found.empty()) return found;
  if (recording.attentions().empty()) {
    fail("{}: expected attentions, got a recording without any", recording.path());
  }
  if (!arguments.attention.empty()) {
    std::vector<std::string> names;
    for (const RecordedAttention& attention : recording.attentions()) {
      names.push_back(visible(attention.name));
    }
    constexpr std::size_t kMaxNames = 6;
    std::string more;
    if (names.size() > kMaxNames) {
      more = fmt::format(" and {} more", names.size() - kMaxNames);
      names.resize(kMaxNames);
    }
    fail("{}: expected an attention that was recorded, {}{}, got {}", recording.path(),
         fmt::join(names, ", "), more, selection_words(arguments));
  }
  fail("{}: expected a layer that was recorded, {}, got {}", recording.path(),
       recorded_words(recording), selection_words(arguments));
}

const RecordedAttention& find_recorded(const Recording& recording,
                                       const RecordedArguments& arguments) {
  const std::vector<RecordedAttention> found = select_recorded(recording, arguments);
  if (found.size() == 1) return recording.find(found.front().name);
  std::set<std::int64_t> layers;
  std::set<AttentionKind> kinds;
  for (const RecordedAttention& attention : found) {
    layers.insert(attention.layer);
    kinds.insert(attention.kind);
  }
  if (layers.size() > 1) {
    fail("{}: expected --layer N for one of the layers {}", recording.path(), ranges_words(layers));
  }
  if (kinds.size() > 1) {
    std::vector<std::string_view> names;
    for (const AttentionKind kind : kinds) names.push_back(attention_kind_name(kind));
    fail("{}: expected --kind with one of {}, as layer {} has each", recording.path(),
         fmt::join(names, ", "), *layers.begin());
  }
  std::vector<std::string> attentions;
  for (const RecordedAttention& attention : found) attentions.push_back(visible(attention.name));
  fail("{}: expected --attention with one of {}, as layer {} has each", recording.path(),
       fmt::join(attentions, ", "), *layers.begin());
}

}  // namespace fovea::cli
