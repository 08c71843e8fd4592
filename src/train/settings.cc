// SPDX-License-Identifier: Apache-2.0
//
// The settings of a training run as JSON (settings.h).

#include "train/settings.h"

#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "json/json_reader.h"

namespace fovea::train {
namespace {

constexpr std::int64_t kMaxSetting = std::int64_t{1} << 40;

/// Calls visit(key, member) for every numeric setting.
template <class Settings, class Visitor>
void for_each_number(Settings& settings, const Visitor& visit) {
  auto& trainer = settings.trainer;
  visit("steps", trainer.steps);
  visit("batch", trainer.batch);
  visit("learning_rate", trainer.learning_rate);
  visit("warmup", trainer.warmup);
  visit("weight_decay", trainer.weight_decay);
  visit("clip", trainer.clip);
  visit("label_smoothing", trainer.label_smoothing);
  visit("validate_every", trainer.validate_every);
  visit("patience", trainer.patience);
  visit("until", trainer.until);
  visit("threads", settings.threads);
}

}  // namespace

std::string to_json(const RunSettings& settings) {
  nlohmann::ordered_json json = {{"data", settings.data}, {"validation", settings.validation}};
  for_each_number(settings, [&](const char* key, const auto& number) { json[key] = number; });
  return json.dump(1) + "\n";
}

RunSettings parse_run_settings(std::string_view json) {
  const scene::JsonDocument document = scene::parse_json(json, "run");
  const scene::JsonNode root = document.root("run");
  const auto at = [&](const char* key) {
    const std::optional<scene::JsonNode> found = root.find(key);
    if (!found) root.fail(fmt::format("expected \"{}\", got none", key));
    return *found;
  };
  RunSettings settings;
  settings.data = at("data").string();
  settings.validation = at("validation").string();
  for_each_number(settings, [&](const char* key, auto& number) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(number)>, double>) {
      number = at(key).number();
    } else {
      number = at(key).integer(0, kMaxSetting);
    }
  });
  return settings;
}

}  // namespace fovea::train
