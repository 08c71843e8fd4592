// SPDX-License-Identifier: Apache-2.0
//
// Head statistics as a table, JSON or CSV (report.h).

#include "cli/heads/report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
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

constexpr int kGap = 2;
constexpr int kLongestName = 14;          // "previous token"
constexpr int kLongestNameOfTokens = 15;  // "duplicate token"
constexpr int kShareDigits = 4;           // "0.52"
constexpr int kMinBar = 3;
constexpr int kMaxBar = 8;

/// Returns a bar for a share, in eighths of a character; 1 is `width` characters.
std::string bar(double share, int width) {
  constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double eighths = std::isnan(share) ? 0.0 : std::clamp(share, 0.0, 1.0) * 8.0 * width;
  const auto whole = static_cast<int>(std::lround(eighths));
  std::string text;
  for (int i = 0; i < whole / 8; ++i) text += "█";
  return text + std::string(kEighths[whole % 8]);
}

/// A column with a bar.
struct ShareColumn {
  std::string_view header;
  HeadPlace place;

  int width() const { return std::max(display_width(header), kShareDigits); }
};
constexpr ShareColumn kShares[] = {{"first", kFirstKey},
                                   {"prev", kPreviousKey},
                                   {"own", kOwnKey},
                                   {"next", kNextKey},
                                   {"block", kBlockDiagonal}};

/// The optional columns of a table.
struct Columns {
  int layer = 0, kind = 0;  // widths; 0: no column
  int name = kLongestName;
  bool batch = false, entropy = false, even = false, distance = false, largest = false;
  bool induction = false, duplicate = false;
  int bar = 0;  // width of the bar after each share

  int width() const {
    int sum = 4 + kGap + name;
    for (const ShareColumn& share : kShares) {
      sum += kGap + (bar > 0 ? kShareDigits + 1 + bar : share.width());
    }
    for (const auto& [has, own] : {std::pair{batch, 5},
                                   {entropy, 7},
                                   {even, 4},
                                   {distance, 8},
                                   {largest, 7},
                                   {induction, 9},
                                   {duplicate, 9},
                                   {layer > 0, layer},
                                   {kind > 0, kind}}) {
      if (has) sum += own + kGap;
    }
    return sum;
  }
};

/// Returns the columns that fit `width`, the most informative first.
Columns columns_for(const HeadsReport& report, int width) {
  Columns columns;
  bool scored = false;
  std::set<AttentionKind> kinds;
  for (const HeadsSource& source : report.sources) {
    columns.batch = columns.batch || source.inputs.shape.batch > 1;
    if (source.recorded() == nullptr) continue;
    columns.layer = 5;
    kinds.insert(source.recorded()->kind);
  }
  for (const HeadOfSource& head : report.result.heads) {
    scored = scored || !std::isnan(head.duplicate);
  }
  if (kinds.size() > 1) columns.kind = 7;
  if (scored) columns.name = kLongestNameOfTokens;
  const auto take = [&](auto Columns::*member, auto value) {
    Columns more = columns;
    more.*member = value;
    if (more.width() <= width) columns = more;
  };
  if (report.order == "induction") columns.induction = true;
  if (report.order == "duplicate") columns.duplicate = true;
  take(&Columns::entropy, true);
  if (scored) take(&Columns::induction, true);
  take(&Columns::distance, true);
  take(&Columns::bar, kMinBar);
  take(&Columns::largest, true);
  take(&Columns::even, true);
  if (scored) take(&Columns::duplicate, true);
  for (int more = columns.bar + 1; columns.bar > 0 && more <= kMaxBar; ++more) {
    take(&Columns::bar, more);
  }
  return columns;
}

Cells header(const Columns& columns) {
  Cells cells;
  if (columns.layer > 0) cells.emplace_back("layer");
  if (columns.kind > 0) cells.emplace_back("kind");
  if (columns.batch) cells.emplace_back("batch");
  cells.emplace_back("head");
  if (columns.entropy) cells.emplace_back("entropy");
  if (columns.even) cells.emplace_back("even");
  if (columns.distance) cells.emplace_back("distance");
  if (columns.largest) cells.emplace_back("largest");
  if (columns.induction) cells.emplace_back("induction");
  if (columns.duplicate) cells.emplace_back("duplicate");
  for (const ShareColumn& share : kShares) {
    cells.push_back(columns.bar > 0 ? pad_right(share.header, kShareDigits + 1 + columns.bar)
                                    : pad_left(share.header, share.width()));
  }
  cells.emplace_back("name");
  return cells;
}

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "-";
  const std::string text = fmt::format("{:.{}f}", value, digits);
  // A number that rounds to 0 is printed without a sign.
  return text.find_first_not_of("-0.") == std::string::npos ? fmt::format("{:.{}f}", 0.0, digits)
                                                            : text;
}

Cells head_row(const HeadOfSource& head, const HeadsSource& source, const Columns& columns) {
  Cells cells;
  if (columns.layer > 0) cells.push_back(std::to_string(source.recorded()->layer));
  if (columns.kind > 0) cells.emplace_back(attention_kind_name(source.recorded()->kind));
  if (columns.batch) cells.push_back(std::to_string(head.batch));
  cells.push_back(std::to_string(head.head));
  if (columns.entropy) cells.push_back(number_text(head[kEntropy], 3));
  if (columns.even) cells.push_back(number_text(head.evenness(), 2));
  if (columns.distance) {
    const double distance = head[kMeanDistance];
    cells.push_back(number_text(distance, std::abs(distance) < 99999.0 ? 1 : 0));
  }
  if (columns.largest) cells.push_back(number_text(head[kMaximum], 2));
  if (columns.induction) cells.push_back(number_text(head.induction, 2));
  if (columns.duplicate) cells.push_back(number_text(head.duplicate, 2));
  for (const ShareColumn& share : kShares) {
    const double value = head[share.place];
    const std::string text = number_text(value, 2);
    cells.push_back(columns.bar > 0 ? pad_left(text, kShareDigits) + " " + bar(value, columns.bar)
                                    : text);
  }
  cells.emplace_back(head.name().empty() ? "-" : head.name());
  return cells;
}

std::string order_words(const std::string& order) {
  if (order == "head") return "as they come";
  return order == "share" ? "by the largest of first, prev, own and next" : "by " + order;
}

/// Returns null for NaN, which JSON does not have.
Json number_json(double value) {
  if (std::isnan(value)) return {};
  return value;
}

/// Returns the heading of a table for tensors of files.
std::string tensors_heading(const HeadsReport& report) {
  const HeadsSource& source = report.sources.front();
  const ProblemShape& shape = source.inputs.shape;
  std::string text =
      fmt::format("Heads of the queries {} and the keys {}\n", visible(source.inputs.query.name),
                  visible(source.inputs.key.name));
  text += fmt::format("{}, {}; {}, {}; {} of keys\n", counted(shape.batch, "batch item"),
                      counted(shape.q_heads, "head"), counted(shape.q_len, "query", "queries"),
                      counted(shape.kv_len, "key"), counted(report.result.blocks, "block"));
  return text + fmt::format("mask: {}; scores: {}\n", visible(source.rules.mask_words),
                            source.rules.score_words(source.inputs.head_dim()));
}

/// Returns the heading of a table for a recording. Masks are listed with the number of attentions
/// that have each.
std::string recording_heading(const HeadsReport& report) {
  const Recording& recording = report.sources.front().inputs.source->recording;
  std::string text = fmt::format("Heads of {}", visible(recording.path()));
  if (!recording.model().empty()) text += ", " + visible(recording.model());
  text += "\n";
  if (!recording.source().empty()) text += visible(recording.source()) + "\n";
  std::vector<std::pair<std::string, std::int64_t>> masks;
  for (const HeadsSource& source : report.sources) {
    auto found = std::ranges::find(masks, source.rules.mask_words,
                                   &std::pair<std::string, std::int64_t>::first);
    if (found == masks.end()) found = masks.insert(masks.end(), {source.rules.mask_words, 0});
    ++found->second;
  }
  const ProblemShape& shape = report.sources.front().inputs.shape;
  text += fmt::format("{}, {}; {}, {}; {} of keys\n",
                      counted(static_cast<std::int64_t>(report.sources.size()), "attention"),
                      counted(report.heads, "head"), counted(shape.q_len, "query", "queries"),
                      counted(shape.kv_len, "key"), counted(report.result.blocks, "block"));
  constexpr std::size_t kMaxMasks = 4;
  for (std::size_t i = 0; i < std::min(masks.size(), kMaxMasks); ++i) {
    text += fmt::format("mask: {}", visible(fit(masks[i].first, 72)));
    if (masks.size() > 1) text += fmt::format(" ({})", counted(masks[i].second, "attention"));
    text += "\n";
  }
  if (masks.size() > kMaxMasks) {
    text += fmt::format("and {} other masks\n", masks.size() - kMaxMasks);
  }
  return text;
}

Json source_json(const HeadsSource& source) {
  const ProblemShape& shape = source.inputs.shape;
  const RecordedAttention& attention = *source.recorded();
  return {{"name", attention.name},
          {"layer", attention.layer},
          {"kind", attention_kind_name(attention.kind)},
          {"q_len", shape.q_len},
          {"kv_len", shape.kv_len},
          {"mask", source.rules.mask_words},
          {"scores", source.rules.score_words(source.inputs.head_dim())}};
}

}  // namespace

std::string heads_text(const HeadsReport& report, int width) {
  const HeadsResult& result = report.result;
  std::string text = report.of_recording() ? recording_heading(report) : tensors_heading(report);
  text += fmt::format("sorted {}\n\n", order_words(report.order));
  const Columns columns = columns_for(report, width);
  std::vector<Cells> rows = {header(columns)};
  for (const HeadOfSource& head : result.heads) {
    rows.push_back(head_row(head, report.sources[head.source], columns));
  }
  // Numbers are right-aligned; kinds, bars and names are left-aligned.
  const std::size_t shares = std::size(kShares);
  std::string sides = std::string(rows.front().size() - shares - 1, '>') +
                      std::string(shares, columns.bar > 0 ? '<' : '>') + '<';
  if (columns.kind > 0) sides[1] = '<';
  text += text_table(rows, sides);
  if (report.heads > static_cast<std::int64_t>(result.heads.size())) {
    text +=
        fmt::format("and {} more\n", report.heads - static_cast<std::int64_t>(result.heads.size()));
  }
  return text + fmt::format("\ntime   {}, {}\n", time_text(result.seconds),
                            counted(result.threads, "thread"));
}

std::string heads_json(const HeadsReport& report) {
  Json heads = Json::array();
  for (const HeadOfSource& told : report.result.heads) {
    Json head;
    if (const RecordedAttention* const attention = report.sources[told.source].recorded()) {
      head["attention"] = attention->name;
      head["layer"] = attention->layer;
      head["kind"] = attention_kind_name(attention->kind);
    }
    head["batch"] = told.batch;
    head["head"] = told.head;
    for (std::size_t i = 0; i < kHeadNumbers.size(); ++i) {
      head[std::string(kHeadNumbers[i].name)] = number_json(told.numbers[i]);
    }
    if (report.of_recording()) {
      head["induction"] = number_json(told.induction);
      head["duplicate"] = number_json(told.duplicate);
    }
    head["name"] = told.name().empty() ? Json() : Json(told.name());
    heads.push_back(std::move(head));
  }
  Json json = {{"version", build_info().version}};
  const HeadsSource& first = report.sources.front();
  if (report.of_recording()) {
    const Recording& recording = first.inputs.source->recording;
    json["recording"] = recording.path();
    json["model"] = recording.model();
    json["source"] = recording.source();
    json["attentions"] = Json::array();
    for (const HeadsSource& source : report.sources) {
      json["attentions"].push_back(source_json(source));
    }
  } else {
    const ProblemShape& shape = first.inputs.shape;
    json["query"] = first.inputs.query.name;
    json["key"] = first.inputs.key.name;
    json["q_len"] = shape.q_len;
    json["kv_len"] = shape.kv_len;
    json["mask"] = first.rules.mask_words;
    json["scores"] = first.rules.score_words(first.inputs.head_dim());
  }
  json["blocks"] = report.result.blocks;
  json["threads"] = report.result.threads;
  json["seconds"] = report.result.seconds;
  json["heads"] = std::move(heads);
  // File names may contain invalid UTF-8, which is replaced.
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string heads_csv(const HeadsReport& report) {
  const bool recorded = report.of_recording();
  std::string text = recorded ? "attention,layer,kind,batch,head" : "batch,head";
  for (const HeadNumber& number : kHeadNumbers) text += fmt::format(",{}", number.name);
  text += recorded ? ",induction,duplicate,name\n" : ",name\n";
  for (const HeadOfSource& head : report.result.heads) {
    const HeadsSource& source = report.sources[head.source];
    if (const RecordedAttention* const attention = source.recorded()) {
      text += fmt::format("{},{},{},", csv_text(attention->name), attention->layer,
                          attention_kind_name(attention->kind));
    }
    text += fmt::format("{},{}", head.batch, head.head);
    // Enough digits to round-trip any number of the type.
    const int digits = source.inputs.is_float64() ? 17 : 9;
    for (const double value : head.numbers) text += fmt::format(",{:.{}g}", value, digits);
    if (recorded) text += fmt::format(",{:.9g},{:.9g}", head.induction, head.duplicate);
    text += fmt::format(",{}\n", head.name());
  }
  return text;
}

}  // namespace fovea::cli
