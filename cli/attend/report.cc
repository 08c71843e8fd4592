// SPDX-License-Identifier: Apache-2.0
//
// The report (report.h). File names may contain any bytes, so control characters are escaped.

#include "cli/attend/report.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/info.h"

#include "cli/shell/optional_json.h"
#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "problem/problem_shape.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the line of a tensor. Its title is padded to the width of the titles of the other lines.
Cells line_of(std::string_view title, const TensorView& tensor, const std::string& place) {
  return {fmt::format("{:<7}", title), std::string(dtype_name(tensor.dtype())),
          to_string(tensor.shape()), visible(place)};
}

/// Returns "written to out.npy" or "not written".
std::string destination(const OutputPlace& place) {
  return place.wanted() ? "written to " + place.words() : "not written";
}

std::string time_line(const AttendTimes& times) {
  if (times.nothing) return "nothing to compute";
  const std::string threads = counted(times.threads, "thread");
  if (times.engine == AttendEngine::kReference) {
    return fmt::format("{} by the reference in float64, {}", time_text(times.seconds), threads);
  }
  return fmt::format("{}, {}, {}", time_text(times.seconds), threads, build_info().target);
}

std::string speed_line(const AttendTimes& times) {
  std::string text = fmt::format("{:.4g} GFLOP/s", *times.gflops());
  if (const auto share = times.share()) {
    text += fmt::format(", {} of the CPU's limit", percent_text(*share));
  }
  return text;
}

std::string error_words(const char* what, const std::optional<AttendError>& error) {
  if (!error) return {};
  return fmt::format("; {} off by {:.1e}, allowed {:.1e}", what, error->error, error->allowed);
}

std::string verdict_line(const AttendVerdict& verdict) {
  if (verdict.rows == 0) return "nothing to verify";
  return fmt::format("{} by the reference{}{}", counted(verdict.rows, "row"),
                     error_words("context", verdict.context), error_words("lse", verdict.lse));
}

std::vector<std::int64_t> list_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

Json tensor_json(const TensorView& tensor, const std::string& place) {
  if (!tensor.defined()) return {};
  return {{"file", place.empty() ? Json() : Json(place)},
          {"dtype", dtype_name(tensor.dtype())},
          {"shape", list_of(tensor.shape())}};
}

Json error_json(const std::optional<AttendError>& error) {
  if (!error) return {};
  return {{"error", error->error}, {"allowed", error->allowed}};
}

Json alignment_json(const Alignment& alignment) {
  if (alignment.is_bottom_right()) return "bottom-right";
  return alignment.values();
}

Json problem_json(const AttendReport& report) {
  const ProblemShape& shape = report.inputs.shape;
  const AttendRules& rules = report.rules;
  return {{"batch", shape.batch},
          {"q_heads", shape.q_heads},
          {"kv_heads", shape.kv_heads},
          {"q_len", shape.q_len},
          {"kv_len", shape.kv_len},
          {"head_dim", report.inputs.head_dim()},
          {"value_dim", report.inputs.value_dim()},
          {"mask", rules.mask.to_string()},
          {"alignment", alignment_json(rules.alignment)},
          {"scale", score_scale(rules.score, report.inputs.head_dim())},
          {"softcap", rules.score.softcap},
          {"bias", rules.score.bias.defined()},
          {"alibi", rules.score.alibi.has_value()},
          {"relative", rules.score.relative.has_value()},
          {"sinks", !rules.score.sinks.empty()}};
}

std::string place_words(const OutputPlace& place) { return place.wanted() ? place.words() : ""; }

}  // namespace

std::string attend_text(const AttendReport& report) {
  const AttendInputs& inputs = report.inputs;
  std::vector<Cells> tensors = {line_of("query", inputs.query.tensor, inputs.query.name),
                                line_of("key", inputs.key.tensor, inputs.key.name),
                                line_of("value", inputs.value.tensor, inputs.value.name)};
  if (report.result.context.defined()) {
    tensors.push_back(line_of("context", report.result.context, destination(report.plan.context)));
  }
  if (report.result.lse.defined()) {
    tensors.push_back(line_of("lse", report.result.lse, destination(report.plan.lse)));
  }
  std::string text = text_table(tensors, "<");
  text += fmt::format("{:<8} {}\n", "mask", visible(report.rules.mask_words));
  text += fmt::format("{:<8} {}\n", "scores", report.rules.score_words(inputs.head_dim()));
  text += fmt::format("{:<8} {}\n", "time", time_line(report.times));
  if (report.times.gflops()) text += fmt::format("{:<8} {}\n", "speed", speed_line(report.times));
  if (report.verdict) text += fmt::format("{:<8} {}\n", "verified", verdict_line(*report.verdict));
  return text;
}

std::string attend_json(const AttendReport& report) {
  const AttendInputs& inputs = report.inputs;
  const AttendTimes& times = report.times;
  Json json = {
      {"version", build_info().version},
      {"query", tensor_json(inputs.query.tensor, inputs.query.name)},
      {"key", tensor_json(inputs.key.tensor, inputs.key.name)},
      {"value", tensor_json(inputs.value.tensor, inputs.value.name)},
      {"context", tensor_json(report.result.context, place_words(report.plan.context))},
      {"lse", tensor_json(report.result.lse, place_words(report.plan.lse))},
      {"layout", inputs.layout.length_first ? "blhd" : "bhld"},
      {"problem", problem_json(report)},
      {"engine", engine_name(times.engine)},
      {"target", times.engine == AttendEngine::kReference ? Json() : Json(build_info().target)},
      {"threads", times.threads},
      {"flop", times.flop},
      {"read_s", report.read_seconds},
      {"attend_s", times.seconds},
      {"write_s", report.write_seconds},
      {"gflops", optional_json(times.gflops())},
      {"ceiling_gflops", optional_json(times.ceiling_gflops)},
      {"share", optional_json(times.share())},
      {"verify", Json()}};
  if (report.verdict) {
    json["verify"] = {{"rows", report.verdict->rows},
                      {"context", error_json(report.verdict->context)},
                      {"lse", error_json(report.verdict->lse)}};
  }
  // File names may contain any bytes: invalid UTF-8 is replaced and the rest is escaped to ASCII,
  // so that the output has no terminal control sequences.
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace fovea::cli
