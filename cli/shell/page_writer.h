// SPDX-License-Identifier: Apache-2.0
//
// The format that a manual page is written in: text for a terminal (help.h) or roff for man
// (man.h).

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::cli {

/// A term, such as an option, and its description.
using Definition = std::pair<std::string, std::string>;

/// Writes the parts of a page in order.
class PageWriter {
 public:
  PageWriter() = default;
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;
  virtual ~PageWriter() = default;

  /// The section NAME. `name` is the command as typed: "fovea attend".
  virtual void name(std::string_view name, std::string_view description) = 0;
  virtual void heading(std::string_view text) = 0;
  virtual void paragraph(std::string_view text) = 0;
  /// Lines that keep their breaks and spaces.
  virtual void verbatim(const std::vector<std::string_view>& lines) = 0;
  virtual void definitions(const std::vector<Definition>& definitions) = 0;
  /// The gap between two of the above within a section.
  virtual void gap() = 0;
};

}  // namespace fovea::cli
