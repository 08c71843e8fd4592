// SPDX-License-Identifier: Apache-2.0
//
// An optional number in JSON: null if absent.

#pragma once

#include <optional>

#include <nlohmann/json.hpp>

namespace fovea::cli {

inline nlohmann::ordered_json optional_json(const std::optional<double>& value) {
  if (!value) return {};
  return *value;
}

}  // namespace fovea::cli
