// SPDX-License-Identifier: Apache-2.0
//
// NumPy's array layout (fovea/array_format.h): brackets, indentation, wrapping and summaries.
// NumberFormat formats the elements. Follows `_formatArray` in NumPy's arrayprint.py.

#include "fovea/array_format.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/number_format.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

constexpr std::string_view kEllipsis = "...";

void check_not_negative(std::string_view name, std::int64_t value) {
  if (value < 0) {
    throw InvalidArgument(
        fmt::format("format_array: expected {} of 0 or more, got {}", name, value));
  }
}

// Returns the elements that a summary shows: NumPy derives the column width from these only. With
// edge_items = 0 NumPy uses all elements for the width, although it shows only the last one.
Tensor corners(const TensorView& values, std::int64_t edge) {
  if (edge == 0) return Tensor(values);
  Shape shape = values.shape();
  for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = std::min(shape[dim], 2 * edge);
  Tensor result(values.dtype(), shape);
  for_each_index(shape, [&](const Index& index) {
    Index source = index;
    for (int dim = 0; dim < shape.rank(); ++dim) {
      if (index[dim] >= edge) source[dim] += values.extent(dim) - shape[dim];
    }
    std::memcpy(result.view().address(index), values.address(source), dtype_size(values.dtype()));
  });
  return result;
}

// Builds one row: wraps before a word that would extend past `width` columns.
class Row {
 public:
  Row(int indent, int width)
      : indent_(static_cast<std::size_t>(indent), ' '), line_(indent_), width_(width) {}

  void add(std::string_view word) {
    const auto columns = static_cast<std::int64_t>(line_.size() + word.size());
    // A word that is too long for an empty line is added anyway: wrapping again would not help.
    if (columns > width_ && line_.size() > indent_.size()) {
      line_.resize(line_.find_last_not_of(' ') + 1);
      done_ += line_ + '\n';
      line_ = indent_;
    }
    line_ += word;
  }
  void add_separator() { line_ += ' '; }

  // Returns the text without the indentation of its first line.
  std::string text() const { return (done_ + line_).substr(indent_.size()); }

 private:
  std::string indent_;
  std::string line_;
  std::string done_;
  std::int64_t width_;
};

class Printer {
 public:
  Printer(const NumberFormat& numbers, std::int64_t edge, bool summarise)
      : numbers_(numbers), edge_(edge), summarise_(summarise) {}

  // Returns the text of `values`, which starts at column `indent`. `width` columns are available
  // for a row and its closing brackets.
  std::string print(const TensorView& values, int indent, int width) const {
    if (values.rank() == 0) return numbers_.padded(values, Index());
    return values.rank() == 1 ? print_row(values, indent, width)
                              : print_blocks(values, indent, width);
  }

 private:
  // Visits the positions to show, and -1 in place of the ellipsis. The last position is always
  // shown, even with edge_items = 0.
  template <class Visitor>
  void visit_shown(std::int64_t extent, Visitor&& visit) const {
    const bool cut = summarise_ && 2 * edge_ < extent;
    const std::int64_t tail = cut ? std::max<std::int64_t>(edge_, 1) : extent;
    if (cut) {
      for (std::int64_t i = 0; i < edge_; ++i) visit(i);
      visit(-1);
    }
    for (std::int64_t i = extent - tail; i < extent; ++i) visit(i);
  }

  std::string print_row(const TensorView& values, int indent, int width) const {
    const std::int64_t last = values.extent(0) - 1;
    Row row(indent, width - 1);  // one column for the bracket
    visit_shown(values.extent(0), [&](std::int64_t i) {
      if (i < 0) {
        row.add(kEllipsis);
      } else {
        row.add(numbers_.padded(values, Index{i}));
      }
      if (i != last) row.add_separator();
    });
    return '[' + row.text() + ']';
  }

  std::string print_blocks(const TensorView& values, int indent, int width) const {
    const std::string margin(static_cast<std::size_t>(indent), ' ');
    const std::string gap(static_cast<std::size_t>(values.rank() - 1), '\n');
    std::string text;
    visit_shown(values.extent(0), [&](std::int64_t i) {
      if (!text.empty()) text += gap + margin;
      text += i < 0 ? std::string(kEllipsis) : print(values[i], indent + 1, width - 1);
    });
    return '[' + text + ']';
  }

  const NumberFormat& numbers_;
  std::int64_t edge_;
  bool summarise_;
};

}  // namespace

std::string format_array(const TensorView& values, const ArrayFormat& options) {
  check_not_negative("a threshold", options.threshold);
  check_not_negative("edge_items", options.edge_items);
  check_not_negative("a line_width", options.line_width);
  if (values.defined()) memory_of(values, "format_array");  // reports a null pointer
  const bool summarise = values.defined() && values.size() > options.threshold;
  const NumberFormat numbers =
      summarise ? NumberFormat(corners(values, options.edge_items).view(), options)
                : NumberFormat(values, options);
  if (values.size() == 0) return "[]";
  return Printer(numbers, options.edge_items, summarise).print(values, 1, options.line_width);
}

}  // namespace fovea
