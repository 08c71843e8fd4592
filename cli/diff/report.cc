// SPDX-License-Identifier: Apache-2.0
//
// The heads that differ (report.h).

#include "cli/diff/report.h"

#include <algorithm>
#include <cmath>

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

std::string nats(double value) { return std::isnan(value) ? "-" : fmt::format("{:.4g}", value); }

/// Returns the names of both recordings, and the model of each if they differ.
std::string recordings_line(const Comparison& comparison) {
  const auto words = [](const Recording& recording) {
    std::string text = visible(recording.path());
    if (!recording.model().empty()) text += fmt::format(" ({})", visible(recording.model()));
    return text;
  };
  return fmt::format("{} and {}", words(comparison.first), words(comparison.second));
}

}  // namespace

std::string diff_text(const DiffReport& report, std::size_t top) {
  const Comparison& comparison = report.comparison;
  std::string text = fmt::format("Difference of {}\n", recordings_line(comparison));
  std::size_t equal = 0;
  bool kinds = false, batches = false, tokens = false;
  for (const HeadDifference& head : report.heads) {
    equal += head.largest == 0.0 ? 1U : 0U;
    const RecordedAttention& attention = comparison.attentions[head.attention];
    kinds = kinds || attention.kind != comparison.attentions.front().kind;
    batches = batches || attention.shape().batch > 1;
    tokens = tokens || !head.token.empty();
  }
  text += fmt::format("{} of {} are equal; divergences in nats, from 0 to ln 2 = 0.693\n", equal,
                      counted(std::ssize(report.heads), "head"));
  if (!comparison.left_out.empty()) {
    text += fmt::format("not compared, because only the second has them: {}\n",
                        visible(fmt::format("{}", fmt::join(comparison.left_out, ", "))));
  }
  text += "\n";
  if (equal == report.heads.size()) {
    return text + fmt::format("time   {}, {}\n", time_text(comparison.seconds),
                              counted(comparison.threads, "thread"));
  }
  Cells headings = {"layer"};
  std::string sides = ">";
  const auto add_heading = [&](const char* name, char side) {
    headings.emplace_back(name);
    sides += side;
  };
  if (kinds) add_heading("kind", '<');
  if (batches) add_heading("batch", '>');
  add_heading("head", '>');
  add_heading("mean", '>');
  add_heading("largest", '>');
  add_heading("query", '>');
  if (tokens) add_heading("token", '<');
  std::vector<Cells> rows = {headings};
  const std::size_t count = std::min(top, report.heads.size());
  for (std::size_t i = 0; i < count; ++i) {
    const HeadDifference& head = report.heads[i];
    const RecordedAttention& attention = comparison.attentions[head.attention];
    Cells row = {std::to_string(attention.layer)};
    if (kinds) row.emplace_back(attention_kind_name(attention.kind));
    if (batches) row.push_back(std::to_string(head.batch));
    row.push_back(std::to_string(head.head));
    row.push_back(nats(head.mean));
    row.push_back(nats(head.largest));
    row.push_back(head.query >= 0 ? std::to_string(head.query) : "-");
    constexpr int kTokenColumns = 24;
    if (tokens) row.push_back(fit(visible(head.token), kTokenColumns));
    rows.push_back(std::move(row));
  }
  text += text_table(rows, sides);
  if (count < report.heads.size())
    text += fmt::format("and {} more\n", report.heads.size() - count);
  return text + fmt::format("\ntime   {}, {}\n", time_text(comparison.seconds),
                            counted(comparison.threads, "thread"));
}

std::string diff_json(const DiffReport& report) {
  const Comparison& comparison = report.comparison;
  const auto or_null = [](double value) { return std::isnan(value) ? Json() : Json(value); };
  Json heads = Json::array();
  for (const HeadDifference& head : report.heads) {
    const RecordedAttention& attention = comparison.attentions[head.attention];
    heads.push_back({{"attention", attention.name},
                     {"layer", attention.layer},
                     {"kind", attention_kind_name(attention.kind)},
                     {"batch", head.batch},
                     {"head", head.head},
                     {"mean", or_null(head.mean)},
                     {"largest", or_null(head.largest)},
                     {"query", head.query >= 0 ? Json(head.query) : Json()},
                     {"token", head.token.empty() ? Json() : Json(head.token)}});
  }
  const Json json = {{"version", build_info().version},
                     {"first", comparison.first.path()},
                     {"second", comparison.second.path()},
                     {"threads", comparison.threads},
                     {"seconds", comparison.seconds},
                     {"only_in_second", comparison.left_out},
                     {"heads", heads}};
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string diff_csv(const DiffReport& report) {
  std::string text = "attention,layer,kind,batch,head,mean,largest,query,token\n";
  for (const HeadDifference& head : report.heads) {
    const RecordedAttention& attention = report.comparison.attentions[head.attention];
    text += fmt::format("{},{},{},{},{},{:.9g},{:.9g},{},{}\n", csv_text(attention.name),
                        attention.layer, attention_kind_name(attention.kind), head.batch, head.head,
                        head.mean, head.largest, head.query >= 0 ? std::to_string(head.query) : "",
                        csv_text(head.token));
  }
  return text;
}

}  // namespace fovea::cli
