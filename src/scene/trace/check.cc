// SPDX-License-Identifier: Apache-2.0
//
// Checks questions, and expectations value by value, each value with its own tolerance (check.h).
// The reported value is the one that exceeds its tolerance most. A check takes time linear in the
// number of compared values, even if it fails.

#include "scene/trace/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "core/fail.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

/// Drops leading dimensions of 1, so that [1, 4, 3] compares equal to [4, 3].
Shape without_leading_ones(const Shape& shape) {
  const auto* first =
      std::find_if(shape.begin(), shape.end(), [](auto extent) { return extent != 1; });
  return Shape(std::span(first, shape.end()));
}

/// Returns the absolute error of one value: 0 for equal infinities and for two NaNs, NaN if the
/// values differ and at least one is not finite.
double error_of(double computed, double expected) {
  if (std::isnan(computed) && std::isnan(expected)) return 0.0;
  if (computed == expected) return 0.0;
  if (!std::isfinite(computed) || !std::isfinite(expected)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::abs(computed - expected);
}

/// Returns an allowance for the rounding of the comparison itself: 0.95435 is exactly half a unit
/// from 0.9544 in decimal, but not in binary.
double slack(double expected, Tolerance::Kind kind) {
  if (kind == Tolerance::Kind::kExact || !std::isfinite(expected)) return 0.0;
  return 4 * std::numeric_limits<double>::epsilon() * std::abs(expected);
}

/// Formats a value; NaN is printed without a sign.
std::string shown(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

void compare_numbers(const Tensor& computed, const Expectation& expectation, Check& check) {
  // Both are contiguous and have the same shape except for leading ones, so indices correspond.
  const Tensor actual = convert(computed, DType::kFloat64);
  const auto a = actual.span<double>();
  const auto e = expectation.values.span<double>();
  check.passed = true;
  double worst = -1.0;  // largest ratio of error to tolerance so far; selects the reported value
  for (std::size_t i = 0; i < e.size(); ++i) {
    const double error = error_of(a[i], e[i]);
    const double allowed = std::isfinite(e[i]) && std::isfinite(a[i])
                               ? expectation.tolerance.allowed(e[i], a[i])
                               : 0.0;
    const bool held = error <= allowed + slack(e[i], expectation.tolerance.kind);
    check.passed = check.passed && held;
    const double excess = std::isnan(error) ? std::numeric_limits<double>::infinity()
                          : allowed > 0     ? error / allowed
                          : error > 0       ? std::numeric_limits<double>::max()
                                            : 0.0;
    if (excess > worst) {
      worst = excess;
      check.max_error = error;
      check.tolerance = allowed;
      if (!held) check.message = fmt::format("expected {}, computed {}", shown(e[i]), shown(a[i]));
    }
  }
}

/// Quotes a word for a message. Long words are truncated before any other processing.
std::string quoted(std::string_view word) {
  constexpr std::size_t kMaxBytes = 120;
  constexpr int kMaxColumns = 24;
  std::size_t size = std::min(word.size(), kMaxBytes);
  // Do not cut inside a UTF-8 sequence.
  while (size < word.size() && size > 0 && (word[size] & 0xC0) == 0x80) --size;
  const std::string cut = size < word.size() ? "…" : "";
  return '"' + fit(visible(word.substr(0, size)) + cut, kMaxColumns) + '"';
}

void compare_words(std::span<const std::string> computed, const Expectation& expectation,
                   Check& check) {
  const std::vector<std::string>& expected = expectation.words;
  const auto [differs, counterpart] =
      std::mismatch(computed.begin(), computed.end(), expected.begin(), expected.end());
  check.passed = differs == computed.end() && counterpart == expected.end();
  if (check.passed) return;
  check.max_error = std::numeric_limits<double>::quiet_NaN();
  if (computed.size() != expected.size()) {
    check.message = fmt::format("expected {} token{}, the scene has {}", expected.size(),
                                expected.size() == 1 ? "" : "s", computed.size());
  }
  if (differs == computed.end() || counterpart == expected.end()) return;
  check.message +=
      fmt::format("{}token {}: expected {}, the scene has {}", check.message.empty() ? "" : "; ",
                  differs - computed.begin(), quoted(*counterpart), quoted(*differs));
}

std::string step_names(const Trace& trace) {
  std::string names;
  for (const Step& step : trace.steps) names += (names.empty() ? "" : ", ") + step.name;
  return names;
}

/// Returns whether a tensor of this shape has a part at this index.
bool is_inside(const std::vector<std::int64_t>& index, const Shape& shape) {
  if (static_cast<int>(index.size()) > shape.rank()) return false;
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0 || index[i] >= shape[static_cast<int>(i)]) return false;
  }
  return true;
}

Check check_one(const Trace& trace, const Expectation& expectation) {
  Check check{expectation.step, expectation.index, false, 0.0, 0.0, {}, expectation.note};
  const auto fail = [&](std::string message) {
    check.max_error = std::numeric_limits<double>::quiet_NaN();
    check.message = std::move(message);
    return check;
  };
  const Step* step = trace.find(expectation.step);
  if (step == nullptr) {
    return fail(fmt::format("this scene has no such step; it has: {}", step_names(trace)));
  }
  const auto& index = expectation.index;
  if (!is_inside(index, step->shape)) {
    return fail(fmt::format("expected an index within the step's shape {}, got [{}]",
                            to_string(step->shape), fmt::join(index, ", ")));
  }
  if (!step->values.defined()) {
    std::span<const std::string> words = step->words;
    // Each index narrows `words` to the part at that index along its dimension.
    for (std::size_t i = 0; i < index.size(); ++i) {
      const auto part = words.size() / static_cast<std::size_t>(step->shape[static_cast<int>(i)]);
      words = words.subspan(static_cast<std::size_t>(index[i]) * part, part);
    }
    compare_words(words, expectation, check);
    return check;
  }
  TensorView part = step->values;
  for (const std::int64_t i : index) part = part[i];
  const Shape expected = without_leading_ones(expectation.values.shape());
  if (without_leading_ones(part.shape()) != expected) {
    return fail(fmt::format("expected shape {}, the step has {}",
                            to_string(expectation.values.shape()), to_string(part.shape())));
  }
  compare_numbers(Tensor(part), expectation, check);
  return check;
}

}  // namespace

double Tolerance::allowed(double expected, double computed) const {
  switch (kind) {
    case Kind::kExact:
      return 0.0;
    case Kind::kDigits:
      return 0.5 * std::pow(10.0, -digits);
    case Kind::kSignificant: {
      // The smaller magnitude determines the unit: 0.9999996 is within half a unit in the last
      // digit of 1.000000, but it does not print as 1.000000.
      const double smaller = std::min(std::abs(expected), std::abs(computed));
      if (smaller == 0.0) return 0.0;
      return 0.5 * std::pow(10.0, std::floor(std::log10(smaller)) - digits + 1);
    }
    case Kind::kRelative:
      return atol + rtol * std::abs(expected);
  }
  return 0.0;
}

void check_questions(const Trace& trace) {
  for (const Question& question : trace.scene.questions) {
    const Step* step = trace.find(question.step);
    if (step == nullptr) {
      fail("{}.step: expected a step of this scene, got \"{}\"; it has: {}", question.place,
           question.step, step_names(trace));
    }
    const auto& index = question.index;
    if (static_cast<int>(index.size()) != step->shape.rank() || !is_inside(index, step->shape)) {
      fail("{}.index: expected the index of one number of {} {}, got [{}]", question.place,
           question.step, to_string(step->shape), fmt::join(index, ", "));
    }
  }
}

std::vector<Check> check_steps(const Trace& trace) {
  std::vector<Check> checks;
  for (const Expectation& expectation : trace.scene.expect) {
    checks.push_back(check_one(trace, expectation));
  }
  return checks;
}

std::string checks_to_text(const Trace& trace, const TextOptions& options) {
  struct Line {
    std::string what, error, tolerance;
  };
  std::vector<Line> lines;
  std::size_t passed = 0;
  for (const Check& check : trace.checks) {
    std::string what = check.step;
    if (!check.index.empty()) what += fmt::format(" @ {}", fmt::join(check.index, ", "));
    lines.push_back({what,
                     std::isnan(check.max_error) ? "nan" : fmt::format("{:.2g}", check.max_error),
                     check.tolerance == 0.0 ? "exact" : fmt::format("{:.2g}", check.tolerance)});
    passed += check.passed ? 1 : 0;
  }
  int what_width = 0;
  for (const Line& line : lines) what_width = std::max(what_width, display_width(line.what));

  const bool color = options.color != Color::kNone;
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Check& check = trace.checks[i];
    const std::string mark = check.passed ? "ok  " : "FAIL";
    text += color ? fmt::format("\x1b[{}m{}\x1b[0m", check.passed ? 32 : 31, mark) : mark;
    text += fmt::format("  {}  max error {:>8}  tolerance {:>8}",
                        pad_right(lines[i].what, what_width), lines[i].error, lines[i].tolerance);
    if (!check.message.empty()) text += "  " + check.message;
    text += '\n';
  }
  text += fmt::format("{} of {} held: {}\n", passed, lines.size(), visible(trace.scene.title));
  return text;
}

}  // namespace fovea::scene
