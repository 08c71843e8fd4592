// SPDX-License-Identifier: Apache-2.0
//
// Reads hand-written JSON. Every value knows its path (for example "score.bias[2]"), and errors
// have the form "PATH: expected X, got Y".

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::scene {

using Json = nlohmann::ordered_json;

/// Lightweight handle to a value and its path. The JsonDocument must outlive the handle. (Only
/// json_reader.cc includes the JSON library's headers, which are large.)
class FOVEA_API JsonNode {
 public:
  JsonNode(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  const std::string& place() const { return place_; }

  bool is_null() const;
  bool is_array() const;
  bool is_object() const;
  bool is_string() const;
  bool is_boolean() const;
  bool is_number() const;
  bool is_integer() const;

  /// Returns this value as the type in the function's name. Throws InvalidArgument if the value has
  /// another type.
  std::string string() const;
  bool boolean() const;
  double number() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  std::vector<JsonNode> array(std::string_view expected = "an array") const;
  std::vector<std::pair<std::string, JsonNode>> members() const;

  /// Returns the index of this string in `choices`. If there is no match, the error lists all
  /// choices and suggests the nearest.
  std::size_t choice(const std::vector<std::string>& choices) const;

  /// Throws unless this is an object whose keys are all in `keys`.
  void require_object(const std::vector<std::string>& keys) const;

  /// Returns the value of `key` in this object, if present.
  std::optional<JsonNode> find(std::string_view key) const;

  /// Returns nested arrays of numbers as a float64 tensor of rank `least` to `most`. Throws for
  /// ragged arrays. If `special` is set, the strings "-inf", "inf" and "nan" are also accepted.
  Tensor numbers(int least, int most, bool special = false) const;

  /// Returns nested arrays of integers as an int64 tensor, exactly.
  Tensor whole_numbers(int least, int most) const;

  /// Returns nested arrays of booleans as a tensor.
  Tensor booleans(int least, int most) const;

  /// Returns an array of integers, each from `least` to `most`.
  std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most) const;

  [[noreturn]] void fail(const std::string& message) const;
  /// Throws "PATH: expected EXPECTED, got (this value)".
  [[noreturn]] void expected(std::string_view expected) const;

 private:
  template <class T, class Leaf>
  Tensor nested(int least, int most, std::string_view noun, Leaf&& leaf) const;
  Shape nested_shape(int least, int most, std::string_view noun) const;

  const Json* json_;
  std::string place_;
};

/// Parsed JSON text; owns the values.
class JsonDocument {
 public:
  explicit JsonDocument(std::shared_ptr<const Json> json) : json_(std::move(json)) {}

  /// Returns the top-level value. `place` is its path in messages.
  JsonNode root(std::string place = "scene") const { return JsonNode(*json_, std::move(place)); }

 private:
  std::shared_ptr<const Json> json_;
};

/// Parses JSON text. Throws InvalidArgument for text that is not JSON or not UTF-8, for duplicate
/// keys in an object, and for nesting or objects beyond the limits. `place` is the path of the
/// top-level value in messages.
FOVEA_API JsonDocument parse_json(std::string_view text, std::string_view place = "scene");

/// Runs `check`. If `check` throws InvalidArgument, the option name at the start of the message is
/// replaced with the path of `node`, or of its key of that name.
FOVEA_API void at_place(const JsonNode& node, const std::function<void()>& check);

}  // namespace fovea::scene
