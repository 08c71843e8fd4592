// SPDX-License-Identifier: Apache-2.0
//
// Looks up tokens by word or index, and sets the focus of a scene (scene_parts.h).

#include <charconv>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "core/fail.h"
#include "scene/read/scene_parts.h"
#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::size_t kMaxListed = 24;  // maximum number of words in a message

/// Words of each batch item.
using Tokens = std::vector<std::vector<std::string>>;

std::string list_words(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size() && i < kMaxListed; ++i) {
    list += (i == 0 ? "" : ", ") + visible(words[i]);
  }
  if (words.size() > kMaxListed) {
    list += fmt::format(", and {} more", words.size() - kMaxListed);
  }
  return list;
}

std::string at_index(bool batched, std::int64_t item, std::int64_t index) {
  return batched ? fmt::format("@{}:{}", item, index) : fmt::format("@{}", index);
}

/// Parses all of `text` as an index from 0 to `count` - 1, or from -`count` to -1 backwards.
/// Returns -1 if it is not one.
std::int64_t parse_index(std::string_view text, std::int64_t count) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return -1;
  if (value < -count || value >= count) return -1;
  return value < 0 ? value + count : value;
}

/// How the index of a word is written: as "@INDEX", or as a number in a scene.
enum class IndexForm : std::uint8_t { kAt, kNumber };

std::string index_text(bool batched, const Focus& place, IndexForm form) {
  if (form == IndexForm::kAt) return at_index(batched, place.item, place.index);
  return batched ? fmt::format("[{}, {}]", place.item, place.index)
                 : fmt::format("{}", place.index);
}

/// Returns " (did you mean the index @1?)" if `name` is an index without its "@".
std::string did_you_mean_index(const Tokens& tokens, bool batched, std::string_view name,
                               IndexForm form) {
  const std::int64_t index = parse_index(name, static_cast<std::int64_t>(tokens[0].size()));
  if (index < 0) return "";
  return fmt::format(" (did you mean the index {}?)",
                     form == IndexForm::kNumber ? index_text(false, {0, index}, form) + ", a number"
                                                : at_index(batched, 0, index));
}

/// Returns the unique position of a word. `where` names the searched sequence in messages.
Focus place_of_word(const Tokens& tokens, bool batched, std::string_view word,
                    std::string_view where, IndexForm form = IndexForm::kAt) {
  std::vector<Focus> places;
  for (std::size_t item = 0; item < tokens.size(); ++item) {
    for (std::size_t i = 0; i < tokens[item].size(); ++i) {
      if (tokens[item][i] == word) {
        places.push_back({static_cast<std::int64_t>(item), static_cast<std::int64_t>(i)});
      }
    }
  }
  if (places.size() == 1) return places[0];
  if (places.empty()) {
    std::vector<std::string> words;
    for (const auto& item : tokens) words.insert(words.end(), item.begin(), item.end());
    const std::string hint = did_you_mean_index(tokens, batched, word, form);
    fail("no word \"{}\" in the {}; its words are: {}{}", visible(word), where, list_words(words),
         hint.empty() ? did_you_mean(word, words) : hint);
  }
  std::vector<std::string> indices;
  for (const Focus& place : places) indices.push_back(index_text(batched, place, form));
  fail("the word \"{}\" occurs {} times; say which one by its index, counted from 0: {}",
       visible(word), places.size(), list_words(indices));
}

/// Resolves "@INDEX", or "@ITEM:INDEX" in a batch.
Focus place_of_index(const Tokens& tokens, bool batched, std::string_view name) {
  std::string_view index = name.substr(1);
  const auto items = static_cast<std::int64_t>(tokens.size());
  const auto length = static_cast<std::int64_t>(tokens.front().size());
  Focus place;
  const auto colon = index.find(':');
  if (colon != std::string_view::npos) {
    place.item = parse_index(index.substr(0, colon), items);
    index.remove_prefix(colon + 1);
  }
  place.index = parse_index(index, length);
  if (place.item < 0 || place.index < 0) {
    fail("expected an index from {} to {}, or {} for the last, got \"{}\"", batched ? "@0:0" : "@0",
         at_index(batched, items - 1, length - 1), at_index(batched, batched ? -1 : 0, -1),
         visible(name));
  }
  return place;
}

}  // namespace

Focus find_word(const Scene& scene, std::string_view word) {
  return place_of_word(scene.words.tokens, scene.batched, word, "scene", IndexForm::kNumber);
}

Focus find_query(const Scene& scene, std::string_view name) {
  return name.starts_with('@') ? place_of_index(scene.words.tokens, scene.batched, name)
                               : place_of_word(scene.words.tokens, scene.batched, name, "scene");
}

std::int64_t find_key(const Scene& scene, std::int64_t item, std::string_view name) {
  const Sequence& source = scene.source ? *scene.source : scene.words;
  const Tokens tokens = {source.tokens[static_cast<std::size_t>(item)]};
  return name.starts_with('@')
             ? place_of_index(tokens, false, name).index
             : place_of_word(tokens, false, name, scene.source ? "source" : "scene").index;
}

const std::string& focus_word(const Scene& scene) {
  return scene.words.tokens[static_cast<std::size_t>(scene.focus->item)]
                           [static_cast<std::size_t>(scene.focus->index)];
}

void set_focus(Scene& scene, std::string_view query) {
  if (scene.words.tokens.empty()) fail("scene: expected at least one token in words, got none");
  try {
    const Focus focus = find_query(scene, query);
    if (scene.focus != focus) {
      std::erase_if(scene.questions,
                    [](const Question& question) { return question.step.starts_with("focus."); });
    }
    scene.focus = focus;
  } catch (const InvalidArgument& error) {
    if (!query.starts_with('@')) throw;
    fail("query: {}", error.what());
  }
}

}  // namespace fovea::scene
