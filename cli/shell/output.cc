// SPDX-License-Identifier: Apache-2.0
//
// Output to files and standard output (output.h).

#include "cli/shell/output.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "cli/shell/message.h"
#include "io/output_file.h"

namespace fovea::cli {

namespace fs = std::filesystem;

void write_stdout(std::string_view text) {
  if (!is_silent()) OutputFile::standard_output().write(text);
}

void write_file(const std::string& path, std::string_view text) {
  if (is_silent()) return;
  OutputFile file(path);
  file.write(text);
  file.finish();
}

void require_writable(const std::string& path) {
  if (is_silent()) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  // If a FIFO were opened and closed, its reader would see an empty output.
  const bool special =
      fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
  if (!special) static_cast<void>(OutputFile(path));
}

void require_file_name(const char* option, const std::string& path) {
  if (!path.empty() && path != "-") return;
  throw UsageError(fmt::format("{}: expected a file name, got \"{}\"", option, path));
}

bool same_file(const std::string& a, const std::string& b) {
  if (a == b) return true;
  // Two hard links to one file are different: each is replaced by a separate file.
  std::error_code error;
  const fs::path first = fs::weakly_canonical(a, error);
  const fs::path second = fs::weakly_canonical(b, error);
  return !error && first == second;
}

std::string ending_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  std::string ending = dot == std::string::npos ? "" : path.substr(dot);
  for (char& c : ending) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return ending;
}

void require_ending(const char* option, const std::string& path,
                    const std::vector<std::string>& endings, const char* words) {
  if (std::ranges::find(endings, ending_of(path)) != endings.end()) return;
  throw UsageError(
      fmt::format("{}: expected a name that ends in {}, which is what is written, got \"{}\"",
                  option, words, path));
}

}  // namespace fovea::cli
