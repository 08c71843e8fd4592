// SPDX-License-Identifier: Apache-2.0
//
// Types of options used by several commands. They replace CLI11's conversions, whose messages do
// not state the expected value.

#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace fovea::cli {

/// The maximum value of --threads.
inline constexpr std::int64_t kMaxThreads = 1024;

/// The maximum value of an option for a length or index, larger than any tensor.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;

/// The words that an option accepts, each with its value.
template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

/// Returns a validator for CLI11 that suggests the nearest choice.
CLI::Validator is_one_of(const std::vector<std::string>& choices);

/// Returns the choices of an option added by add_choice or add_choices; empty for other options.
std::vector<std::string> choices_of(CLI::Option& option);

/// Adds an option or argument that accepts one of a few words, and stores its value in `target`.
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

/// Adds an option or argument that accepts one of a few words, and stores the word in `target`.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& description);

/// Adds an option or argument that accepts one or several of a few words.
CLI::Option* add_choices(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                         const std::vector<std::string>& choices, const std::string& description);

/// Adds an option for a number, such as 0.125 or 1e-3.
CLI::Option* add_real(CLI::App& app, const std::string& name, std::optional<double>& target,
                      const std::string& description);

/// Adds an option for an index: a decimal integer from 0 to kMaxCount.
CLI::Option* add_index(CLI::App& app, const std::string& name, std::optional<std::int64_t>& target,
                       const std::string& description);

/// Adds an option for a decimal integer between the two bounds of `range`, inclusive.
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
