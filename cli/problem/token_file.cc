// SPDX-License-Identifier: Apache-2.0
//
// Names of queries and keys (token_file.h).

#include "cli/problem/token_file.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/fail.h"
#include "io/file_io.h"
#include "text/text_width.h"

namespace fovea::cli {

std::vector<std::string> read_tokens(const std::string& option, const std::string& path) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;
  std::string content;
  try {
    content = read_file(path, kMaxBytes);
  } catch (const IoError& error) {
    throw IoError(fmt::format("{}: {}", option, error.what()));
  }
  if (!is_utf8(content)) {
    fail("{}: {}: expected text in UTF-8, one name on each line", option, path);
  }
  std::vector<std::string> tokens;
  std::string_view left = without_byte_order_mark(content);
  while (!left.empty()) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    std::string_view line = left.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    tokens.emplace_back(line);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return tokens;
}

void require_tokens(const std::string& option, const std::string& path,
                    const std::vector<std::string>& tokens, std::int64_t keys) {
  if (static_cast<std::int64_t>(tokens.size()) == keys) return;
  fail("{}: {}: expected {} lines, one for each key, got {}", option, path, keys, tokens.size());
}

}  // namespace fovea::cli
