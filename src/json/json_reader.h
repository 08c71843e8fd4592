// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON that a person wrote: every value knows its place (a path such as "score.bias[2]"),
// and whatever is wrong is said as "PLACE: expected X, got Y".

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

/// A value and its place. A cheap handle: its JsonDocument must outlive it. (Only json_reader.cc
/// compiles the JSON library's headers, which are large.)
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

  /// This value as one of its kind; otherwise fails with what was expected.
  std::string string() const;
  bool boolean() const;
  double number() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  std::vector<JsonNode> array(std::string_view expected = "an array") const;
  std::vector<std::pair<std::string, JsonNode>> members() const;

  /// The position in `choices` of this string; fails with all of them, and the nearest one.
  std::size_t choice(const std::vector<std::string>& choices) const;

  /// Fails unless this is an object without any other keys than these.
  void require_object(const std::vector<std::string>& keys) const;

  /// The value of a key of this object, if it is there.
  std::optional<JsonNode> find(std::string_view key) const;

  /// Nested arrays of numbers as a float64 tensor of rank `least` to `most`. Fails for ragged
  /// arrays. With `special`, the strings "-inf", "inf" and "nan" are numbers too.
  Tensor numbers(int least, int most, bool special = false) const;

  /// Nested arrays of whole numbers as an int64 tensor, exact.
  Tensor whole_numbers(int least, int most) const;

  /// Nested arrays of true and false.
  Tensor booleans(int least, int most) const;

  /// A list of whole numbers.
  std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most) const;

  [[noreturn]] void fail(const std::string& message) const;
  /// "PLACE: expected EXPECTED, got (this value)".
  [[noreturn]] void expected(std::string_view expected) const;

 private:
  template <class T, class Leaf>
  Tensor nested(int least, int most, std::string_view noun, Leaf&& leaf) const;
  Shape nested_shape(int least, int most, std::string_view noun) const;

  const Json* json_;
  std::string place_;
};

/// A parsed text.
class JsonDocument {
 public:
  explicit JsonDocument(std::shared_ptr<const Json> json) : json_(std::move(json)) {}

  /// The value at the top, and what its place is called.
  JsonNode root(std::string place = "scene") const { return JsonNode(*json_, std::move(place)); }

 private:
  std::shared_ptr<const Json> json_;
};

/// Parses JSON text. Throws InvalidArgument for text that is not JSON or not UTF-8, for a key that
/// occurs twice in an object, and for nesting or objects beyond any sensible scene.
FOVEA_API JsonDocument parse_json(std::string_view text);

/// Runs a check that throws InvalidArgument. Replaces the option's name at the start of its message
/// by the place of `node` in the file.
FOVEA_API void at_place(const JsonNode& node, const std::function<void()>& check);

}  // namespace fovea::scene
