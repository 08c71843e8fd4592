// SPDX-License-Identifier: Apache-2.0
//
// Parsing of numbers and comma-separated lists of numbers in arguments: "3", "-1,0", "0.5,inf".

#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace fovea::cli {

/// Returns the numbers of a list; nullopt if an element is missing, malformed or out of range.
template <class Number>
std::optional<std::vector<Number>> parse_numbers(std::string_view text) {
  std::vector<Number> numbers;
  const char* next = text.data();
  const char* const end = next + text.size();
  while (true) {
    Number number{};
    const auto [stopped, error] = std::from_chars(next, end, number);
    if (error != std::errc()) return std::nullopt;
    numbers.push_back(number);
    if (stopped == end) return numbers;
    if (*stopped != ',') return std::nullopt;
    next = stopped + 1;
  }
}

/// Returns the number in `text`, which must contain nothing else; nullopt if malformed.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  const auto numbers = parse_numbers<Number>(text);
  if (!numbers || numbers->size() != 1) return std::nullopt;
  return numbers->front();
}

}  // namespace fovea::cli
