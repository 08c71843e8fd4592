// SPDX-License-Identifier: Apache-2.0
//
// Parses expectations and questions: the values that an author expects or asks for, and their
// tolerances (scene_parser.h).

#include <cmath>

#include <fmt/format.h>

#include "scene/read/scene_parser.h"
#include "scene/read/step_catalogue.h"
#include "text/nearest.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr int kMaxDigits = 17;  // significant digits of a float64

void parse_expected_words(const JsonNode& node, Expectation& expectation) {
  if (node.is_array()) {
    for (const JsonNode& item : node.array()) parse_expected_words(item, expectation);
  } else if (node.is_integer()) {
    expectation.words.push_back(fmt::format("{}", node.integer(INT64_MIN, INT64_MAX)));
  } else if (node.is_string()) {
    expectation.words.push_back(node.string());
  } else {
    node.expected("tokens: strings or whole numbers");
  }
}

/// Returns the tolerance beside a value, or nothing if there is none.
std::optional<Tolerance> parse_tolerance(const JsonNode& node) {
  const auto digits = node.find("digits");
  const auto significant = node.find("significant");
  const auto rtol = node.find("rtol");
  const auto atol = node.find("atol");
  if (int{digits.has_value()} + int{significant.has_value()} + int{rtol || atol} > 1) {
    node.fail("expected one of \"digits\", \"significant\", or \"rtol\" and \"atol\", got more");
  }
  const auto nonnegative = [](const JsonNode& given) {
    if (!(given.number() >= 0)) given.expected("a number of 0 or more");
    return given.number();
  };
  using Kind = Tolerance::Kind;
  if (digits) return Tolerance{Kind::kDigits, static_cast<int>(digits->integer(0, kMaxDigits))};
  if (significant) {
    return Tolerance{Kind::kSignificant, static_cast<int>(significant->integer(1, kMaxDigits))};
  }
  if (!rtol && !atol) return std::nullopt;
  Tolerance tolerance{Kind::kRelative};
  if (rtol) tolerance.rtol = nonnegative(*rtol);
  if (atol) tolerance.atol = nonnegative(*atol);
  return tolerance;
}

void require_whole(const JsonNode& node, const Tensor& values) {
  for (const double value : values.span<double>()) {
    if (std::isfinite(value) && value != std::floor(value)) {
      node.fail(fmt::format(
          "expected \"digits\", \"significant\", \"rtol\" or \"atol\" beside numbers that are "
          "not whole, got none beside {}",
          value));
    }
  }
}

std::string parse_step(const JsonNode& node) {
  const auto step = node.find("step");
  if (!step) node.fail("expected a key \"step\", got none");
  std::string name = canonical_name(step->string());
  if (!is_step_name(name)) {
    step->fail(fmt::format("expected the name of a step, got \"{}\"{}", visible(step->string()),
                           did_you_mean(name, all_step_names())));
  }
  return name;
}

/// Returns the "index" of a part of a step; empty for the whole step.
std::vector<std::int64_t> parse_part(const JsonNode& node) {
  const auto given = node.find("index");
  if (!given) return {};
  std::vector<std::int64_t> index = given->is_array() ? given->integers(0, kMaxScores)
                                                      : std::vector{given->integer(0, kMaxScores)};
  if (index.empty() || index.size() > kMaxRank) {
    given->expected(fmt::format("a whole number or an array of 1 to {} of them", kMaxRank));
  }
  return index;
}

bool has_words(std::string_view step) { return base_name(step).ends_with("tokens"); }

}  // namespace

Expectation parse_expectation(const JsonNode& node) {
  node.require_object({"step", "index", "values", "digits", "significant", "rtol", "atol", "note"});
  Expectation expectation;
  expectation.place = node.place();
  expectation.step = parse_step(node);
  expectation.index = parse_part(node);
  if (const auto note = node.find("note")) expectation.note = note->string();
  const auto values = node.find("values");
  if (!values) node.fail("expected a key \"values\", got none");
  if (has_words(expectation.step)) {
    parse_expected_words(*values, expectation);
  } else {
    expectation.values = values->numbers(0, kMaxRank, /*special=*/true);
  }
  if (const auto tolerance = parse_tolerance(node)) {
    expectation.tolerance = *tolerance;
  } else if (expectation.values.defined()) {
    require_whole(node, expectation.values);
  }
  return expectation;
}

Question parse_question(const JsonNode& node) {
  constexpr int kDefaultDigits = 2;
  node.require_object({"step", "index", "ask", "hint", "digits", "significant", "rtol", "atol"});
  Question question;
  question.place = node.place();
  question.step = parse_step(node);
  if (has_words(question.step)) {
    node.find("step")->expected("a step of numbers");
  }
  question.index = parse_part(node);
  const auto ask = node.find("ask");
  if (!ask) node.fail("expected a key \"ask\", got none");
  question.ask = ask->string();
  if (question.ask.find_first_not_of(" \t\r\n") == std::string::npos) {
    ask->fail("expected a question, got nothing");
  }
  if (const auto hint = node.find("hint")) question.hint = hint->string();
  question.tolerance =
      parse_tolerance(node).value_or(Tolerance{Tolerance::Kind::kDigits, kDefaultDigits});
  return question;
}

}  // namespace fovea::scene
