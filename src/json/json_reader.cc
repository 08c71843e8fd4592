// SPDX-License-Identifier: Apache-2.0
//
// A layer over the JSON library (json_reader.h) that adds the path of every value, readable error
// messages, and limits that reject oversized input before it costs time or memory.

#include "json/json_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"

#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxKeys = 256;  // per object; lookups are linear
constexpr int kMaxQuoted = 60;         // maximum width, in columns, of quoted text in a message

/// Returns the relevant part of the library's message: "line 3, column 5: syntax error ...".
std::string reason(std::string_view what) {
  for (const std::string_view skip : {"] ", "parse error at ", "parse error: "}) {
    if (const auto at = what.find(skip); at != std::string_view::npos && at < 50) {
      what.remove_prefix(at + skip.size());
    }
  }
  return fit(visible(what), 240);
}

/// Destroys the values within `value`, deepest first. Allocates no memory, unlike the library's
/// destructor, which ends the process if an allocation fails.
void empty(Json& value) {
  if (!value.is_structured()) return;
  for (Json& inner : value) empty(inner);
  value.clear();
}

/// Builds the value from the parser's events, knows the path of the current value, and rejects
/// oversized input before it costs time or memory. (The library's own parser with a callback takes
/// quadratic time for long arrays of objects.)
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view root) : root_(root) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder() override { empty(result_); }

  Json take() { return std::move(result_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Frame& frame = frames_.back();
    const bool known = frame.value->contains(value);
    frame.key = std::move(value);
    if (known) throw InvalidArgument(fmt::format("{}: this key occurs twice", place()));
    if (frame.value->size() == kMaxKeys) {
      throw InvalidArgument(
          fmt::format("{}: expected at most {} keys in an object, got more", place(), kMaxKeys));
    }
    return true;
  }

  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    const bool out_of_range = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    throw InvalidArgument(fmt::format(
        "{}: expected {}; {}", place(),
        out_of_range ? "a number that fits into float64" : "JSON in UTF-8", reason(error.what())));
  }

 private:
  /// An object or array that is not complete.
  struct Frame {
    Json* value;
    std::string key;  // of an object
  };

  /// Adds a value where the parser is, and returns it. It stays in place until its parent gets
  /// another value.
  Json* insert(Json value) {
    if (frames_.empty()) return &(result_ = std::move(value));
    Frame& frame = frames_.back();
    if (frame.value->is_array()) return &frame.value->emplace_back(std::move(value));
    return &((*frame.value)[frame.key] = std::move(value));
  }

  bool add(Json value) {
    insert(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (frames_.size() >= kMaxDepth) {
      throw InvalidArgument(
          fmt::format("{}: expected at most {} levels of nesting, got more", place(), kMaxDepth));
    }
    Json* const opened = insert(std::move(value));
    frames_.push_back({opened, {}});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  std::string place() const {
    std::string path;
    for (std::size_t level = 0; level < frames_.size(); ++level) {
      const Frame& frame = frames_[level];
      if (frame.value->is_array()) {
        // The current value is the next one, unless it is already there and open.
        const bool inside = level + 1 < frames_.size();
        path += fmt::format("[{}]", frame.value->size() - (inside ? 1 : 0));
      } else if (!frame.key.empty()) {
        path += (path.empty() ? "" : ".") + fit(visible(frame.key), kMaxQuoted);
      }
    }
    return path.empty() ? root_ : path;
  }

  std::string root_;
  Json result_;
  std::vector<Frame> frames_;
};

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
  // The JSON library takes a zero byte for the end of the text.
  if (const auto at = text.find('\0'); at != std::string_view::npos) {
    throw InvalidArgument(
        fmt::format("{}: expected JSON in UTF-8, got a zero as byte {}", place, at + 1));
  }
  Builder builder(place);
  Json::sax_parse(text.begin(), text.end(), &builder);
  const auto destroy = [](Json* document) {
    empty(*document);
    delete document;
  };
  return JsonDocument(std::shared_ptr<const Json>(new Json(builder.take()), destroy));
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
    // Python's explain() writes infinity and NaN as these strings, which its users never see.
    if (is_special_number(*node.json_)) node.fail("expected a finite number, got " + node.string());
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
    if (colon == std::string::npos) node.fail(message);
    const auto key = node.is_object() ? node.find(message.substr(0, colon)) : std::nullopt;
    key.value_or(node).fail(message.substr(colon + 2));
  }
}

}  // namespace fovea::scene
