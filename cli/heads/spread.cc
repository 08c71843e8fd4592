// SPDX-License-Identifier: Apache-2.0
//
// Heads over many texts (spread.h).

#include "cli/heads/spread.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/info.h"

#include "cli/problem/recorded.h"
#include "cli/shell/csv.h"
#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "core/fail.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A head of the model, in the order of the table.
using HeadKey = std::tuple<AttentionKind, std::int64_t, std::string, std::int64_t>;

/// The value at a fraction of sorted numbers, interpolated between neighbours.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

template <class Value>
Quartiles quartiles_of(const std::vector<HeadOfSource>& samples, const Value& value) {
  std::vector<double> numbers;
  for (const HeadOfSource& sample : samples) {
    if (const double number = value(sample); !std::isnan(number)) numbers.push_back(number);
  }
  if (numbers.empty()) return {};
  std::ranges::sort(numbers);
  return {.median = quantile(numbers, 0.5),
          .lower = quantile(numbers, 0.25),
          .upper = quantile(numbers, 0.75)};
}

HeadSpread spread_of(const HeadKey& key, const std::vector<HeadOfSource>& samples) {
  HeadSpread spread;
  std::tie(spread.kind, spread.layer, spread.attention, spread.head) = key;
  std::map<std::string, std::int64_t> names;
  for (const HeadOfSource& sample : samples) {
    if (std::isnan(sample[kEntropy])) continue;
    ++spread.samples;
    ++names[std::string(sample.name())];
  }
  for (const auto& [name, count] : names) {
    if (count > spread.named) std::tie(spread.name, spread.named) = std::pair(name, count);
  }
  for (std::size_t i = 0; i < spread.numbers.size(); ++i) {
    spread.numbers[i] =
        quartiles_of(samples, [i](const HeadOfSource& sample) { return sample.numbers[i]; });
  }
  spread.induction =
      quartiles_of(samples, [](const HeadOfSource& sample) { return sample.induction; });
  spread.duplicate =
      quartiles_of(samples, [](const HeadOfSource& sample) { return sample.duplicate; });
  return spread;
}

/// A column of the table.
struct SpreadColumn {
  std::string_view header;
  int digits = 2;
  int width = 8;
  Quartiles (*value)(const HeadSpread& head) = nullptr;
};

template <HeadPlace place>
Quartiles number_of(const HeadSpread& head) {
  return head.numbers[place];
}

// In the order in which they are shown.
constexpr SpreadColumn kSpreadColumns[] = {
    {"entropy", 2, 9, number_of<kEntropy>},
    {"distance", 1, 11, number_of<kMeanDistance>},
    {"largest", 2, 8, number_of<kMaximum>},
    {"induction", 2, 9, [](const HeadSpread& head) { return head.induction; }},
    {"duplicate", 2, 9, [](const HeadSpread& head) { return head.duplicate; }},
    {"first", 2, 8, number_of<kFirstKey>},
    {"prev", 2, 8, number_of<kPreviousKey>},
    {"own", 2, 8, number_of<kOwnKey>},
    {"next", 2, 8, number_of<kNextKey>},
    {"block", 2, 8, number_of<kBlockDiagonal>}};
// The order in which they are chosen if not all fit.
constexpr std::string_view kChoice[] = {"first", "prev",      "entropy",  "own",     "block",
                                        "next",  "induction", "distance", "largest", "duplicate"};

std::string spread_cell(const Quartiles& value, int digits) {
  if (std::isnan(value.median)) return "-";
  std::string spread = fmt::format("{:.{}f}", value.spread(), digits);
  if (spread.starts_with("0.")) spread.erase(0, 1);
  const double median = std::abs(value.median) < 0.5 * std::pow(10.0, -digits) ? 0.0 : value.median;
  return fmt::format("{:.{}f}±{}", median, digits, spread);
}

std::string name_words(const HeadSpread& head) {
  if (head.name.empty()) return "-";
  return fmt::format("{} {}/{}", head.name, head.named, head.samples);
}

/// Returns null for NaN, which JSON does not have.
Json quartiles_json(const Quartiles& value) {
  const auto or_null = [](double number) { return std::isnan(number) ? Json() : Json(number); };
  return {{"median", or_null(value.median)},
          {"lower", or_null(value.lower)},
          {"upper", or_null(value.upper)}};
}

}  // namespace

HeadOfSource HeadSpread::medians() const {
  HeadOfSource result;
  for (std::size_t i = 0; i < numbers.size(); ++i) result.numbers[i] = numbers[i].median;
  result.induction = induction.median;
  result.duplicate = duplicate.median;
  return result;
}

SpreadReport compute_spread(const std::vector<std::string>& recordings,
                            const RecordedArguments& selection, std::int64_t blocks, int threads,
                            Progress& progress) {
  SpreadReport report;
  report.recordings = recordings;
  std::map<HeadKey, std::vector<HeadOfSource>> samples;
  std::map<std::string, Shape> shapes;  // of the queries of attentions without a selection of heads
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    const Recording recording = Recording::open(recordings[i]);
    if (i == 0) {
      report.model = recording.model();
    } else if (recording.model() != report.model) {
      fail("{}: expected a recording of the model \"{}\" as {} is, got \"{}\"", recordings[i],
           report.model, recordings[0], recording.model());
    }
    std::vector<HeadsSource> sources;
    for (const RecordedAttention& attention : select_recorded(recording, selection)) {
      if (attention.heads.empty()) {  // two models may have the same name
        const Shape& own = attention.query->shape();
        const Shape& known = shapes.try_emplace(attention.name, own).first->second;
        if (known[1] != own[1] || known[3] != own[3]) {
          fail(
              "{}: {}: expected {} heads of dimension {}, as in a recording before it, got {} of "
              "{}",
              recordings[i], visible(attention.name), known[1], known[3], own[1], own[3]);
        }
      }
      sources.push_back({recorded_inputs(recording, attention), recorded_rules(attention)});
    }
    const HeadsResult result = compute_heads(sources, blocks, threads, progress);
    for (const HeadOfSource& head : result.heads) {
      const RecordedAttention& attention = *sources[head.source].recorded();
      samples[{attention.kind, attention.layer, attention.name, head.head}].push_back(head);
    }
    report.blocks = blocks;
    report.threads = result.threads;
    report.seconds += result.seconds;
  }
  for (const auto& [key, of_head] : samples) report.heads.push_back(spread_of(key, of_head));
  report.all_heads = static_cast<std::int64_t>(report.heads.size());
  return report;
}

void sort_spread(std::vector<HeadSpread>& heads, std::string_view order) {
  if (order == "head") return;
  std::stable_sort(heads.begin(), heads.end(), [&](const HeadSpread& a, const HeadSpread& b) {
    const double first = order_value(a.medians(), order), second = order_value(b.medians(), order);
    return std::isnan(second) ? !std::isnan(first) : first > second;
  });
}

std::string spread_text(const SpreadReport& report, int width) {
  std::string text = "Heads";
  if (!report.model.empty()) text += " of " + visible(report.model);
  text += fmt::format(" over {}: median over texts, ± half the distance of the quartiles\n",
                      counted(static_cast<std::int64_t>(report.recordings.size()), "recording"));
  text += fmt::format("sorted {}\n\n",
                      report.order == "head" ? "as they come" : "by the median of " + report.order);
  bool has_kinds = false;
  for (const HeadSpread& head : report.heads) {
    has_kinds = has_kinds || head.kind != report.heads.front().kind;
  }
  constexpr int kFixed = 5 + 2 + 4 + 2 + 5 + 2 + 18, kKindWidth = 9;
  int left = width - kFixed - (has_kinds ? kKindWidth : 0);
  std::vector<std::string_view> chosen;
  const auto choose = [&](std::string_view header) {
    const auto column = std::ranges::find(kSpreadColumns, header, &SpreadColumn::header);
    const bool is_new = std::ranges::find(chosen, header) == chosen.end();
    if (column == std::end(kSpreadColumns) || !is_new || column->width + 2 > left) return;
    left -= column->width + 2;
    chosen.push_back(header);
  };
  choose(report.order);
  for (const std::string_view header : kChoice) choose(header);
  Cells headings = {"layer"};
  if (has_kinds) headings.emplace_back("kind");
  headings.insert(headings.end(), {"head", "texts"});
  for (const SpreadColumn& column : kSpreadColumns) {
    if (std::ranges::find(chosen, column.header) != chosen.end()) {
      headings.emplace_back(column.header);
    }
  }
  headings.emplace_back("name");
  std::vector<Cells> rows = {headings};
  for (const HeadSpread& head : report.heads) {
    Cells row = {std::to_string(head.layer)};
    if (has_kinds) row.emplace_back(attention_kind_name(head.kind));
    row.push_back(std::to_string(head.head));
    row.push_back(std::to_string(head.samples));
    for (const SpreadColumn& column : kSpreadColumns) {
      if (std::ranges::find(chosen, column.header) == chosen.end()) continue;
      row.push_back(spread_cell(column.value(head), column.digits));
    }
    row.push_back(name_words(head));
    rows.push_back(std::move(row));
  }
  text += text_table(rows, std::string(headings.size() - 1, '>') + "<");
  const std::int64_t more = report.all_heads - static_cast<std::int64_t>(report.heads.size());
  if (more > 0) text += fmt::format("and {} more\n", more);
  return text + fmt::format("\ntime   {}, {}\n", time_text(report.seconds),
                            counted(report.threads, "thread"));
}

std::string spread_json(const SpreadReport& report) {
  Json heads = Json::array();
  for (const HeadSpread& spread : report.heads) {
    Json head = {{"attention", spread.attention},
                 {"layer", spread.layer},
                 {"kind", attention_kind_name(spread.kind)},
                 {"head", spread.head},
                 {"count", spread.samples}};
    for (std::size_t i = 0; i < kHeadNumbers.size(); ++i) {
      head[std::string(kHeadNumbers[i].name)] = quartiles_json(spread.numbers[i]);
    }
    head["induction"] = quartiles_json(spread.induction);
    head["duplicate"] = quartiles_json(spread.duplicate);
    head["name"] = spread.name.empty() ? Json() : Json(spread.name);
    head["name_count"] = spread.named;
    heads.push_back(std::move(head));
  }
  const Json json = {{"version", build_info().version},
                     {"recordings", report.recordings},
                     {"model", report.model},
                     {"blocks", report.blocks},
                     {"threads", report.threads},
                     {"seconds", report.seconds},
                     {"heads", heads}};
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string spread_csv(const SpreadReport& report) {
  std::string text = "attention,layer,kind,head,count";
  const auto add_headings = [&](std::string_view name) {
    text += fmt::format(",{0},{0}_lower,{0}_upper", name);
  };
  for (const HeadNumber& number : kHeadNumbers) add_headings(number.name);
  add_headings("induction");
  add_headings("duplicate");
  text += ",name,name_count\n";
  for (const HeadSpread& head : report.heads) {
    text += fmt::format("{},{},{},{},{}", csv_text(head.attention), head.layer,
                        attention_kind_name(head.kind), head.head, head.samples);
    const auto add = [&](const Quartiles& value) {
      text += fmt::format(",{:.9g},{:.9g},{:.9g}", value.median, value.lower, value.upper);
    };
    for (const Quartiles& number : head.numbers) add(number);
    add(head.induction);
    add(head.duplicate);
    text += fmt::format(",{},{}\n", head.name, head.named);
  }
  return text;
}

}  // namespace fovea::cli
