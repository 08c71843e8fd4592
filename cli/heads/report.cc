// SPDX-License-Identifier: Apache-2.0
//
// Head statistics as a table, JSON or CSV (report.h).

#include "cli/heads/report.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/info.h"

#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kGap = 2;
constexpr int kLongestName = 14;  // "previous token"
constexpr int kShareDigits = 4;   // "0.52"
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
  bool batch = false, entropy = false, even = false, distance = false, largest = false;
  int bar = 0;  // width of the bar after each share

  int width() const {
    int sum = 4 + kGap + kLongestName;
    for (const ShareColumn& share : kShares) {
      sum += kGap + (bar > 0 ? kShareDigits + 1 + bar : share.width());
    }
    for (const auto& [has, own] :
         {std::pair{batch, 5}, {entropy, 7}, {even, 4}, {distance, 8}, {largest, 7}}) {
      if (has) sum += own + kGap;
    }
    return sum;
  }
};

/// Returns the columns that fit `width`, the most informative first.
Columns columns_for(bool batch, int width) {
  Columns columns{.batch = batch};
  const auto take = [&](auto Columns::*member, auto value) {
    Columns more = columns;
    more.*member = value;
    if (more.width() <= width) columns = more;
  };
  take(&Columns::entropy, true);
  take(&Columns::distance, true);
  take(&Columns::bar, kMinBar);
  take(&Columns::largest, true);
  take(&Columns::even, true);
  for (int more = columns.bar + 1; columns.bar > 0 && more <= kMaxBar; ++more) {
    take(&Columns::bar, more);
  }
  return columns;
}

Cells header(const Columns& columns) {
  Cells cells;
  if (columns.batch) cells.emplace_back("batch");
  cells.emplace_back("head");
  if (columns.entropy) cells.emplace_back("entropy");
  if (columns.even) cells.emplace_back("even");
  if (columns.distance) cells.emplace_back("distance");
  if (columns.largest) cells.emplace_back("largest");
  for (const ShareColumn& share : kShares) {
    cells.push_back(columns.bar > 0 ? pad_right(share.header, kShareDigits + 1 + columns.bar)
                                    : pad_left(share.header, share.width()));
  }
  cells.emplace_back("name");
  return cells;
}

Cells head_row(const HeadTold& head, const Columns& columns) {
  const auto number = [](double value, int digits) {
    if (std::isnan(value)) return std::string("-");
    const std::string text = fmt::format("{:.{}f}", value, digits);
    // A number that rounds to 0 is printed without a sign.
    return text.find_first_not_of("-0.") == std::string::npos ? fmt::format("{:.{}f}", 0.0, digits)
                                                              : text;
  };
  Cells cells;
  if (columns.batch) cells.push_back(std::to_string(head.batch));
  cells.push_back(std::to_string(head.head));
  if (columns.entropy) cells.push_back(number(head[kEntropy], 3));
  if (columns.even) cells.push_back(number(head.evenness(), 2));
  if (columns.distance) {
    const double distance = head[kMeanDistance];
    cells.push_back(number(distance, std::abs(distance) < 99999.0 ? 1 : 0));
  }
  if (columns.largest) cells.push_back(number(head[kMaximum], 2));
  for (const ShareColumn& share : kShares) {
    const double value = head[share.place];
    const std::string text = number(value, 2);
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

}  // namespace

std::string heads_text(const HeadsReport& report, int width) {
  const ProblemShape& shape = report.inputs.shape;
  const HeadsResult& result = report.result;
  std::string text =
      fmt::format("Heads of {}, which look at {}\n", visible(report.inputs.query.name),
                  visible(report.inputs.key.name));
  text += fmt::format("{}, {}; {}, {}; {} of keys\n", counted(shape.batch, "batch item"),
                      counted(shape.q_heads, "head"), counted(shape.q_len, "query", "queries"),
                      counted(shape.kv_len, "key"), counted(result.blocks, "block"));
  text += fmt::format("mask: {}; scores: {}\n", visible(report.rules.mask_words()),
                      report.rules.score_words(report.inputs.head_dim()));
  text += fmt::format("sorted {}\n\n", order_words(report.order));
  const Columns columns = columns_for(shape.batch > 1, width);
  std::vector<Cells> rows = {header(columns)};
  for (const HeadTold& head : result.heads) rows.push_back(head_row(head, columns));
  // Numbers are right-aligned; bars and names are left-aligned.
  const std::size_t shares = std::size(kShares);
  text += text_table(rows, std::string(rows.front().size() - shares - 1, '>') +
                               std::string(shares, columns.bar > 0 ? '<' : '>') + '<');
  return text + fmt::format("\ntime   {}, {}\n", time_text(result.seconds),
                            counted(result.threads, "thread"));
}

std::string heads_json(const HeadsReport& report) {
  const ProblemShape& shape = report.inputs.shape;
  Json heads = Json::array();
  for (const HeadTold& told : report.result.heads) {
    Json head = {{"batch", told.batch}, {"head", told.head}};
    for (std::size_t i = 0; i < kHeadNumbers.size(); ++i) {
      head[std::string(kHeadNumbers[i].name)] = number_json(told.numbers[i]);
    }
    head["name"] = told.name().empty() ? Json() : Json(told.name());
    heads.push_back(std::move(head));
  }
  const Json json = {{"version", build_info().version},
                     {"query", report.inputs.query.name},
                     {"key", report.inputs.key.name},
                     {"q_len", shape.q_len},
                     {"kv_len", shape.kv_len},
                     {"mask", report.rules.mask_words()},
                     {"scores", report.rules.score_words(report.inputs.head_dim())},
                     {"blocks", report.result.blocks},
                     {"threads", report.result.threads},
                     {"seconds", report.result.seconds},
                     {"heads", heads}};
  // File names may contain invalid UTF-8, which is replaced.
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string heads_csv(const HeadsReport& report) {
  std::string text = "batch,head";
  for (const HeadNumber& number : kHeadNumbers) text += fmt::format(",{}", number.name);
  text += ",name\n";
  for (const HeadTold& head : report.result.heads) {
    text += fmt::format("{},{}", head.batch, head.head);
    // Enough digits to round-trip any number of the type.
    const int digits = report.inputs.is_float64() ? 17 : 9;
    for (const double value : head.numbers) text += fmt::format(",{:.{}g}", value, digits);
    text += fmt::format(",{}\n", head.name());
  }
  return text;
}

}  // namespace fovea::cli
