// SPDX-License-Identifier: Apache-2.0
//
// Reads pairs of texts (pairs.h).

#include "train/pairs.h"

#include <charconv>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "fovea/error.h"

#include "io/mapped_file.h"
#include "text/text_width.h"

namespace fovea::train {
namespace {

/// Splits a text at each separator. Returns the parts, including empty ones.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

class LineParser {
 public:
  LineParser(const std::string& path, std::int64_t line) : path_(path), line_(line) {}

  Pair pair(std::string_view text) const {
    if (!is_utf8(text)) fail("expected UTF-8");
    const std::vector<std::string_view> columns = split(text, '\t');
    if (columns.size() < 2 || columns.size() > 3) {
      fail(fmt::format("expected two or three columns with tabs between, got {}", columns.size()));
    }
    if (columns[0].empty()) fail("expected a source before the first tab, got nothing");
    if (columns[1].empty()) fail("expected a target after the first tab, got nothing");
    Pair result{std::string(columns[0]), std::string(columns[1]), {}, line_};
    if (columns.size() == 3 && !columns[2].empty()) {
      const auto count = [](std::string_view of) {
        return static_cast<std::int64_t>(code_points(of).size());
      };
      for (const std::string_view origin : split(columns[2], ',')) {
        result.origins.push_back(this->origin(origin, count(columns[1]), count(columns[0])));
      }
    }
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("{}:{}: {}", path_, line_, what));
  }

  Origin origin(std::string_view text, std::int64_t targets, std::int64_t sources) const {
    const std::vector<std::string_view> sides = split(text, '=');
    if (sides.size() != 2) {
      fail(fmt::format("expected an origin such as 0-4=20-24, got \"{}\"", visible(text)));
    }
    Origin result{range(sides[0], targets, "target"), {}};
    for (const std::string_view part : split(sides[1], '+')) {
      result.source.push_back(range(part, sources, "source"));
    }
    return result;
  }

  Range range(std::string_view text, std::int64_t length, std::string_view of) const {
    Range result;
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, result.first);
    const bool dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
    const auto second = dash ? std::from_chars(first.ptr + 1, end, result.second) : first;
    if (!dash || second.ec != std::errc() || second.ptr != end || result.first < 0 ||
        result.first >= result.second || result.second > length) {
      fail(
          fmt::format("expected a range within the {} characters of the {}, such as 0-1, got "
                      "\"{}\"",
                      length, of, visible(text)));
    }
    return result;
  }

  const std::string& path_;
  std::int64_t line_;
};

}  // namespace

std::vector<Pair> read_pairs(const std::string& path) {
  const FileBytes file = map_file(path);
  std::string_view rest = without_byte_order_mark(
      {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
  std::vector<Pair> pairs;
  for (std::int64_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = rest.find('\n');
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    pairs.push_back(LineParser(path, line).pair(text));
  }
  if (pairs.empty()) throw InvalidArgument(fmt::format("{}: expected pairs, got nothing", path));
  return pairs;
}

std::uint64_t fingerprint(const std::vector<Pair>& pairs) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    hash = (hash ^ 0xFF) * 0x100000001b3;  // marks the end of a text: UTF-8 has no byte 0xFF
  };
  for (const Pair& pair : pairs) {
    add(pair.source);
    add(pair.target);
  }
  return hash;
}

}  // namespace fovea::train
