// SPDX-License-Identifier: Apache-2.0
//
// The inputs of `fovea view`: files by their content, tensors of options, and the embedded scenes.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/problem/arguments.h"
#include "view/input/input.h"

namespace fovea::cli {

/// A file of examples/scenes: "two_heads" and its contents.
struct SceneFile {
  std::string_view stem;
  std::string_view json;
};

/// Returns the files in order. Defined in a source file that cli/CMakeLists.txt generates.
std::vector<SceneFile> scene_files();

/// The inputs that the command line names.
struct ViewSources {
  std::vector<std::string> files = {};
  AttendArguments problem = {};  ///< options for tensors, masks and scores
  bool tensor_options = false;   ///< whether the options name tensors
  bool rule_options = false;     ///< whether there are options for masks, scores or tokens
  std::string tokens = {}, query_tokens = {};  ///< files
};

/// Opens everything; without files and tensors, the embedded scenes. Throws InvalidArgument and
/// IoError.
std::vector<view::Input> open_inputs(const ViewSources& sources);

/// Opens one of them again.
view::Input reopen_input(const ViewSources& sources, const view::Input& input);

}  // namespace fovea::cli
