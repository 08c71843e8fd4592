// SPDX-License-Identifier: Apache-2.0
//
// Tables of mistakes: something right, made wrong in one way, and the message that is expected.

#pragma once

#include <cctype>
#include <functional>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

namespace fovea::test {

/// One mistake in a T that is right as it is made.
template <class T>
struct Bad {
  std::string name;
  std::function<void(T&)> spoil;
  std::string message;
};

template <class T>
void PrintTo(const Bad<T>& bad, std::ostream* stream) {
  *stream << bad.name;
}

/// The name of a mistake as gtest takes names.
template <class T>
std::string name_of_bad(const testing::TestParamInfo<Bad<T>>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace fovea::test
