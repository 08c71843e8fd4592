// SPDX-License-Identifier: Apache-2.0
//
// Random arrays with the same values as NumPy's legacy generator (scene_parser.h).

#include <fmt/format.h>

#include "scene/read/scene_parser.h"

namespace fovea::scene {

RandomState& Drawer::stream(const JsonNode& drawing) {
  if (!stream_) {
    if (!seed_) drawing.fail("expected a \"seed\" in the scene for what is drawn, got none");
    stream_.emplace(static_cast<std::uint64_t>(*seed_));
  }
  return *stream_;
}

const std::vector<std::string>& Drawer::keys() {
  static const std::vector<std::string> keys = {"draw", "low", "high", "dim"};
  return keys;
}

Tensor Drawer::draw(const JsonNode& node, const Shape& shape, std::string* drawn) {
  const auto kind = node.find("draw");
  if (!kind) node.fail("expected a key \"draw\", got none");
  const std::size_t choice = kind->choice({"rand", "randn", "randint"});
  std::string call = choice == 0 ? "rand" : "randn";
  for (const char* bound : {"low", "high"}) {
    const auto given = node.find(bound);
    if (given && choice != 2) given->fail("only randint has bounds; remove it");
  }
  if (element_count(shape) > kMaxNumbers) {
    node.fail(fmt::format("expected at most {} numbers to draw, got {} of them", kMaxNumbers,
                          to_string(shape)));
  }
  constexpr std::int64_t kBound = std::int64_t{1}
                                  << 53;  // integers up to this are exact in float64
  Tensor result;
  if (choice == 2) {
    const auto low_node = node.find("low");
    const auto high_node = node.find("high");
    if (!high_node) node.fail("expected a key \"high\" for randint, got none");
    const std::int64_t low = low_node ? low_node->integer(-kBound, kBound) : 0;
    const std::int64_t high = high_node->integer(-kBound, kBound);
    if (low >= high) {
      high_node->fail(fmt::format("expected more than low = {}, got {}", low, high));
    }
    call = fmt::format("randint({}, {})", low, high);
    const Tensor whole = stream(node).randint(low, high, shape);
    result = convert(whole, DType::kFloat64);
  } else {
    result = choice == 0 ? stream(node).rand(shape) : stream(node).randn(shape);
  }
  if (drawn != nullptr) *drawn = fmt::format("{}, seed {}", call, *seed_);
  return result;
}

std::optional<std::int64_t> parse_dim(const JsonNode& node, const char* key) {
  const auto given = node.find(key);
  return given ? std::optional(given->integer(1, kMaxDim)) : std::nullopt;
}

Tensor Drawer::matrix(const JsonNode& node, std::int64_t rows, const std::string& rows_are,
                      std::int64_t default_columns, std::string* drawn) {
  if (node.is_object()) {
    node.require_object(keys());
    return draw(node, {rows, parse_dim(node, "dim").value_or(default_columns)}, drawn);
  }
  Tensor given = node.numbers(2, 2);
  if (given.extent(0) != rows) {
    node.fail(fmt::format("expected {} row{}, {}, got {}", rows, rows == 1 ? "" : "s", rows_are,
                          to_string(given.shape())));
  }
  if (given.extent(1) > kMaxDim) {
    node.fail(fmt::format("expected at most {} columns, got {}", kMaxDim, given.extent(1)));
  }
  return given;
}

Tensor Drawer::vector(const JsonNode& node, std::int64_t default_length) {
  if (!node.is_object()) return node.numbers(1, 1);
  node.require_object(keys());
  return draw(node, {parse_dim(node, "dim").value_or(default_length)});
}

}  // namespace fovea::scene
