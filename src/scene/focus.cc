// SPDX-License-Identifier: Apache-2.0
//
// Choosing the word whose story is told.

#include <charconv>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "core/nearest.h"
#include "core/text_width.h"
#include "scene/scene_parts.h"

namespace fovea::scene {
namespace {

constexpr std::size_t kMostListed = 24;  // words in a message

std::vector<std::string> all_words(const Scene& scene) {
  std::vector<std::string> words;
  for (const auto& item : scene.words.tokens) words.insert(words.end(), item.begin(), item.end());
  return words;
}

std::string list_words(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size() && i < kMostListed; ++i) {
    list += (i == 0 ? "" : ", ") + visible(words[i]);
  }
  if (words.size() > kMostListed) {
    list += fmt::format(", and {} more", words.size() - kMostListed);
  }
  return list;
}

std::string at_index(const Scene& scene, const Focus& focus) {
  return scene.batched ? fmt::format("@{}:{}", focus.item, focus.index)
                       : fmt::format("@{}", focus.index);
}

/// A whole number that fills `text`, or -1.
std::int64_t parse_index(std::string_view text) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

}  // namespace

Focus find_word(const Scene& scene, std::string_view word) {
  std::vector<Focus> places;
  for (std::size_t item = 0; item < scene.words.tokens.size(); ++item) {
    const auto& tokens = scene.words.tokens[item];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == word) {
        places.push_back({static_cast<std::int64_t>(item), static_cast<std::int64_t>(i)});
      }
    }
  }
  if (places.size() == 1) return places[0];
  if (places.empty()) {
    const auto words = all_words(scene);
    throw InvalidArgument(fmt::format("no word \"{}\" in the scene; its words are: {}{}",
                                      visible(word), list_words(words), did_you_mean(word, words)));
  }
  std::vector<std::string> indices;
  for (const Focus& place : places) indices.push_back(at_index(scene, place));
  throw InvalidArgument(
      fmt::format("the word \"{}\" occurs {} times; say which one by its index, counted from 0: {}",
                  visible(word), places.size(), list_words(indices)));
}

const std::string& focus_word(const Scene& scene) {
  return scene.words.tokens[static_cast<std::size_t>(scene.focus->item)]
                           [static_cast<std::size_t>(scene.focus->index)];
}

void set_focus(Scene& scene, std::string_view query) {
  if (!query.starts_with('@')) {
    scene.focus = find_word(scene, query);
    return;
  }
  std::string_view index = query.substr(1);
  Focus focus;
  const auto colon = index.find(':');
  if (colon != std::string_view::npos) {
    focus.item = parse_index(index.substr(0, colon));
    index.remove_prefix(colon + 1);
  }
  focus.index = parse_index(index);
  const auto items = static_cast<std::int64_t>(scene.words.tokens.size());
  if (focus.item < 0 || focus.item >= items || focus.index < 0 ||
      focus.index >= scene.words.length()) {
    const std::string last = scene.batched
                                 ? fmt::format("@{}:{}", items - 1, scene.words.length() - 1)
                                 : fmt::format("@{}", scene.words.length() - 1);
    throw InvalidArgument(fmt::format("query: expected an index from {} to {}, got \"{}\"",
                                      scene.batched ? "@0:0" : "@0", last, visible(query)));
  }
  scene.focus = focus;
}

}  // namespace fovea::scene
