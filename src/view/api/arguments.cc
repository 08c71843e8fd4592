// SPDX-License-Identifier: Apache-2.0
//
// Parsing of targets and arguments (arguments.h).

#include "view/api/arguments.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "json/json_reader.h"
#include "text/text_width.h"

namespace fovea::view {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Decodes %XX and, in a query, "+". Returns nullopt if that is malformed or not UTF-8.
std::optional<std::string> decoded(std::string_view text, bool query) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += query && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return {};
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return {};
    result += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (!is_utf8(result)) return {};
  return result;
}

/// Returns whether a list with commas has the name.
bool is_listed(std::string_view name, std::string_view list) {
  const std::string between = "," + std::string(list) + ",";
  return name.find(',') == name.npos && between.find("," + std::string(name) + ",") != between.npos;
}

std::string some_of(std::string_view text) {
  constexpr int kMost = 60;
  return fit(visible(text), kMost);
}

}  // namespace

HttpError malformed(std::string_view name, std::string_view mistake) {
  return {400, "malformed", fmt::format("{}: {}", name, mistake), std::string(name)};
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end || text.front() == '-') return {};
  return number;
}

IndexRange parse_range(std::string_view name, std::string_view text, std::int64_t length) {
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const auto first = whole_number(text.substr(0, colon));
    const auto end = whole_number(text.substr(colon + 1));
    if (first && end && *first < *end && *end <= length) return {*first, *end};
  }
  throw malformed(name, fmt::format("expected FIRST:END with 0 <= FIRST < END <= {}, got \"{}\"",
                                    length, some_of(text)));
}

IndexRange parse_pass(std::string_view body, std::int64_t queries) {
  if (body.empty()) return {0, queries};
  const scene::JsonDocument document = scene::parse_json(body, "body");
  const scene::JsonNode root = document.root("body");
  root.require_object({"rows"});
  const auto rows = root.find("rows");
  return rows ? parse_range("rows", rows->string(), queries) : IndexRange{0, queries};
}

Arguments::Arguments(std::string_view query, std::string_view allowed) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = part.find('=');
    const auto name = decoded(part.substr(0, equals), true);
    const auto value =
        decoded(equals == std::string_view::npos ? "" : part.substr(equals + 1), true);
    if (!name || !value || name->empty() || equals == std::string_view::npos) {
      throw HttpError(400, "malformed", "expected arguments NAME=VALUE in UTF-8, separated by &");
    }
    if (!is_listed(*name, allowed)) throw malformed(some_of(*name), "unknown argument");
    if (!given_.emplace(*name, *value).second) throw malformed(*name, "expected once, got twice");
  }
}

std::optional<std::string> Arguments::find(std::string_view name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? std::nullopt : std::optional(found->second);
}

std::string Arguments::text(std::string_view name) const {
  if (auto value = find(name)) return *value;
  throw malformed(name, "expected a value, got none");
}

std::int64_t Arguments::integer(std::string_view name, std::int64_t least, std::int64_t most,
                                std::optional<std::int64_t> usual) const {
  const std::optional<std::string> value = find(name);
  if (!value && usual) return *usual;
  const auto number = value ? whole_number(*value) : std::nullopt;
  if (number && *number >= least && *number <= most) return *number;
  throw malformed(name, fmt::format("expected {} to {}, got {}", least, most,
                                    value ? some_of(*value) : "none"));
}

std::vector<std::int64_t> Arguments::integers(std::string_view name, std::int64_t most,
                                              std::size_t count) const {
  const std::string value = text(name);
  std::vector<std::int64_t> numbers;
  std::string_view left = value;
  while (true) {
    const std::size_t comma = left.find(',');
    const auto number = whole_number(left.substr(0, comma));
    if (!number || *number > most) {
      throw malformed(
          name, fmt::format("expected 0 to {}, got {}", most, some_of(left.substr(0, comma))));
    }
    if (numbers.size() == count) {
      throw malformed(name, fmt::format("expected at most {} numbers, got more", count));
    }
    numbers.push_back(*number);
    if (comma == std::string_view::npos) return numbers;
    left.remove_prefix(comma + 1);
  }
}

IndexRange Arguments::range(std::string_view name, std::int64_t length,
                            std::int64_t longest) const {
  const std::optional<std::string> value = find(name);
  const IndexRange range = value ? parse_range(name, *value, length) : IndexRange{0, length};
  if (range.size() <= longest) return range;
  throw malformed(name,
                  fmt::format("expected at most {} positions, got {}", longest, range.size()));
}

std::size_t Arguments::choice(std::string_view name,
                              const std::vector<std::string_view>& choices) const {
  const std::optional<std::string> value = find(name);
  if (!value) return 0;
  const auto found = std::ranges::find(choices, std::string_view(*value));
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  throw malformed(name, fmt::format("expected one of {}, got \"{}\"", fmt::join(choices, ", "),
                                    some_of(*value)));
}

Target parse_target(std::string_view target) {
  Target parsed;
  const std::size_t mark = target.find('?');
  std::string_view path = target.substr(0, mark);
  if (mark != std::string_view::npos) parsed.query = target.substr(mark + 1);
  if (!path.starts_with('/')) throw HttpError(400, "malformed", "expected a path with / first");
  path.remove_prefix(1);
  if (path.empty()) return parsed;
  while (true) {
    const std::size_t end = path.find('/');
    const auto segment = decoded(path.substr(0, end), false);
    if (!segment) throw HttpError(400, "malformed", "expected a path in UTF-8");
    if (segment->empty() || *segment == "." || *segment == ".." ||
        segment->find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      throw HttpError(404, "not_found", "no such page");
    }
    parsed.path.push_back(*segment);
    if (end == std::string_view::npos) return parsed;
    path.remove_prefix(end + 1);
  }
}

std::optional<std::vector<std::string>> match_path(std::string_view pattern,
                                                   const std::vector<std::string>& path) {
  std::vector<std::string> names;
  std::size_t matched = 0;
  pattern.remove_prefix(1);
  for (; !pattern.empty(); ++matched) {
    const std::size_t end = std::min(pattern.find('/'), pattern.size());
    const std::string_view part = pattern.substr(0, end);
    pattern.remove_prefix(std::min(end + 1, pattern.size()));
    if (matched == path.size()) return {};
    const std::string& segment = path[matched];
    const bool variable = part.front() >= 'A' && part.front() <= 'Z';
    if (!variable && part != segment) return {};
    if (part == "HEAD" && segment.find('.') == std::string::npos) return {};
    if (variable) names.push_back(segment);
  }
  return matched == path.size() ? std::optional(names) : std::nullopt;
}

}  // namespace fovea::view
