// SPDX-License-Identifier: Apache-2.0
//
// The table and the JSON object (report.h). Tensor names may contain any bytes, so control
// characters are escaped.

#include "cli/inspect/report.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "json/json_text.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr const char* kNone = "-";

/// Returns minimum, maximum and mean as text.
std::array<std::string, 3> range_of(const InspectedTensor& tensor) {
  const Summary& summary = *tensor.summary;
  if (summary.finite() == 0) return {kNone, kNone, kNone};
  const std::string mean = fmt::format("{:.6g}", summary.mean);
  if (is_float(*tensor.info.dtype)) {
    return {fmt::format("{:.6g}", summary.least), fmt::format("{:.6g}", summary.greatest), mean};
  }
  return {std::to_string(summary.least_integer), std::to_string(summary.greatest_integer), mean};
}

Cells tensor_row(const InspectedTensor& tensor, const InspectReport& report) {
  const TensorInfo& info = tensor.info;
  Cells row = {info.dtype ? std::string(dtype_name(*info.dtype)) : kNone,
               info.stored_type.empty() ? kNone : visible(fit(info.stored_type, 40)),
               info.dtype || info.bytes > 0 ? to_string(info.shape) : kNone};
  if (report.names_only) return row;
  if (!tensor.summary) {
    row.insert(row.end(), 5, kNone);
    return row;
  }
  for (const std::string& number : range_of(tensor)) row.push_back(number);
  const bool floats = is_float(*info.dtype);
  row.push_back(floats ? std::to_string(tensor.summary->nans) : kNone);
  row.push_back(floats ? std::to_string(tensor.summary->infinities) : kNone);
  return row;
}

std::string number_or_null(double value, bool known) {
  return known ? fmt::format("{}", value) : "null";
}

std::string json_of(const InspectedTensor& tensor, bool names_only) {
  const TensorInfo& info = tensor.info;
  std::string text = fmt::format(
      "{{\"name\": {}, \"dtype\": {}, \"stored_type\": {}, \"shape\": {}, \"bytes\": {}",
      harmless_json_string(info.name),
      info.dtype ? fmt::format("\"{}\"", dtype_name(*info.dtype)) : "null",
      harmless_json_string(info.stored_type),
      info.dtype || info.bytes > 0 ? to_string(info.shape) : "null", info.bytes);
  if (tensor.summary) {
    const Summary& summary = *tensor.summary;
    const bool known = summary.finite() > 0;
    const bool integers = info.dtype == DType::kInt64;
    text += fmt::format(
        ", \"count\": {}, \"min\": {}, \"max\": {}, \"mean\": {}, \"nan\": {}, \"inf\": {}",
        summary.count,
        integers && known ? std::to_string(summary.least_integer)
                          : number_or_null(summary.least, known),
        integers && known ? std::to_string(summary.greatest_integer)
                          : number_or_null(summary.greatest, known),
        number_or_null(summary.mean, known), summary.nans, summary.infinities);
  } else if (!names_only || !info.unreadable.empty()) {
    text += fmt::format(", \"unreadable\": {}", harmless_json_string(info.unreadable));
  }
  return text + "}";
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < kUnits.size(); ++unit) size /= 1000;
  return fmt::format("{:.3g} {}", size, kUnits[unit]);
}

std::string inspect_text(const InspectReport& report) {
  std::int64_t bytes = 0;
  for (const InspectedTensor& tensor : report.tensors) bytes += tensor.info.bytes;
  const std::size_t count = report.tensors.size();
  std::string text =
      fmt::format("{}: {}, {}, {}\n", visible(report.file), file_format_name(report.format),
                  counted(static_cast<std::int64_t>(count), "tensor"), size_text(bytes));
  if (count == 0) return text;
  const bool named = std::any_of(report.tensors.begin(), report.tensors.end(),
                                 [](const InspectedTensor& t) { return !t.info.name.empty(); });
  Cells heading = {"type", "stored", "shape"};
  if (!report.names_only) {
    for (const char* title : {"min", "max", "mean", "NaN", "Inf"}) heading.emplace_back(title);
  }
  std::vector<Cells> rows;
  const auto add = [&](const std::string& name, Cells row) {
    if (named) row.insert(row.begin(), name);
    rows.push_back(std::move(row));
  };
  add("name", heading);
  for (const InspectedTensor& tensor : report.tensors) {
    add(visible(tensor.info.name), tensor_row(tensor, report));
  }
  text += "\n" + text_table(rows, named ? "<<<<>" : "<<<>");
  std::string notes;
  for (const auto& [info, summary] : report.tensors) {
    if (info.unreadable.empty()) continue;
    notes += fmt::format("{}{}cannot be read: {}\n", visible(info.name),
                         info.name.empty() ? "" : ": ", visible(info.unreadable));
  }
  return notes.empty() ? text : text + "\n" + notes;
}

std::string inspect_json(const InspectReport& report) {
  std::vector<std::string> tensors;
  for (const InspectedTensor& tensor : report.tensors) {
    tensors.push_back("\n    " + json_of(tensor, report.names_only));
  }
  return fmt::format("{{\n  \"file\": {},\n  \"format\": \"{}\",\n  \"tensors\": [{}{}]\n}}\n",
                     harmless_json_string(report.file), file_format_name(report.format),
                     fmt::join(tensors, ","), tensors.empty() ? "" : "\n  ");
}

}  // namespace fovea::cli
