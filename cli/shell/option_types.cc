// SPDX-License-Identifier: Apache-2.0
//
// Types of options (option_types.h).

#include "cli/shell/option_types.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "cli/shell/number_list.h"
#include "text/nearest.h"

namespace fovea::cli {

namespace {

/// Returns the suggestion of did_you_mean. If no choice is near enough, suggests one that `value`
/// extends or abbreviates, such as "prev" for "previous".
std::string suggestion(std::string_view value, const std::vector<std::string>& choices) {
  std::string nearest = did_you_mean(value, choices);
  constexpr std::size_t kMinShared = 3;
  if (!nearest.empty() || value.size() < kMinShared) return nearest;
  for (const std::string& choice : choices) {
    const bool related = value.starts_with(choice) || choice.starts_with(value);
    if (related && choice.size() >= kMinShared) {
      return fmt::format(" (did you mean \"{}\"?)", choice);
    }
  }
  return nearest;
}

// A validator's name stores its choices after this prefix, because the name is the only text of a
// validator that CLI11 does not print.
constexpr std::string_view kChoices = "choices:";

}  // namespace

CLI::Validator is_one_of(const std::vector<std::string>& choices) {
  const auto check = [choices](const std::string& value) {
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return std::string();
    return fmt::format("expected one of {}; got \"{}\"{}", fmt::join(choices, ", "), value,
                       suggestion(value, choices));
  };
  return CLI::Validator(check, "", fmt::format("{}{}", kChoices, fmt::join(choices, " ")));
}

std::vector<std::string> choices_of(CLI::Option& option) {
  for (int i = 0;; ++i) {
    const CLI::Validator* validator = nullptr;
    try {
      validator = option.get_validator(i);
    } catch (const CLI::OptionNotFound&) {  // there are no more validators
      return {};
    }
    if (std::string_view name = validator->get_name(); name.starts_with(kChoices)) {
      return CLI::detail::split(std::string(name.substr(kChoices.size())), ' ');
    }
  }
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& description) {
  return app.add_option(name, target, description)->check(is_one_of(choices));
}

CLI::Option* add_choices(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                         const std::vector<std::string>& choices, const std::string& description) {
  return app.add_option(name, target, description)
      ->check(is_one_of(choices))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* add_index(CLI::App& app, const std::string& name, std::optional<std::int64_t>& target,
                       const std::string& description) {
  const auto assign = [name, &target](const std::string& value) {
    target = parse_number<std::int64_t>(value);
    if (!target || *target < 0 || *target > kMaxCount) {
      throw CLI::ValidationError(
          name, fmt::format("expected a whole number from 0 to {}, got \"{}\"", kMaxCount, value));
    }
  };
  return app.add_option_function<std::string>(name, assign, description)->type_name("N");
}

CLI::Option* add_real(CLI::App& app, const std::string& name, std::optional<double>& target,
                      const std::string& description) {
  const auto assign = [name, &target](const std::string& value) {
    target = parse_number<double>(value);
    if (!target) {
      throw CLI::ValidationError(name, fmt::format("expected a number, got \"{}\"", value));
    }
  };
  return app.add_option_function<std::string>(name, assign, description)->type_name("X");
}

}  // namespace fovea::cli
