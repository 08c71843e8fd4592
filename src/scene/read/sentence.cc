// SPDX-License-Identifier: Apache-2.0
//
// Creates a scene from a sentence. The scene is written as JSON and parsed like any other scene, so
// the JSON offered on the page describes exactly the scene that was computed.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "text/text_width.h"

namespace fovea::scene {

Scene scene_from_sentence(std::string_view text, const SentenceOptions& options) {
  constexpr int kTitleColumns = 60;
  if (!is_utf8(text)) {
    throw InvalidArgument(
        fmt::format("text: expected UTF-8, got \"{}\"", fit(visible(text), kTitleColumns)));
  }
  const auto words = split_words(text);
  if (words.empty()) throw InvalidArgument("text: expected at least one word, got none");

  nlohmann::ordered_json json;
  json["title"] = fit(fmt::format("{}", fmt::join(words, " ")), kTitleColumns);
  json["text"] = std::string(text);
  json["seed"] = options.seed;
  json["embeddings"] = {{"draw", "rand"}, {"dim", options.dim}, {"by", "word"}};
  if (options.random_projections) json["projections"] = {{"draw", "randn"}};
  if (options.heads != 1) json["heads"] = options.heads;
  if (options.causal) {
    json["mask"] = "causal";
    json["focus"] = -1;  // the only word that sees all others
  }
  json["notes"]["embeddings"] =
      "Naive embeddings: random numbers from 0 to 1, the same wherever a word occurs. They know "
      "nothing about what the word means: the steps are real, the meaning is not.";
  return parse_scene(json.dump(2));
}

}  // namespace fovea::scene
