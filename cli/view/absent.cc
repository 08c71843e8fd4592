// SPDX-License-Identifier: Apache-2.0
//
// Placeholder for `fovea view` in a build without the viewer (command.h).

#include "cli/view/command.h"

namespace fovea::cli {

std::unique_ptr<Command> make_view(CLI::App& parent) {
  return make_absent(parent, "view", "look inside attention in the browser (not in this build)",
                     "view: this fovea was built without the viewer, with FOVEA_VIEW=OFF");
}

}  // namespace fovea::cli
