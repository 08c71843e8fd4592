// SPDX-License-Identifier: Apache-2.0
//
// Answers as JSON (answers.h).

#include "view/api/answers.h"

#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "view/http/http.h"

namespace fovea::view {
namespace {

std::string_view state_name(PassProgress::State state) {
  switch (state) {
    case PassProgress::State::kRunning:
      return "running";
    case PassProgress::State::kPaused:
      return "paused";
    case PassProgress::State::kDone:
      return "done";
    case PassProgress::State::kIdle:
      break;
  }
  return "idle";
}

std::string numbers_json(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "" : ",") + json_number(number);
  return "[" + text + "]";
}

/// Returns a token in quotes, or null.
std::string token_json(const TokenTexts& tokens, std::int64_t position) {
  return tokens ? json_text((*tokens)[static_cast<std::size_t>(position)]) : "null";
}

std::string top_json(const std::vector<KeyWeight>& top, const char* name,
                     const TokenTexts& tokens) {
  std::string text;
  for (const KeyWeight& each : top) {
    text += fmt::format("{}{{\"{}\":{},\"weight\":{},\"token\":{}}}", text.empty() ? "" : ",", name,
                        each.position, json_number(each.weight), token_json(tokens, each.position));
  }
  return "[" + text + "]";
}

}  // namespace

std::string pass_json(const PassProgress& pass) {
  return fmt::format("{{\"state\":\"{}\",\"done\":{},\"total\":{},\"seconds_left\":{}}}",
                     state_name(pass.state), pass.done, pass.total,
                     pass.seconds_left ? json_number(*pass.seconds_left) : "null");
}

std::string status_json(const HeadStatus& status, const Layer& layer, std::string_view head) {
  return fmt::format(
      "{{\"head\":{},\"queries\":{},\"keys\":{},\"levels\":{},\"base_level\":{},\"mean_levels\":{},"
      "\"tile_side\":{},\"row_block\":{},\"lse_known\":{},\"pass\":{},\"blocks\":\"{}\","
      "\"largest\":{},\"smallest\":{}}}",
      json_text(head), layer.queries(), layer.keys(), status.levels, status.base_level,
      status.mean_levels, kTileSide, status.row_block, status.lse_known, pass_json(status.pass),
      status.blocks, numbers_json(status.largest), numbers_json(status.smallest));
}

std::string cell_json(const CellAnswer& cell, const Layer& layer, std::int64_t query,
                      std::int64_t key) {
  return fmt::format(
      "{{\"query\":{},\"key\":{},\"score\":{},\"weight\":{},\"lse\":{},\"hidden\":{},"
      "\"query_token\":{},\"key_token\":{}}}",
      query, key, json_number(cell.score), json_number(cell.weight), json_number(cell.lse),
      cell.hidden, token_json(layer.query_tokens, query), token_json(layer.key_tokens, key));
}

std::string row_json(const RowAnswer& row, const Layer& layer, std::int64_t query) {
  return fmt::format(
      "{{\"query\":{},\"token\":{},\"lse\":{},\"visible\":{},\"entropy\":{},\"maximum\":{},"
      "\"maximum_key\":{},\"mean_distance\":{},\"first_key\":{},\"top\":{},\"powers\":[{}]}}",
      query, token_json(layer.query_tokens, query), json_number(row.lse), row.visible,
      json_number(row.entropy), json_number(row.maximum), row.maximum_key,
      json_number(row.mean_distance), json_number(row.first_key),
      top_json(row.top, "key", layer.key_tokens), fmt::join(row.powers, ","));
}

std::string column_json(const ColumnAnswer& column, const Layer& layer, std::int64_t key) {
  return fmt::format("{{\"key\":{},\"token\":{},\"sum\":{},\"largest\":{},\"top\":{}}}", key,
                     token_json(layer.key_tokens, key), json_number(column.sum),
                     json_number(column.largest),
                     top_json(column.top, "query", layer.query_tokens));
}

std::string heads_json(const std::vector<HeadNumbers>& heads, const Layer& layer) {
  std::string names, entries;
  for (const std::string& name : Explorer::number_names()) {
    names += (names.empty() ? "" : ",") + json_text(name);
  }
  for (const HeadNumbers& head : heads) {
    entries +=
        fmt::format("{}{{\"head\":{},\"name\":{},\"numbers\":{}}}", entries.empty() ? "" : ",",
                    head.head, json_text(head.name), numbers_json(head.numbers));
  }
  return fmt::format("{{\"layer\":{},\"names\":[{}],\"heads\":[{}]}}", json_text(layer.label),
                     names, entries);
}

std::string counters_json(const Counters& counters, std::int64_t connections) {
  return fmt::format(
      "{{\"tiles\":{{\"computed\":{},\"reused\":{},\"cancelled\":{}}},\"blocks\":{},"
      "\"connections\":{},\"bytes\":{},\"waiting\":{}}}",
      counters.computed, counters.reused, counters.cancelled, counters.blocks, connections,
      counters.bytes, counters.waiting);
}

}  // namespace fovea::view
