// SPDX-License-Identifier: Apache-2.0
//
// Random arrays with the same values as NumPy's legacy generator (scene_parser.h).

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "scene/read/scene_parser.h"
#include "text/word_crc.h"

namespace fovea::scene {
namespace {

/// The names of arrays in "order": as the steps are called, or as formulas call the weights.
constexpr std::pair<const char*, Drawn> kArrayNames[] = {
    {"tokens", Drawn::kTokens},
    {"embeddings", Drawn::kEmbeddings},
    {"source", Drawn::kSource},
    {"W_Q", Drawn::kQueryWeights},
    {"W_K", Drawn::kKeyWeights},
    {"W_V", Drawn::kValueWeights},
    {"query_weights", Drawn::kQueryWeights},
    {"key_weights", Drawn::kKeyWeights},
    {"value_weights", Drawn::kValueWeights},
    {"query", Drawn::kQuery},
    {"key", Drawn::kKey},
    {"value", Drawn::kValue},
};

/// The bounds of a drawing of integers.
struct Bounds {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

Bounds parse_bounds(const JsonNode& node) {
  // Integers up to this bound are exact in float64.
  constexpr std::int64_t kBound = std::int64_t{1} << 53;
  const auto low = node.find("low");
  const auto high = node.find("high");
  if (!high) node.fail("expected a key \"high\" for randint, got none");
  const Bounds bounds{low ? low->integer(-kBound, kBound) : 0, high->integer(-kBound, kBound)};
  if (bounds.low >= bounds.high) {
    high->fail(fmt::format("expected more than low = {}, got {}", bounds.low, bounds.high));
  }
  return bounds;
}

/// The distribution of a drawing.
struct Distribution {
  enum class Kind : std::uint8_t { kRand, kRandn, kRandint };
  Kind kind = Kind::kRand;
  Bounds bounds;

  explicit Distribution(const JsonNode& node) {
    const auto given = node.find("draw");
    if (!given) node.fail("expected a key \"draw\", got none");
    kind = static_cast<Kind>(given->choice({"rand", "randn", "randint"}));
    if (kind == Kind::kRandint) {
      bounds = parse_bounds(node);
      return;
    }
    for (const char* bound : {"low", "high"}) {
      if (const auto extra = node.find(bound)) extra->fail("only randint has bounds; remove it");
    }
  }

  std::string text() const {
    if (kind == Kind::kRandint) return fmt::format("randint({}, {})", bounds.low, bounds.high);
    return kind == Kind::kRand ? "rand" : "randn";
  }

  void fill(RandomState& stream, std::span<double> numbers) const {
    for (double& number : numbers) {
      number = kind == Kind::kRand ? stream.rand()
               : kind == Kind::kRandn
                   ? stream.randn()
                   : static_cast<double>(stream.randint(bounds.low, bounds.high));
    }
  }
};

void limit_size(const JsonNode& node, const Shape& shape) {
  if (element_count(shape) > kMaxNumbers) {
    node.fail(fmt::format("expected at most {} numbers to draw, got {} of them", kMaxNumbers,
                          to_string(shape)));
  }
}

}  // namespace

Drawer::Drawer(const JsonNode& scene) : order_(scene.find("order")) {
  if (const auto seed = scene.find("seed")) seed_ = seed->integer(0, 0xFFFFFFFFLL);
}

std::uint64_t Drawer::seed(const JsonNode& drawing) const {
  if (!seed_) drawing.fail("expected a \"seed\" in the scene for what is drawn, got none");
  return static_cast<std::uint64_t>(*seed_);
}

const std::vector<std::string>& Drawer::keys() {
  static const std::vector<std::string> keys = {"draw", "low", "high", "dim"};
  return keys;
}

Tensor Drawer::draw(const JsonNode& node, const Shape& shape, Drawn array, std::string* drawn) {
  const Distribution distribution(node);
  limit_size(node, shape);
  const std::uint64_t number = seed(node);
  Tensor result(DType::kFloat64, shape);
  draws_.push_back({array, [distribution, numbers = result.span<double>()](RandomState& stream) {
                      distribution.fill(stream, numbers);
                    }});
  if (drawn != nullptr) *drawn = fmt::format("{}, seed {}", distribution.text(), number);
  return result;
}

void Drawer::draw_by_word(const JsonNode& node, std::int64_t dim, Sequence& sequence) {
  const Distribution distribution(node);
  const Shape shape{static_cast<std::int64_t>(sequence.tokens.size()), sequence.length(), dim};
  limit_size(node, shape);
  const std::uint64_t number = seed(node);
  sequence.embeddings = Tensor(DType::kFloat64, shape);
  sequence.drawn = fmt::format("{}, seed {} and the word", distribution.text(), number);
  by_word_.emplace_back([distribution, number, dim, &sequence] {
    std::span<double> numbers = sequence.embeddings.span<double>();
    for (const auto& item : sequence.tokens) {
      for (const std::string& word : item) {
        RandomState stream((number + word_crc(word)) & 0xFFFFFFFFU);
        distribution.fill(stream, numbers.first(static_cast<std::size_t>(dim)));
        numbers = numbers.subspan(static_cast<std::size_t>(dim));
      }
    }
  });
}

void Drawer::draw_tokens(const JsonNode& node, Drawn array, Sequence& sequence) {
  node.require_object({"draw", "low", "high", "count"});
  const auto kind = node.find("draw");
  if (!kind) node.fail("expected a key \"draw\", got none");
  kind->choice({"randint"});
  const Bounds bounds = parse_bounds(node);
  const auto count = node.find("count");
  if (!count) node.fail("expected a key \"count\", the number of tokens, got none");
  const auto length = static_cast<std::size_t>(count->integer(1, kMaxTokens));
  seed(node);
  sequence.numeric = true;
  sequence.tokens.assign(1, std::vector<std::string>(length));
  draws_.push_back({array, [bounds, &sequence](RandomState& stream) {
                      for (std::string& token : sequence.tokens.front()) {
                        token = fmt::format("{}", stream.randint(bounds.low, bounds.high));
                      }
                    }});
}

void Drawer::sort() {
  if (!order_) return;
  std::vector<std::string> names;
  for (const auto& [name, array] : kArrayNames) names.emplace_back(name);
  std::vector<Drawn> listed;
  for (const JsonNode& node : order_->array("an array of names of arrays")) {
    const auto& [name, array] = kArrayNames[node.choice(names)];
    const Drawn wanted = array;
    if (std::ranges::find(listed, wanted) != listed.end()) {
      node.fail(fmt::format("expected each array once, got \"{}\" again", name));
    }
    if (std::ranges::find(draws_, wanted, &Draw::array) == draws_.end()) {
      node.fail(fmt::format(
          "expected an array that is drawn from the scene's stream, got \"{}\", which is not",
          name));
    }
    listed.push_back(wanted);
  }
  if (listed.empty()) order_->fail("expected at least one array, got none");
  // The listed arrays take each other's places.
  std::vector<Drawn> places = listed;
  std::ranges::sort(places);
  const auto place = [&](const Draw& draw) {
    const auto found = std::ranges::find(listed, draw.array);
    return found == listed.end() ? draw.array
                                 : places[static_cast<std::size_t>(found - listed.begin())];
  };
  std::ranges::stable_sort(draws_, {}, place);
}

void Drawer::fill() {
  std::ranges::stable_sort(draws_, {}, &Draw::array);
  sort();
  if (!draws_.empty()) {
    RandomState stream(static_cast<std::uint64_t>(*seed_));
    for (const Draw& draw : draws_) draw.fill(stream);
  }
  for (const auto& draw : by_word_) draw();
  draws_.clear();
  by_word_.clear();
}

std::optional<std::int64_t> parse_dim(const JsonNode& node, const char* key) {
  const auto given = node.find(key);
  return given ? std::optional(given->integer(1, kMaxDim)) : std::nullopt;
}

Tensor Drawer::matrix(const JsonNode& node, std::int64_t rows, const std::string& rows_are,
                      std::int64_t default_columns, Drawn array, std::string* drawn) {
  if (node.is_object()) {
    node.require_object(keys());
    return draw(node, {rows, parse_dim(node, "dim").value_or(default_columns)}, array, drawn);
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
  return draw(node, {parse_dim(node, "dim").value_or(default_length)}, Drawn::kScore);
}

}  // namespace fovea::scene
