// SPDX-License-Identifier: Apache-2.0
//
// Opens what `fovea view` shows (input.h).

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/recording.h"

#include "view/input/input.h"

namespace fovea::view {

/// Returns the scene of a file. Throws IoError and InvalidArgument; messages begin with the path.
Input open_scene(const std::string& path);

/// Returns a scene that is embedded in the program; `stem` is the name of its file.
Input embedded_scene(const std::string& stem, std::string_view json);

/// Returns a recording, with a layer for each batch item of each attention. Throws as above.
Input open_recording(const std::string& path);

/// Returns tensors as an input, named after the first of its files. `layers` have no label, and
/// `options` is a text that changes with the options of the command line.
Input tensors_input(std::vector<OpenedFile> files, std::vector<Layer> layers,
                    std::string_view options);

/// Returns one layer for each batch item of the attention, without labels.
std::vector<Layer> layers_of(const RecordedAttention& attention);

}  // namespace fovea::view
