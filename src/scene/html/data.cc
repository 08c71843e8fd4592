// SPDX-License-Identifier: Apache-2.0
//
// Encodes the numbers for the page's script (data.h). The precision decreases with the amount:
// exact text, then float32, then two bytes or one byte per number, in base64. Steps that still do
// not fit are omitted.

#include "scene/html/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "json/json_text.h"
#include "scene/html/story.h"
#include "scene/html/table.h"
#include "scene/read/scene_parts.h"
#include "scene/read/step_catalogue.h"
#include "scene/trace/asked.h"
#include "scene/trace/top_keys.h"

namespace fovea::scene::html {
namespace {

/// Maximum total of numbers per encoding: exact text, float32, two bytes, one byte. Base64 uses
/// four characters for three bytes, so the data is at most 3.2 MB. Exception: if there are more
/// than kMaxBytes weights, all of them are still kept, at one byte each. The limit does not include
/// the page's tables and the scene's words.
constexpr std::int64_t kMaxExact = 6000;
constexpr std::int64_t kMaxFloats = 600'000;
constexpr std::int64_t kMaxShorts = 1'200'000;
constexpr std::int64_t kMaxBytes = 2'400'000;
/// A page can be edited if the scene has at most kMaxEditable numbers and the steps of at most
/// kMaxRecomputed, so that the script recomputes them while the reader types.
constexpr std::int64_t kMaxEditable = 6000;
constexpr std::int64_t kMaxRecomputed = 60'000;
/// Steps up to this size always keep at least float32 precision.
constexpr std::int64_t kSmallStep = 20'000;

enum class Encoding : std::uint8_t { kExact, kFloats, kShorts, kBytes };

/// Returns the whole-matrix steps. Focus steps are omitted, because they are rows of these, and so
/// are the parts of softmax, which the script computes from the scores.
std::vector<const Step*> matrix_steps(const TraceModel& model) {
  std::vector<const Step*> out;
  for (const Step& step : model.trace().steps) {
    if (!step.words.empty() || step.name.starts_with("focus.")) continue;
    if (!is_softmax_part(step.name)) out.push_back(&step);
  }
  return out;
}

std::int64_t total_size(const std::vector<const Step*>& steps) {
  std::int64_t total = 0;
  for (const Step* step : steps) total += step->values.size();
  return total;
}

/// Returns whether the numbers of a step are part of the scene.
bool is_given(const TraceModel& model, const Step& step) {
  const std::string_view base = base_name(step.name);
  if (model.find("embeddings") == nullptr) {
    return base == "query" || base == "key" || base == "value";
  }
  return base.ends_with("embeddings") || base.ends_with("_weights");
}

Encoding choose(std::int64_t total) {
  if (total <= kMaxExact) return Encoding::kExact;
  if (total <= kMaxFloats) return Encoding::kFloats;
  return total <= kMaxShorts ? Encoding::kShorts : Encoding::kBytes;
}

std::string base64(const std::vector<std::uint8_t>& bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = (group << 8) | (i + k < bytes.size() ? bytes[i + k] : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out.push_back(i + k > bytes.size() ? '=' : kDigits[(group >> (18 - 6 * k)) & 63U]);
    }
  }
  return out;
}

std::string number(double value, DType dtype) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value < 0 ? "\"-inf\"" : "\"inf\"";
  if (dtype == DType::kFloat32) return fmt::format("{}", static_cast<float>(value));
  return fmt::format("{}", value);
}

std::string list(const Tensor& tensor) {
  std::string out = "[";
  for_each_value(tensor, [&](double value) {
    if (out.size() > 1) out += ',';
    out += number(value, tensor.dtype());
  });
  return out + "]";
}

std::string floats(const Tensor& tensor) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(static_cast<std::size_t>(tensor.size()) * 4);
  for_each_value(tensor, [&](double value) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    for (unsigned k = 0; k < 4; ++k) bytes.push_back(static_cast<std::uint8_t>(bits >> (8 * k)));
  });
  return base64(bytes);
}

/// Rounds numbers to evenly spaced levels from `low` to `high`, in `byte_count` bytes (1 or 2).
/// The three codes after the levels are -inf, inf and NaN.
std::string levels(const Tensor& tensor, double low, double high, int byte_count) {
  const long most = (1L << (8 * byte_count)) - 4;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(static_cast<std::size_t>(tensor.size() * byte_count));
  for_each_value(tensor, [&](double value) {
    long level = most + 3;
    if (std::isinf(value)) {
      level = most + (value < 0 ? 1 : 2);
    } else if (!std::isnan(value)) {
      level =
          high > low ? std::lround((value - low) / (high - low) * static_cast<double>(most)) : 0;
    }
    for (int k = 0; k < byte_count; ++k) {
      bytes.push_back(static_cast<std::uint8_t>(level >> (8 * k)));
    }
  });
  return base64(bytes);
}

std::string bits(const std::vector<bool>& flags) {
  std::vector<std::uint8_t> bytes((flags.size() + 7) / 8);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i]) bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | (1U << (i % 8)));
  }
  return base64(bytes);
}

std::string words(const std::vector<std::vector<std::string>>& items) {
  std::string out = "[";
  for (const auto& item : items) {
    out += out.size() > 1 ? ",[" : "[";
    bool first = true;
    for (const std::string& word : item) {
      if (!first) out += ',';
      first = false;
      out += script_json_string(word);
    }
    out += ']';
  }
  return out + "]";
}

std::string_view axis(Axis axis) {
  return axis == Axis::kQueries ? "q" : axis == Axis::kKeys ? "k" : "d";
}

std::string step_json(const TraceModel& model, const Texts& texts, const Step& step,
                      Encoding encoding) {
  const StepLayout layout = model.layout(step);
  const StepNumbers& numbers = model.numbers(step);
  std::string shape;
  for (const std::int64_t extent : step.values.shape()) {
    if (!shape.empty()) shape += ',';
    shape += std::to_string(extent);
  }
  std::string out = fmt::format(
      "{{\"name\":{},\"title\":{},\"shape\":[{}],\"dims\":[{},{},{},{},{}],\"rows\":\"{}\","
      "\"cols\":\"{}\",\"decimals\":{},\"sci\":{},\"least\":\"{}\",\"largest\":{},\"maskable\":{},",
      script_json_string(step.name), script_json_string(step_title(step.name, texts)), shape,
      layout.batch, layout.heads, layout.planes, layout.rows, layout.cols, axis(layout.row_axis),
      axis(layout.col_axis), numbers.decimals(), numbers.scientific(), numbers.least(),
      numbers.largest(), layout.maskable);
  // The shortest text of a float32 is not exact as float64, which all numbers of the script are.
  if (step.values.dtype() == DType::kFloat32) out += "\"single\":true,";
  if (encoding == Encoding::kExact) {
    return out + "\"v\":" + list(step.values) + "}";
  }
  if (encoding == Encoding::kFloats) return out + "\"f32\":\"" + floats(step.values) + "\"}";
  double low = 0.0;
  double high = 0.0;
  for_each_value(step.values, [&](double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  });
  const int byte_count = encoding == Encoding::kShorts ? 2 : 1;
  return out + fmt::format("\"low\":{},\"high\":{},\"u{}\":\"{}\"}}", low, high, 8 * byte_count,
                           levels(step.values, low, high, byte_count));
}

std::string tolerance_json(const Tolerance& tolerance) {
  switch (tolerance.kind) {
    case Tolerance::Kind::kExact:
      return "{}";
    case Tolerance::Kind::kDigits:
      return fmt::format("{{\"digits\":{}}}", tolerance.digits);
    case Tolerance::Kind::kSignificant:
      return fmt::format("{{\"significant\":{}}}", tolerance.digits);
    case Tolerance::Kind::kRelative:
      return fmt::format("{{\"rtol\":{},\"atol\":{}}}", tolerance.rtol, tolerance.atol);
  }
  return "{}";
}

std::string questions_json(const TraceModel& model) {
  std::string out;
  for (const AskedNumber& asked : asked_numbers(model)) {
    out += fmt::format("{}{{\"step\":{},\"place\":[{}],\"tolerance\":{}}}", out.empty() ? "" : ",",
                       script_json_string(asked.step->name), fmt::join(asked.place, ","),
                       tolerance_json(asked.question->tolerance));
  }
  return out;
}

std::string score_json(const Scene& scene) {
  const double scale = score_scale(scene);
  std::string out =
      fmt::format("{{\"scale\":{},\"scaleText\":{},\"softcap\":{},\"how\":{}", scale,
                  script_json_string(scene.scale_text), scene.options.score.softcap,
                  script_json_string(scene.normalizations.empty()
                                         ? "softmax"
                                         : normalization_name(scene.normalizations.back())));
  if (const auto* general = std::get_if<reference::GeneralScore>(&scene.score_kind)) {
    out += ",\"general\":" + list(Tensor(general->weights));
  } else if (const auto* additive = std::get_if<reference::AdditiveScore>(&scene.score_kind)) {
    out += ",\"v\":" + list(Tensor(additive->v));
  }
  if (!scene.options.score.sinks.empty()) {
    out += ",\"sinks\":" +
           list(Tensor::from(Shape{static_cast<std::int64_t>(scene.options.score.sinks.size())},
                             scene.options.score.sinks));
  }
  return out + "}";
}

}  // namespace

bool is_editable(const TraceModel& model) {
  const Scene& scene = model.scene();
  if (!std::holds_alternative<reference::DotScore>(scene.score_kind) || scene.json.empty() ||
      scene.json.size() > kLongestScene) {
    return false;
  }
  std::int64_t given = 0;
  const std::vector<const Step*> steps = matrix_steps(model);
  for (const Step* step : steps) given += is_given(model, *step) ? step->values.size() : 0;
  return given <= kMaxEditable && total_size(steps) <= kMaxRecomputed;
}

std::string page_data(const TraceModel& model, const Texts& texts) {
  const Scene& scene = model.scene();
  std::vector<const Step*> steps = matrix_steps(model);
  const Encoding encoding = choose(total_size(steps));
  const bool editable = is_editable(model);
  std::string out = fmt::format(
      "{{\"precision\":{},\"tokens\":{},\"source\":{},\"focus\":{},\"heads\":{},"
      "\"kvHeads\":{},"
      "\"editable\":{},\"limits\":{{\"table\":{},\"keys\":{},\"terms\":{},\"numbers\":{},"
      "\"cols\":{},\"cells\":{}}},"
      "\"score\":{},\"mask\":{},\"questions\":[{}],\"steps\":[",
      scene.precision, words(scene.words.tokens),
      scene.source ? words(scene.source->tokens) : "null",
      scene.focus ? fmt::format("[{},{}]", scene.focus->item, scene.focus->index) : "null",
      scene.heads, scene.kv_heads, editable, kMaxTableRows, kTopKeys, kMaxTerms, kMaxShownNumbers,
      kMaxTableCols, kMaxTableCells, score_json(scene),
      model.any_mask() ? '"' + bits(model.mask()) + '"' : std::string("null"),
      questions_json(model));

  // If not everything fits, the steps that a learner reads first have priority.
  const auto rank = [](const Step* step) {
    const std::string_view base = base_name(step->name);
    if (base == "weights") return step->name == base ? 0 : 3;
    return base.ends_with("scores") || base == "hidden" ? 2 : 1;
  };
  std::vector<const Step*> by_rank = steps;
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [&](const Step* a, const Step* b) { return rank(a) < rank(b); });
  std::int64_t room = std::max(kMaxBytes, by_rank.empty() ? 0 : by_rank.front()->values.size());
  std::vector<const Step*> kept;
  for (const Step* step : by_rank) {
    if (step->values.size() > room) continue;
    room -= step->values.size();
    kept.push_back(step);
  }

  bool first = true;
  for (const Step* step : steps) {
    if (std::find(kept.begin(), kept.end(), step) == kept.end()) continue;
    if (!first) out += ",\n";
    first = false;
    const bool small = encoding > Encoding::kFloats && step->values.size() <= kSmallStep;
    const bool exact = editable && is_given(model, *step);
    out += step_json(model, texts, *step,
                     exact   ? Encoding::kExact
                     : small ? Encoding::kFloats
                             : encoding);
  }
  return out + "]}";
}

std::string data_note(const TraceModel& model, const Texts& texts) {
  const std::int64_t total = total_size(matrix_steps(model));
  switch (choose(total)) {
    case Encoding::kExact:
      return "";
    case Encoding::kFloats:
      return texts("data.floats");
    case Encoding::kShorts:
      return texts("data.shorts");
    case Encoding::kBytes:
      return texts("data.bytes");
  }
  return "";
}

}  // namespace fovea::scene::html
