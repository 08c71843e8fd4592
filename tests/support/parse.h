// SPDX-License-Identifier: Apache-2.0
//
// Parses numbers in recorded text.

#pragma once

#include <charconv>
#include <string>

#include <gtest/gtest.h>

namespace fovea::test {

/// Parses the whole text as a number. Fails the test if the text is not a number.
template <class T>
T parse(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  EXPECT_TRUE(error == std::errc() && end == text.data() + text.size()) << "not a number: " << text;
  return value;
}

}  // namespace fovea::test
