// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace as JSON. Numbers use the shortest text that round-trips in their own type, and
// integers have no decimal point. Each row of numbers has its own line, for readability.

#include <cmath>

#include <fmt/format.h>

#include "fovea/scene.h"

#include "json/json_text.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene {
namespace {

std::string number(double value, DType dtype) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return dtype == DType::kFloat32 ? fmt::format("{}", static_cast<float>(value))
                                  : fmt::format("{}", value);
}

void append_nested(std::string& out, const TensorView& values, const std::string& indent) {
  if (values.rank() == 0) {
    out += number(values.value({}), values.dtype());
    return;
  }
  out += '[';
  for (std::int64_t i = 0; i < values.extent(0); ++i) {
    if (values.rank() > 1) {
      out += (i == 0 ? "\n" : ",\n") + indent + "  ";
    } else if (i > 0) {
      out += ", ";
    }
    append_nested(out, values[i], indent + "  ");
  }
  if (values.rank() > 1) out += '\n' + indent;
  out += ']';
}

/// Returns tokens as nested arrays of this shape. If `numeric` is set, tokens are written as
/// numbers, as in the scene.
std::string nested_words(const std::vector<std::string>& words, const Shape& shape, bool numeric) {
  const auto one = [&](std::size_t i) {
    return numeric ? words[i] : harmless_json_string(words[i]);
  };
  if (shape.rank() == 0) return one(0);
  const auto length = static_cast<std::size_t>(shape[shape.rank() - 1]);
  std::string rows;
  for (std::size_t first = 0; first < words.size(); first += length) {
    std::string row;
    for (std::size_t i = first; i < first + length; ++i) row += (i > first ? ", " : "") + one(i);
    rows += (first > 0 ? ", [" : "[") + row + ']';
  }
  return shape.rank() == 1 ? rows : '[' + rows + ']';
}

std::string step_json(const Step& step) {
  std::string out = fmt::format(
      "    {{\n      \"name\": {},\n      \"title\": {},\n      \"formula\": {},\n"
      "      \"shape\": {},\n      \"values\": ",
      harmless_json_string(step.name), harmless_json_string(step.title),
      harmless_json_string(step.formula), to_string(step.shape));
  if (step.values.defined()) {
    append_nested(out, step.values, "      ");
  } else {
    out += nested_words(step.words, step.shape, step.numeric);
  }
  return out + "\n    }";
}

std::string check_json(const Check& check) {
  std::string out = fmt::format(
      "    {{\"step\": {}, \"index\": [{}], \"passed\": {}, \"max_error\": {}, \"tolerance\": {}",
      harmless_json_string(check.step), fmt::join(check.index, ", "), check.passed,
      number(check.max_error, DType::kFloat64), number(check.tolerance, DType::kFloat64));
  if (!check.message.empty()) out += ", \"message\": " + harmless_json_string(check.message);
  if (!check.note.empty()) out += ", \"note\": " + harmless_json_string(check.note);
  return out + '}';
}

template <class Item, class Write>
void append_list(std::string& out, std::string_view key, const std::vector<Item>& items,
                 Write&& write) {
  out += fmt::format("  \"{}\": [", key);
  for (std::size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "\n" : ",\n") + write(items[i]);
  out += items.empty() ? "]" : "\n  ]";
}

}  // namespace

std::string to_json(const Trace& trace) {
  const Scene& scene = computed(trace).scene;
  const Step& tokens = *trace.find("tokens");
  std::string out =
      fmt::format("{{\n  \"title\": {},\n  \"tokens\": {},\n", harmless_json_string(scene.title),
                  nested_words(tokens.words, tokens.shape, scene.words.numeric));
  out += fmt::format("  \"focus\": {},\n",
                     scene.focus ? fmt::format("{}", scene.focus->index) : "null");
  if (scene.focus && scene.batched) {
    out += fmt::format("  \"focus_item\": {},\n", scene.focus->item);
  }
  append_list(out, "steps", trace.steps, step_json);
  out += ",\n";
  append_list(out, "checks", trace.checks, check_json);
  return out + "\n}\n";
}

}  // namespace fovea::scene
