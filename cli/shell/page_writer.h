// SPDX-License-Identifier: Apache-2.0
//
// The output format of a manual page: text for a terminal (help.h) or roff for man (man.h).

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::cli {

/// A term, such as an option, and its description.
using Definition = std::pair<std::string, std::string>;

/// Definitions with an optional subheading; an empty string means none.
struct DefinitionGroup {
  std::string heading;
  std::vector<Definition> definitions;
};

/// Writes the parts of a page in order.
class PageWriter {
 public:
  PageWriter() = default;
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;
  virtual ~PageWriter() = default;

  /// Writes the section NAME. `name` is the command as typed: "fovea attend".
  virtual void name(std::string_view name, std::string_view description) = 0;
  virtual void heading(std::string_view text) = 0;
  virtual void paragraph(std::string_view text) = 0;
  /// Writes lines with their breaks and spaces.
  virtual void verbatim(const std::vector<std::string_view>& lines) = 0;
  /// Writes groups one after another, with all descriptions in the same column.
  virtual void groups(const std::vector<DefinitionGroup>& groups) = 0;
  /// Writes a gap between two blocks (of the kinds above) within a section.
  virtual void gap() = 0;

  void definitions(const std::vector<Definition>& definitions) { groups({{"", definitions}}); }
};

}  // namespace fovea::cli
