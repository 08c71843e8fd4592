// SPDX-License-Identifier: Apache-2.0
//
// Recordings as arguments: "fovea map run.safetensors --layer 13". The file has the tensors, masks
// and scores, so that options for them are refused beside it.

#pragma once

#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "fovea/recording.h"

#include "cli/problem/arguments.h"
#include "recording/words.h"

namespace fovea::cli {

using recording::ranges_words;
using recording::recorded_words;

/// The description of the argument RECORDING.
inline constexpr const char* kRecordingHelp =
    "The recorded attention of a model, a .safetensors file (docs/recordings.md), instead of "
    "tensors and options for masks and scores.";

/// Adds the argument RECORDING and the options that select one of its attentions. The arguments
/// must outlive the app.
void add_recorded_options(CLI::App& app, RecordedArguments& to);
/// Adds only --layer, --kind and --attention, under the heading "Recordings".
void add_selection_options(CLI::App& app, RecordedArguments& to);

/// Throws UsageError for options that do not go together: those of tensors, masks and scores with a
/// recording, or --layer, --kind and --attention without. Returns whether there is a recording.
bool check_recorded_usage(const CLI::App& app, std::span<const std::string> recordings);

/// Returns the selected attention, which may be the only one. Throws InvalidArgument with a message
/// that lists what is there.
const RecordedAttention& find_recorded(const Recording& recording,
                                       const RecordedArguments& arguments);

/// Returns the attentions that match the selection, at least one. Throws as above.
std::vector<RecordedAttention> select_recorded(const Recording& recording,
                                               const RecordedArguments& arguments);

}  // namespace fovea::cli
