// SPDX-License-Identifier: Apache-2.0
//
// A layer over the JSON library (json_reader.h) that adds the path of every value, readable error
// messages, and limits that reject oversized input before it costs time or memory.

#include "json/json_reader.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"

#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxKeys = 256;  // per object; lookups are linear
constexpr int kMaxQuoted = 60;         // maximum width, in columns, of quoted text in a message

/// Parser callback that tracks the path of the current value and rejects oversized input before it
/// costs time or memory.
class PlaceTracker {
 public:
  explicit PlaceTracker(std::string_view root) : root_(root) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (depth >= kMaxDepth) {
          throw InvalidArgument(fmt::format("{}: expected at most {} levels of nesting, got more",
                                            place(), kMaxDepth));
        }
        frames_.push_back({event == Event::object_start, {}, 0, {}});
        break;
      case Event::key: {
        Frame& frame = frames_.back();
        frame.key = value.get<std::string>();
        if (!frame.keys.insert(frame.key).second) {
          throw InvalidArgument(fmt::format("{}: this key occurs twice", place()));
        }
        if (frame.keys.size() > kMaxKeys) {
          throw InvalidArgument(fmt::format("{}: expected at most {} keys in an object, got more",
                                            place(), kMaxKeys));
        }
        break;
      }
      case Event::object_end:
      case Event::array_end:
        frames_.pop_back();
        [[fallthrough]];
      case Event::value:
        if (!frames_.empty()) ++frames_.back().index;
        break;
    }
    return true;
  }

  std::string place() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (!frame.is_object) {
        path += fmt::format("[{}]", frame.index);
      } else if (!frame.key.empty()) {
        path += (path.empty() ? "" : ".") + fit(visible(frame.key), kMaxQuoted);
      }
    }
    return path.empty() ? root_ : path;
  }

 private:
  struct Frame {
    bool is_object;
    std::string key;
    std::size_t index;
    std::unordered_set<std::string> keys;
  };
  std::string root_;
  std::vector<Frame> frames_;
};

/// Returns the relevant part of the library's message: "line 3, column 5: syntax error ...".
std::string reason(std::string_view what) {
  for (const std::string_view skip : {"] ", "parse error at ", "parse error: "}) {
    if (const auto at = what.find(skip); at != std::string_view::npos && at < 50) {
      what.remove_prefix(at + skip.size());
    }
  }
  return fit(visible(what), 240);
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return fmt::format("the string \"{}\"",
                         fit(visible(value.get_ref<const std::string&>()), kMaxQuoted));
    case Json::value_t::array:
      return value.empty() ? "an empty array" : fmt::format("an array of {}", value.size());
    case Json::value_t::object:
      return "an object";
    default:
      return value.dump();
  }
}

std::string child_place(const std::string& place, std::size_t index) {
  return fmt::format("{}[{}]", place, index);
}

bool is_special_number(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text == "-inf" || text == "inf" || text == "nan";
}

}  // namespace

JsonDocument parse_json(std::string_view text, std::string_view place) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InvalidArgument(fmt::format("{}: expected a JSON object, got nothing", place));
  }
  PlaceTracker tracker(place);
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t event, Json& value) {
    return tracker(depth, event, value);
  };
  try {
    return JsonDocument(
        std::make_shared<const Json>(Json::parse(text.begin(), text.end(), callback)));
  } catch (const Json::parse_error& error) {
    throw InvalidArgument(
        fmt::format("{}: expected JSON in UTF-8; {}", tracker.place(), reason(error.what())));
  } catch (const Json::out_of_range& error) {
    throw InvalidArgument(fmt::format("{}: expected a number that fits into float64; {}",
                                      tracker.place(), reason(error.what())));
  }
}

bool JsonNode::is_null() const { return json_->is_null(); }
bool JsonNode::is_array() const { return json_->is_array(); }
bool JsonNode::is_object() const { return json_->is_object(); }
bool JsonNode::is_string() const { return json_->is_string(); }
bool JsonNode::is_boolean() const { return json_->is_boolean(); }
bool JsonNode::is_number() const { return json_->is_number(); }
bool JsonNode::is_integer() const { return json_->is_number_integer(); }

void JsonNode::fail(const std::string& message) const {
  throw InvalidArgument(place_ + ": " + message);
}

void JsonNode::expected(std::string_view expected) const {
  fail(fmt::format("expected {}, got {}", expected, describe(*json_)));
}

std::string JsonNode::string() const {
  if (!json_->is_string()) expected("a string");
  return json_->get<std::string>();
}

bool JsonNode::boolean() const {
  if (!json_->is_boolean()) expected("true or false");
  return json_->get<bool>();
}

double JsonNode::number() const {
  if (!json_->is_number()) expected("a number");
  return json_->get<double>();
}

std::int64_t JsonNode::integer(std::int64_t least, std::int64_t most) const {
  const auto wanted = [&] {
    return least == INT64_MIN && most == INT64_MAX
               ? std::string("a whole number")
               : fmt::format("a whole number from {} to {}", least, most);
  };
  if (!json_->is_number_integer()) expected(wanted());
  // The JSON library stores integers above the int64 maximum as unsigned.
  if (json_->is_number_unsigned() &&
      json_->get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    expected(wanted());
  }
  const auto value = json_->get<std::int64_t>();
  if (value < least || value > most) expected(wanted());
  return value;
}

std::vector<JsonNode> JsonNode::array(std::string_view wanted) const {
  if (!json_->is_array()) expected(wanted);
  std::vector<JsonNode> result;
  result.reserve(json_->size());
  for (const Json& item : *json_) result.emplace_back(item, child_place(place_, result.size()));
  return result;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  if (!json_->is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonNode>> result;
  for (const auto& [key, value] : json_->items()) {
    result.emplace_back(key, JsonNode(value, place_ + "." + fit(visible(key), kMaxQuoted)));
  }
  return result;
}

std::size_t JsonNode::choice(const std::vector<std::string>& choices) const {
  const std::string wanted = fmt::format("\"{}\"", fmt::join(choices, "\", \""));
  const std::string one_of = choices.size() > 1 ? "one of " : "";
  if (!json_->is_string()) expected(one_of + wanted);
  const auto& text = json_->get_ref<const std::string&>();
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) {
    fail(fmt::format("expected {}{}, got {}{}", one_of, wanted, describe(*json_),
                     did_you_mean(text, choices)));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

void JsonNode::require_object(const std::vector<std::string>& keys) const {
  if (!json_->is_object()) expected("an object");
  for (const auto& [key, value] : json_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail(fmt::format("unknown key \"{}\"{}; the keys here are: {}", fit(visible(key), kMaxQuoted),
                       did_you_mean(key, keys), fmt::join(keys, ", ")));
    }
  }
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  const auto found = json_->find(std::string(key));
  if (found == json_->end()) return std::nullopt;
  const std::string prefix = place_ == "scene" ? "" : place_ + ".";
  return JsonNode(*found, prefix + std::string(key));
}

Shape JsonNode::nested_shape(int least, int most, std::string_view noun) const {
  // The first element of each level determines the rank and the row lengths.
  Shape shape;
  const Json* level = json_;
  while (level->is_array() && shape.rank() < most) {
    shape.push_back(static_cast<std::int64_t>(level->size()));
    if (level->empty()) break;
    level = &level->front();
  }
  if (shape.rank() < least) {
    switch (least) {
      case 1:
        expected(fmt::format("an array of {}s", noun));
      case 2:
        expected(fmt::format("an array of rows of {}s", noun));
      default:
        expected(fmt::format("arrays of {}s, nested {} deep", noun, least));
    }
  }
  return shape;
}

template <class T, class Leaf>
Tensor JsonNode::nested(int least, int most, std::string_view noun, Leaf&& leaf) const {
  const Shape shape = nested_shape(least, most, noun);
  std::vector<T> values;
  const auto visit = [&](const auto& self, const Json& value, const std::string& place,
                         int depth) -> void {
    if (depth == shape.rank()) {
      leaf(JsonNode(value, place), values);
      return;
    }
    const auto wanted = shape[depth];
    if (!value.is_array() || static_cast<std::int64_t>(value.size()) != wanted) {
      const std::string_view what = depth + 1 == shape.rank() ? noun : "row";
      JsonNode(value, place)
          .expected(fmt::format("{} {}{}, as the first one here has", wanted, what,
                                wanted == 1 ? "" : "s"));
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      self(self, value[i], child_place(place, i), depth + 1);
    }
  };
  visit(visit, *json_, place_, 0);
  Tensor result(dtype_of<T>(), shape);
  std::copy(values.begin(), values.end(), result.span<T>().begin());
  return result;
}

Tensor JsonNode::numbers(int least, int most, bool special) const {
  return nested<double>(least, most, "number", [&](const JsonNode& node, auto& values) {
    if (special && is_special_number(*node.json_)) {
      const std::string text = node.string();
      values.push_back(text == "nan"
                           ? std::numeric_limits<double>::quiet_NaN()
                           : (text == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity());
      return;
    }
    if (!node.is_number()) {
      node.expected(special ? "a number, \"-inf\", \"inf\" or \"nan\"" : "a number");
    }
    values.push_back(node.number());
  });
}

Tensor JsonNode::whole_numbers(int least, int most) const {
  return nested<std::int64_t>(least, most, "whole number", [](const JsonNode& node, auto& values) {
    values.push_back(node.integer(INT64_MIN, INT64_MAX));
  });
}

Tensor JsonNode::booleans(int least, int most) const {
  return nested<bool>(least, most, "true or false",
                      [](const JsonNode& node, auto& values) { values.push_back(node.boolean()); });
}

std::vector<std::int64_t> JsonNode::integers(std::int64_t least, std::int64_t most) const {
  std::vector<std::int64_t> result;
  for (const JsonNode& item : array("an array of whole numbers")) {
    result.push_back(item.integer(least, most));
  }
  return result;
}

void at_place(const JsonNode& node, const std::function<void()>& check) {
  try {
    check();
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    const auto colon = message.find(": ");
    node.fail(colon == std::string::npos ? message : message.substr(colon + 2));
  }
}

}  // namespace fovea::scene
