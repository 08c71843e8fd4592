// SPDX-License-Identifier: Apache-2.0
//
// Tables of invalid arguments: each changes a valid value in one way and has the expected message.

#pragma once

#include <cctype>
#include <functional>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

namespace fovea::test {

/// One change that makes a default-constructed T invalid.
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

/// Returns the name of a case in a form that gtest accepts.
template <class T>
std::string name_of_bad(const testing::TestParamInfo<Bad<T>>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace fovea::test
