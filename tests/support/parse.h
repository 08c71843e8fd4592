// SPDX-License-Identifier: Apache-2.0
//
// Numbers in recorded text.

#pragma once

#include <charconv>
#include <string>

#include <gtest/gtest.h>

namespace fovea::test {

/// The whole text as a number; fails the test where it is none.
template <class T>
T parse(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  EXPECT_TRUE(error == std::errc() && end == text.data() + text.size()) << "not a number: " << text;
  return value;
}

}  // namespace fovea::test
