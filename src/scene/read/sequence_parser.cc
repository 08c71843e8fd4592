// SPDX-License-Identifier: Apache-2.0
//
// Parses what a scene starts from: words, and their embeddings or their queries, keys and values
// (scene_parser.h).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scene/read/scene_parser.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::int64_t kMaxBatch = 64;

std::vector<std::string> parse_token_list(const JsonNode& node, Sequence& sequence) {
  std::vector<std::string> tokens;
  for (const JsonNode& item : node.array("an array of tokens")) {
    const bool first = sequence.tokens.empty() && tokens.empty();
    if (first) sequence.numeric = item.is_integer();
    if (sequence.numeric) {
      if (!item.is_integer()) item.expected("a whole number, as the first token is");
      tokens.push_back(fmt::format("{}", item.integer(INT64_MIN, INT64_MAX)));
    } else {
      if (!item.is_string()) item.expected(first ? "a string or a whole number" : "a string");
      if (item.string().empty()) item.fail("expected a word, got an empty string");
      tokens.push_back(item.string());
    }
  }
  if (tokens.empty()) node.fail("expected at least one token, got none");
  return tokens;
}

void parse_tokens(const JsonNode& node, Sequence& sequence, bool& batched) {
  if (node.is_string()) {
    node.expected("an array of tokens (a sentence is the key \"text\")");
  }
  const auto items = node.array("an array of tokens");
  if (items.empty()) node.fail("expected at least one token, got none");
  if (!items[0].is_array()) {
    sequence.tokens.push_back(parse_token_list(node, sequence));
    return;
  }
  batched = true;
  if (static_cast<std::int64_t>(items.size()) > kMaxBatch) {
    node.fail(fmt::format("expected at most {} batch items, got {}", kMaxBatch, items.size()));
  }
  for (const JsonNode& item : items) {
    sequence.tokens.push_back(parse_token_list(item, sequence));
    const std::size_t length = sequence.tokens.front().size();
    if (sequence.tokens.back().size() != length) {
      item.fail(
          fmt::format("expected {} tokens, as the first item has, got {}; fill up with tokens "
                      "of your own and hide them with mask.key_lengths",
                      length, sequence.tokens.back().size()));
    }
  }
}

/// Returns the columns of a drawing with one row per word.
std::int64_t parse_columns(const JsonNode& node) {
  const auto dim = parse_dim(node, "dim");
  if (!dim) node.fail("expected a key \"dim\", the numbers per word, got none");
  return *dim;
}

/// Returns one row of numbers per word, [batch, length, columns]. `rows_are` is the description of
/// a row in messages.
Tensor parse_rows(const JsonNode& node, const Sequence& sequence, std::string_view rows_are,
                  bool& batched) {
  const auto batch = static_cast<std::int64_t>(sequence.tokens.size());
  const std::int64_t length = sequence.length();
  Tensor given = node.numbers(2, 3);
  if (given.rank() == 3 && batch == 1) batched = true;
  const bool rank_fits = given.rank() == (batched ? 3 : 2);
  const std::int64_t rows = given.extent(given.rank() - 2);
  if (!rank_fits || (batched && given.extent(0) != batch) || rows != length) {
    node.fail(fmt::format("expected {} rows, one per {}{}, got {}", length, rows_are,
                          batched ? fmt::format(", in each of {} batch items", batch) : "",
                          to_string(given.shape())));
  }
  const std::int64_t dim = given.extent(given.rank() - 1);
  if (dim < 1 || dim > kMaxDim) {
    node.fail(fmt::format("expected rows of 1 to {} numbers, got {}", kMaxDim, dim));
  }
  return std::move(given).reshaped({batch, length, dim});
}

}  // namespace

void parse_words(const JsonNode& node, Drawn array, Drawer& drawer, Sequence& sequence,
                 bool& batched) {
  const auto tokens = node.find("tokens");
  const auto text = node.find("text");
  if (tokens && text) text->fail("expected either \"tokens\" or \"text\", got both");
  if (!tokens && !text) node.fail("expected \"tokens\" or \"text\", got neither");
  if (text) {
    sequence.tokens = {split_words(text->string())};
    if (sequence.tokens[0].empty()) text->fail("expected at least one word, got none");
  } else if (tokens->is_object()) {
    drawer.draw_tokens(*tokens, array, sequence);
  } else {
    parse_tokens(*tokens, sequence, batched);
  }
  if (sequence.length() > kMaxTokens) {
    (tokens ? *tokens : *text)
        .fail(fmt::format("expected at most {} tokens, got {}", kMaxTokens, sequence.length()));
  }
}

void parse_embeddings(const JsonNode& node, Drawn array, Drawer& drawer, Sequence& sequence,
                      bool& batched) {
  if (!node.is_object()) {
    sequence.embeddings = parse_rows(node, sequence, "token", batched);
    return;
  }
  std::vector<std::string> keys = Drawer::keys();
  keys.emplace_back("by");
  node.require_object(keys);
  const std::int64_t dim = parse_columns(node);
  const auto by = node.find("by");
  if (by && by->choice({"position", "word"}) == 1) {
    drawer.draw_by_word(node, dim, sequence);
    return;
  }
  const auto batch = static_cast<std::int64_t>(sequence.tokens.size());
  sequence.embeddings = drawer.draw(node, {batch, sequence.length(), dim}, array, &sequence.drawn);
}

DirectInputs parse_direct(const JsonNode& root, Drawer& drawer, Scene& scene) {
  DirectInputs direct;
  const auto batch = static_cast<std::int64_t>(scene.words.tokens.size());
  const auto part = [&](const char* name, Drawn array, const Sequence& sequence,
                        std::string_view rows_are, std::string* drawn) {
    const auto node = root.find(name);
    if (!node) {
      root.fail(
          fmt::format("expected \"query\", \"key\" and \"value\" together, got no \"{}\"", name));
    }
    if (!node->is_object()) return parse_rows(*node, sequence, rows_are, scene.batched);
    node->require_object(Drawer::keys());
    return drawer.draw(*node, {batch, sequence.length(), parse_columns(*node)}, array, drawn);
  };
  const Sequence& source = scene.source ? *scene.source : scene.words;
  const std::string_view rows =
      scene.source ? "source token" : "token (other words for keys go under \"source\")";
  direct.query = part("query", Drawn::kQuery, scene.words, "token", &direct.query_drawn);
  direct.key = part("key", Drawn::kKey, source, rows, &direct.key_drawn);
  direct.value = part("value", Drawn::kValue, source, rows, &direct.value_drawn);
  return direct;
}

}  // namespace fovea::scene
