// SPDX-License-Identifier: Apache-2.0
//
// Scenes from standard input.

#pragma once

#include "fovea/scene.h"

namespace fovea::cli {

/// Reads a scene from standard input. Throws IoError or InvalidArgument, like scene::load_scene.
scene::Scene load_scene_from_stdin();

}  // namespace fovea::cli
