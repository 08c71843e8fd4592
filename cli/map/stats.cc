// SPDX-License-Identifier: Apache-2.0
//
// Files of per-query statistics (stats.h).

#include "cli/map/stats.h"

#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/info.h"

#include "cli/shell/csv.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The statistics of one query.
struct RowTold {
  double entropy, effective_keys, maximum;
  std::int64_t maximum_key;
  double mean_distance, distance_variance, first_key;
};

RowTold told_of(const LensBuffers& statistics, std::int64_t row) {
  const Index at = {0, 0, row};
  const double entropy = statistics.entropy.value(at) + 0.0;  // no -0
  const double maximum = statistics.maximum.value(at);
  return {.entropy = entropy,
          // Without a visible key the entropy is 0, and its exponential would be 1.
          .effective_keys = maximum == 0.0 ? 0.0 : std::exp(entropy),
          .maximum = maximum,
          .maximum_key = statistics.maximum_key.at<std::int64_t>(at),
          .mean_distance = statistics.mean_distance.value(at),
          .distance_variance = statistics.distance_variance.value(at),
          .first_key = statistics.first_key.value(at)};
}

struct TopKey {
  std::int64_t key = -1;  // none
  double weight = 0.0;
};

TopKey top_of(const LensBuffers& statistics, std::int64_t row, std::int64_t i) {
  const Index at = {0, 0, row, i};
  return {statistics.top_keys.at<std::int64_t>(at), statistics.top_weights.value(at)};
}

/// Returns null for NaN and infinity, which JSON does not have.
Json number(double value) {
  if (!std::isfinite(value)) return {};
  return value;
}

/// Returns a key, or null if there is none.
Json key_number(std::int64_t key) { return key < 0 ? Json() : Json(key); }

}  // namespace

std::string stats_as_json(const MapRequest& request, const MapResult& result,
                          const MapWords& words) {
  const LensBuffers& statistics = result.statistics;
  Json rows = Json::array();
  for (std::int64_t i = 0; i < request.queries.size(); ++i) {
    const RowTold told = told_of(statistics, i);
    const std::int64_t query = request.queries.begin + i;
    Json row = {{"query", query}};
    if (!words.query_tokens.empty()) row["token"] = token_of(words.query_tokens, query);
    row["entropy"] = number(told.entropy);
    row["effective_keys"] = number(told.effective_keys);
    row["maximum"] = number(told.maximum);
    row["maximum_key"] = key_number(told.maximum_key);
    row["mean_distance"] = number(told.mean_distance);
    row["distance_variance"] = number(told.distance_variance);
    row["first_key"] = number(told.first_key);
    if (request.top > 0) row["top"] = Json::array();
    for (std::int64_t k = 0; k < request.top; ++k) {
      const TopKey top = top_of(statistics, i, k);
      if (top.key < 0) break;
      Json entry = {{"key", top.key}};
      if (!words.key_tokens.empty()) entry["token"] = token_of(words.key_tokens, top.key);
      entry["weight"] = number(top.weight);
      row["top"].push_back(std::move(entry));
    }
    rows.push_back(std::move(row));
  }
  const Json json = {{"version", build_info().version},
                     {"title", words.title},
                     {"batch", request.batch},
                     {"head", request.heads ? Json(pool_name(*request.heads)) : Json(request.head)},
                     {"rows", rows}};
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string stats_as_csv(const MapRequest& request, const MapResult& result,
                         const MapWords& words) {
  const LensBuffers& statistics = result.statistics;
  const bool named = !words.query_tokens.empty();
  std::string text = fmt::format(
      "query,{}entropy,effective_keys,maximum,maximum_key,mean_distance,distance_variance,"
      "first_key",
      named ? "token," : "");
  for (std::int64_t k = 1; k <= request.top; ++k) text += fmt::format(",key_{0},weight_{0}", k);
  text += "\n";
  const auto key_field = [](std::int64_t key) {
    return key < 0 ? std::string() : std::to_string(key);
  };
  // Nine digits round-trip any float32.
  const auto number_field = [](double value) { return fmt::format("{:.9g}", value); };
  for (std::int64_t i = 0; i < request.queries.size(); ++i) {
    const RowTold told = told_of(statistics, i);
    const std::int64_t query = request.queries.begin + i;
    text += std::to_string(query);
    if (named) text += "," + csv_text(token_of(words.query_tokens, query));
    for (const double value : {told.entropy, told.effective_keys, told.maximum}) {
      text += "," + number_field(value);
    }
    text += "," + key_field(told.maximum_key);
    for (const double value : {told.mean_distance, told.distance_variance, told.first_key}) {
      text += "," + number_field(value);
    }
    for (std::int64_t k = 0; k < request.top; ++k) {
      const TopKey top = top_of(statistics, i, k);
      text += "," + key_field(top.key) + "," + (top.key < 0 ? "" : number_field(top.weight));
    }
    text += "\n";
  }
  return text;
}

}  // namespace fovea::cli
