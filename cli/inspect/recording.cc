// SPDX-License-Identifier: Apache-2.0
//
// The description of a recording (recording.h). Attentions that differ only in their layer share a
// line of the table.

#include "cli/inspect/recording.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/inspect/report.h"
#include "cli/problem/recorded.h"
#include "cli/problem/rules.h"
#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t bytes_of(const TensorView& tensor) {
  return tensor.size() * static_cast<std::int64_t>(dtype_size(tensor.dtype()));
}

std::int64_t attention_bytes(const RecordedAttention& attention) {
  std::int64_t bytes = 0;
  for (const TensorRef* const tensor :
       {&attention.query, &attention.key, &attention.lse, &attention.value}) {
    if (tensor->defined()) bytes += bytes_of(*tensor);
  }
  return bytes;
}

std::int64_t file_bytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

/// Returns the recorded heads: "9", or "0 to 3 of the model".
std::string heads_words(const RecordedAttention& attention) {
  if (attention.heads.empty()) return std::to_string(attention.query->extent(1));
  const std::set<std::int64_t> heads(attention.heads.begin(), attention.heads.end());
  return ranges_words(heads) + " of the model";
}

/// Returns the table row of an attention, without the cells for its layers and size.
Cells attention_cells(const RecordedAttention& attention) {
  const ProblemShape shape = attention.shape();
  const AttendRules rules = recorded_rules(attention);
  const std::int64_t head_dim = attention.query->extent(3);
  return {std::string(attention_kind_name(attention.kind)),
          std::to_string(shape.batch),
          heads_words(attention),
          std::to_string(shape.kv_heads),
          std::to_string(shape.q_len),
          std::to_string(shape.kv_len),
          std::to_string(head_dim),
          attention.value.defined() ? std::to_string(attention.value->extent(3)) : "-",
          std::string(dtype_name(attention.query->dtype())),
          visible(fit(rules.mask_words, 48)),
          rules.score_words(head_dim)};
}

/// Returns the first tokens of a list on one line.
std::string first_tokens(const TokenList& tokens) {
  constexpr int kWidth = 60;
  constexpr std::size_t kMaxShownTokens = 24;
  std::string text;
  for (std::size_t i = 0; i < tokens.texts.size() && i < kMaxShownTokens; ++i) {
    text += fmt::format("{}\"{}\"", i > 0 ? " " : "", visible(tokens.texts[i]));
  }
  return fit(text, kWidth);
}

Json attention_json(const RecordedAttention& attention) {
  const ProblemShape shape = attention.shape();
  const AttendRules rules = recorded_rules(attention);
  const std::int64_t head_dim = attention.query->extent(3);
  Json heads = Json::array();
  for (std::int64_t head = 0; head < shape.q_heads; ++head) {
    heads.push_back(attention.model_head(head));
  }
  return {{"name", attention.name},
          {"layer", attention.layer},
          {"kind", attention_kind_name(attention.kind)},
          {"batch", shape.batch},
          {"q_heads", shape.q_heads},
          {"kv_heads", shape.kv_heads},
          {"heads", heads},
          {"q_len", shape.q_len},
          {"kv_len", shape.kv_len},
          {"head_dim", head_dim},
          {"value_dim", attention.value.defined() ? Json(attention.value->extent(3)) : Json()},
          {"dtype", dtype_name(attention.query->dtype())},
          {"mask", rules.mask_words},
          {"scores", rules.score_words(head_dim)},
          {"query_tokens", attention.query_tokens},
          {"key_tokens", attention.key_tokens},
          {"bytes", attention_bytes(attention)}};
}

}  // namespace

std::string recording_text(const Recording& recording) {
  std::string text = fmt::format("{}: recording, {}, {}\n", visible(recording.path()),
                                 counted(std::ssize(recording.attentions()), "attention"),
                                 size_text(file_bytes(recording.path())));
  const auto add_line = [&](const char* title, const std::string& words) {
    if (!words.empty()) text += fmt::format("{:<10} {}\n", title, words);
  };
  add_line("model", visible(recording.model()));
  add_line("source", visible(recording.source()));
  add_line("written by", visible(recording.written_by()));
  for (const TokenList& tokens : recording.tokens()) {
    std::string words =
        fmt::format("{}: {}", visible(tokens.name), counted(tokens.size(), "token"));
    if (tokens.grid_rows > 0) {
      words += fmt::format(", {} x {} patches", tokens.grid_rows, tokens.grid_columns);
    }
    if (tokens.ids.empty() && tokens.size() > 0) words += " without ids";
    add_line("tokens", words + "  " + first_tokens(tokens));
  }
  if (recording.attentions().empty()) return text;
  /// Attentions with equal cells.
  struct Group {
    Cells cells;
    std::set<std::int64_t> layers;
    std::int64_t bytes = 0;
  };
  std::vector<Group> groups;
  for (const RecordedAttention& attention : recording.attentions()) {
    Cells cells = attention_cells(attention);
    Group* group = nullptr;
    for (Group& each : groups) {
      if (each.cells == cells && !each.layers.contains(attention.layer)) group = &each;
    }
    if (group == nullptr) group = &groups.emplace_back(Group{std::move(cells), {}, 0});
    group->layers.insert(attention.layer);
    group->bytes += attention_bytes(attention);
  }
  std::vector<Cells> rows = {{"layers", "size", "kind", "batch", "heads", "key heads", "queries",
                              "keys", "dim", "value dim", "type", "mask", "scores"}};
  for (const Group& group : groups) {
    Cells row = {fit(ranges_words(group.layers), 24), size_text(group.bytes)};
    row.insert(row.end(), group.cells.begin(), group.cells.end());
    rows.push_back(std::move(row));
  }
  return text + "\n" + text_table(rows, "<><>>>>>>><<<");
}

std::string recording_json(const Recording& recording) {
  Json attentions = Json::array(), tokens = Json::array();
  for (const RecordedAttention& attention : recording.attentions()) {
    attentions.push_back(attention_json(attention));
  }
  for (const TokenList& list : recording.tokens()) {
    Json entry = {{"name", list.name}, {"count", list.size()}, {"ids", !list.ids.empty()}};
    if (list.grid_rows > 0) entry["grid"] = {list.grid_rows, list.grid_columns};
    tokens.push_back(std::move(entry));
  }
  const Json json = {{"recording", recording.path()},
                     {"model", recording.model()},
                     {"source", recording.source()},
                     {"written_by", recording.written_by()},
                     {"bytes", file_bytes(recording.path())},
                     {"tokens", tokens},
                     {"attentions", attentions}};
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace fovea::cli
