// SPDX-License-Identifier: Apache-2.0
//
// Scenes from standard input and from files.

#pragma once

#include <string>

#include "fovea/scene.h"

namespace fovea::cli {

/// Reads a scene from standard input. Throws IoError or InvalidArgument, like scene::load_scene.
scene::Scene load_scene_from_stdin();

/// Reads a scene like scene::load_scene. If the file does not exist and its name looks like a
/// sentence, the error suggests --text.
scene::Scene load_scene_from_file(const std::string& path);

}  // namespace fovea::cli
