// SPDX-License-Identifier: Apache-2.0
//
// The result of a rollout (report.h).

#include "cli/rollout/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/info.h"

#include "cli/shell/csv.h"
#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Returns "token 7 \"cat\"".
std::string start_words(const RolloutReport& report) {
  std::string text = fmt::format("token {}", report.request.query);
  if (!report.tokens.empty()) {
    text += fmt::format(" \"{}\"", visible(token_of(report.tokens, report.request.query)));
  }
  return text;
}

std::string layers_line(const RolloutReport& report) {
  return fmt::format("{}, residual {}", counted(std::ssize(report.layers), "layer"),
                     report.request.residual);
}

}  // namespace

std::string rollout_text(const RolloutReport& report, std::int64_t top) {
  std::string text =
      fmt::format("Rollout of {} in {}\n", start_words(report), visible(report.recording.path()));
  text += layers_line(report) + "\n\n";
  std::vector<std::int64_t> order(static_cast<std::size_t>(report.shares.extent(1)));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto share = [&](std::int64_t token) { return report.shares.at<double>({0, token}); };
  const auto has_nan = [&](std::int64_t token) { return std::isnan(share(token)); };
  const auto unknown = std::erase_if(order, has_nan);
  std::ranges::stable_sort(order,
                           [&](std::int64_t a, std::int64_t b) { return share(a) > share(b); });
  const auto with_share =
      std::ranges::count_if(order, [&](std::int64_t token) { return share(token) > 0.0; });
  const std::int64_t count = std::min<std::int64_t>(top, with_share);
  std::vector<Cells> rows = {{"token", "", "share", ""}};
  double shown = 0.0;
  const double largest = order.empty() ? 0.0 : share(order.front());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t token = order[static_cast<std::size_t>(i)];
    constexpr int kTokenColumns = 24, kBarColumns = 24;
    std::string bar;
    const double part = largest > 0.0 ? share(token) / largest : 0.0;
    for (int k = 0; k < static_cast<int>(std::lround(part * kBarColumns)); ++k) bar += "█";
    rows.push_back({std::to_string(token),
                    fit(visible(token_of(report.tokens, token)), kTokenColumns),
                    fmt::format("{:.4f}", share(token)), bar});
    shown += share(token);
  }
  text += text_table(rows, "><><");
  double all = 0.0;
  for (const std::int64_t token : order) all += share(token);
  if (count < with_share) {
    text += fmt::format("and {} more with {:.4f} together\n", with_share - count,
                        std::max(all - shown, 0.0));
  }
  if (unknown > 0) {
    text += fmt::format("and {} with nan: a score of a layer is nan or inf\n",
                        counted(static_cast<std::int64_t>(unknown), "token"));
  } else if (all < 0.9995) {
    const bool sinks = std::ranges::any_of(report.layers, [](const RecordedAttention* layer) {
      return !layer->options.score.sinks.empty();
    });
    text += fmt::format("{}queries that see no key take {:.4f}\n", sinks ? "sinks and " : "",
                        1.0 - all);
  }
  return text + fmt::format("\ntime   {}, {}\n", time_text(report.seconds),
                            counted(report.threads, "thread"));
}

std::string rollout_json(const RolloutReport& report) {
  Json layers = Json::array();
  for (std::size_t l = 0; l < report.layers.size(); ++l) {
    const auto count = static_cast<std::size_t>(report.shares.extent(1));
    const auto row = report.shares.span<double>().subspan(l * count, count);
    layers.push_back({{"name", report.layers[l]->name},
                      {"layer", report.layers[l]->layer},
                      {"shares", std::vector<double>(row.begin(), row.end())}});
  }
  const Json json = {{"version", build_info().version},
                     {"recording", report.recording.path()},
                     {"batch", report.request.batch},
                     {"query", report.request.query},
                     {"residual", report.request.residual},
                     {"tokens", report.tokens.empty() ? Json() : Json(report.tokens)},
                     {"threads", report.threads},
                     {"seconds", report.seconds},
                     {"layers", layers}};
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string rollout_csv(const RolloutReport& report) {
  std::string text = "layer,token,text,share\n";
  for (std::size_t l = 0; l < report.layers.size(); ++l) {
    for (std::int64_t token = 0; token < report.shares.extent(1); ++token) {
      text += fmt::format("{},{},{},{:.9g}\n", report.layers[l]->layer, token,
                          csv_text(token_of(report.tokens, token)),
                          report.shares.at<double>({static_cast<std::int64_t>(l), token}));
    }
  }
  return text;
}

MapCells rollout_map(const RolloutReport& report) {
  const Shape shape = report.shares.shape();
  MapCells map = {.queries = {0, shape[0]},
                  .keys = {0, shape[1]},
                  .pool = Pool::kSum,
                  .cells = convert(report.shares, DType::kFloat32),
                  .pairs = Tensor(DType::kInt64, shape)};
  // Draw as masked what the token cannot depend on.
  for_each_index(shape, [&](const Index& at) {
    map.pairs.at<std::int64_t>(at) = report.shares.at<double>(at) == 0.0 ? 0 : 1;
  });
  return map;
}

MapWords rollout_words(const RolloutReport& report) {
  MapWords words;
  words.title =
      fmt::format("Rollout of {} in {}", start_words(report), visible(report.recording.path()));
  words.lines.push_back(layers_line(report) +
                        "; each row is the share of each token as an input of the layer");
  for (const RecordedAttention* const layer : report.layers) {
    words.query_tokens.push_back(std::to_string(layer->layer));
  }
  words.key_tokens = report.tokens;
  words.down = "layer";
  words.across = "token";
  words.value = "share";
  return words;
}

}  // namespace fovea::cli
