// SPDX-License-Identifier: Apache-2.0
//
// Compares JSON Schemas in docs/ with what the parsers accept.

#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/files.h"

namespace fovea::test {

/// Returns a schema of docs/.
inline nlohmann::json read_schema(const char* name) {
  return nlohmann::json::parse(read_file(std::filesystem::path(FOVEA_DOCS) / name));
}

/// Returns the keys that a parser lists in its error for the unknown key "zzz".
inline std::set<std::string> listed_keys(std::string_view message) {
  constexpr std::string_view kBefore = "; the keys here are: ";
  const auto at = message.find(kBefore);
  EXPECT_NE(message.find("unknown key \"zzz\""), message.npos) << message;
  EXPECT_NE(at, message.npos) << message;
  if (at == message.npos) return {};
  std::set<std::string> keys;
  std::string_view rest = message.substr(at + kBefore.size());
  while (!rest.empty()) {
    const auto comma = rest.find(", ");
    keys.emplace(rest.substr(0, comma));
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 2);
  }
  return keys;
}

/// Returns the names of the properties of a schema's object.
inline std::set<std::string> property_names(const nlohmann::json& object) {
  std::set<std::string> names;
  for (const auto& [name, property] : object.at("properties").items()) names.insert(name);
  return names;
}

}  // namespace fovea::test
