// SPDX-License-Identifier: Apache-2.0
//
// Kinds of options that several commands have, on top of CLI11, whose own conversions would not say
// what was expected.

#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace fovea::cli {

/// The largest number that --threads takes.
inline constexpr std::int64_t kMaxThreads = 1024;

/// The largest length or index that an option takes, more than any tensor has.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;

/// The words of a choice, and what each stands for.
template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

/// Returns a check for CLI11 that suggests the nearest choice.
CLI::Validator is_one_of(const std::vector<std::string>& choices);

/// Returns the choices of an option that was added by add_choice or add_choices; none for any
/// other.
std::vector<std::string> choices_of(CLI::Option& option);

/// An option or argument that takes one of a few words. `target` gets what the word stands for.
template <class Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Value& target,
                        const std::type_identity_t<Choices<Value>>& choices,
                        const std::string& description) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  const auto assign = [&target, choices](const std::string& typed) {
    for (const auto& [word, value] : choices) {
      if (word == typed) target = value;
    }
  };
  return app.add_option_function<std::string>(name, assign, description)->check(is_one_of(words));
}

/// The first word that stands for `value`.
template <class Value>
std::string word_of(const Choices<Value>& choices, Value value) {
  for (const auto& [word, known] : choices) {
    if (known == value) return word;
  }
  return {};
}

/// The same as add_choice, of which `target` gets the word itself.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& description);

/// One or several of them.
CLI::Option* add_choices(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                         const std::vector<std::string>& choices, const std::string& description);

/// An option that takes a number, such as 0.125 or 1e-3.
CLI::Option* add_real(CLI::App& app, const std::string& name, std::optional<double>& target,
                      const std::string& description);

/// An option that takes a decimal number from the first to the second of `range`.
template <class Integer>
CLI::Option* add_integer(CLI::App& app, const std::string& name, Integer& target,
                         std::pair<Integer, Integer> range, const std::string& description) {
  const auto assign = [name, &target, range](const std::string& value) {
    Integer number = 0;
    const char* end = value.data() + value.size();
    const auto [stopped, error] = std::from_chars(value.data(), end, number);
    const bool fits = number >= range.first && number <= range.second;
    if (error != std::errc() || stopped != end || !fits) {
      throw CLI::ValidationError(
          name, fmt::format("expected a whole number from {} to {}, got \"{}\"", range.first,
                            range.second, value));
    }
    target = number;
  };
  return app.add_option_function<std::string>(name, assign, description)->type_name("N");
}

}  // namespace fovea::cli
