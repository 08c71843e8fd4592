// SPDX-License-Identifier: Apache-2.0
//
// Kinds of options (option_types.h).

#include "option_types.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/nearest.h"

namespace fovea::cli {

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        std::vector<std::string> choices, const std::string& description) {
  return app.add_option(name, target, description)
      ->check([choices = std::move(choices)](const std::string& value) {
        if (std::find(choices.begin(), choices.end(), value) != choices.end()) return std::string();
        return fmt::format("expected one of {}; got \"{}\"{}", fmt::join(choices, ", "), value,
                           did_you_mean(value, choices));
      });
}

}  // namespace fovea::cli
