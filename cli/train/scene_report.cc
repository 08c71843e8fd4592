// SPDX-License-Identifier: Apache-2.0
//
// The weights before and after, the losses and the wishes (scene_report.h).

#include "cli/train/scene_report.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/terminal.h"
#include "cli/shell/units.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

using scene::Wish;
using train::LearnedWish;
using train::LearnEnd;

constexpr int kMaxWord = 24;  // columns

const std::vector<std::string>& queries_of(const scene::Scene& scene, std::int64_t item) {
  return scene.words.tokens[static_cast<std::size_t>(item)];
}
const std::vector<std::string>& keys_of(const scene::Scene& scene, std::int64_t item) {
  const scene::Sequence& source = scene.source ? *scene.source : scene.words;
  return source.tokens[static_cast<std::size_t>(item)];
}

/// Returns a word in quotes, with its index if it occurs more than once.
std::string named(const std::vector<std::string>& words, std::int64_t index) {
  const std::string& word = words[static_cast<std::size_t>(index)];
  const bool twice = std::ranges::count(words, word) > 1;
  return fmt::format("\"{}\"{}", fit(visible(word), kMaxWord),
                     twice ? fmt::format(" @{}", index) : "");
}

/// Returns the weight in the head furthest from the wish.
double furthest(const Wish& wish, const std::vector<double>& weights) {
  return wish.weight == 0.0 ? std::ranges::max(weights) : std::ranges::min(weights);
}

/// Returns the losses at steps 0, 1, 2, 5, 10, 20, 50 and so on, and at the last step.
std::string loss_text(const LearnReport& report) {
  const std::vector<double>& losses = report.learned.losses;
  const auto last = static_cast<std::int64_t>(losses.size()) - 1;
  std::string text = "    step  loss\n";
  const auto add = [&](std::int64_t step) {
    text += fmt::format("  {:>6}  {:.6f}\n", step, losses[static_cast<std::size_t>(step)]);
  };
  add(0);
  for (std::int64_t power = 1; power < last; power *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if (digit * power < last) add(digit * power);
    }
  }
  if (last > 0) add(last);
  return text;
}

/// Returns a weight of at least 0, as the tables of the weights show it.
std::string weight_text(double weight) {
  return weight > 0.0 && weight < 0.00005 ? "<0.0001" : fmt::format("{:.4f}", weight);
}

std::string wishes_text(const LearnReport& report) {
  const scene::Scene& scene = report.scene;
  std::vector<std::string> names;
  int width = 0;
  for (const Wish& wish : scene.learn) {
    names.push_back(fmt::format("{}{} -> {}",
                                scene.batched ? fmt::format("item {}: ", wish.item) : "",
                                named(queries_of(scene, wish.item), wish.query),
                                named(keys_of(scene, wish.item), wish.key)));
    width = std::max(width, display_width(names.back()));
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Wish& wish = scene.learn[i];
    const LearnedWish& became = report.learned.wishes[i];
    text += fmt::format("   {}  {} -> {}  wanted {}  {}\n", pad_right(names[i], width),
                        weight_text(furthest(wish, became.before)),
                        weight_text(furthest(wish, became.after)), wish.weight,
                        became.met ? "met" : "not met");
  }
  return text;
}

std::string end_text(const LearnReport& report) {
  const std::int64_t steps = report.learned.steps;
  switch (report.learned.end) {
    case LearnEnd::kReached:
      return steps == 0 ? "Every wish is met already."
                        : fmt::format("Every wish is met after {}.", counted(steps, "step"));
    case LearnEnd::kStopped:
      return fmt::format("Interrupted after {} of {} steps.", steps, report.most_steps);
    default:
      return fmt::format(
          "Not every wish is met after {}; more --steps or another --learning-rate or --seed may "
          "help.",
          counted(steps, "step"));
  }
}

}  // namespace

std::string learn_text(const LearnReport& report) {
  const scene::TextOptions options{.color = choose_color(ColorWish::kAuto, false),
                                   .width = choose_width(false)};
  const scene::Projections& weights = *report.learned.scene.projections;
  std::string text;
  const auto add_heading = [&](std::string_view heading) {
    text += fmt::format("\n{}\n", heading);
  };
  text += fmt::format("{}\n", fit(visible(report.scene.title), options.width));
  text +=
      fmt::format("{} query and {} key weights learn{}\n", weights.query.size(), weights.key.size(),
                  report.scene.projections ? "" : "; they begin as the identity");
  add_heading("Before");
  text += weights_to_text(trace_scene(report.scene), options);
  add_heading("Learning");
  text += loss_text(report);
  add_heading("After");
  text += weights_to_text(trace_scene(report.learned.scene), options);
  const std::int64_t heads = report.scene.heads;
  add_heading(heads > 1 ? fmt::format("Wishes, each by the furthest of {} heads", heads)
                        : std::string("Wishes"));
  text += wishes_text(report);
  for (const std::string& line : wrap(end_text(report), options.width)) text += line + "\n";
  if (!report.output.empty()) text += fmt::format("Written to {}\n", visible(report.output));
  return text;
}

std::string learn_json(const LearnReport& report) {
  const train::Learned& learned = report.learned;
  const scene::Scene& scene = report.scene;
  Json json;
  json["title"] = scene.title;
  json["end"] = learned.end == LearnEnd::kReached   ? "reached"
                : learned.end == LearnEnd::kStopped ? "interrupted"
                                                    : "out of steps";
  json["steps"] = learned.steps;
  json["losses"] = learned.losses;
  json["wishes"] = Json::array();
  for (std::size_t i = 0; i < scene.learn.size(); ++i) {
    const Wish& wish = scene.learn[i];
    Json one;
    if (scene.batched) one["item"] = wish.item;
    one["query"] = queries_of(scene, wish.item)[static_cast<std::size_t>(wish.query)];
    one["query_index"] = wish.query;
    one["key"] = keys_of(scene, wish.item)[static_cast<std::size_t>(wish.key)];
    one["key_index"] = wish.key;
    one["wanted"] = wish.weight;
    one["before"] = learned.wishes[i].before;
    one["after"] = learned.wishes[i].after;
    one["met"] = learned.wishes[i].met;
    json["wishes"].push_back(std::move(one));
  }
  json["output"] = report.output.empty() ? Json() : Json(report.output);
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace fovea::cli
