// SPDX-License-Identifier: Apache-2.0
//
// Parses expectations: the values that an author expects, and their tolerances (scene_parser.h).

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

void parse_tolerance(const JsonNode& node, Expectation& expectation) {
  Tolerance& tolerance = expectation.tolerance;
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
  if (digits) {
    tolerance = {Tolerance::Kind::kDigits, static_cast<int>(digits->integer(0, kMaxDigits))};
  } else if (significant) {
    tolerance = {Tolerance::Kind::kSignificant,
                 static_cast<int>(significant->integer(1, kMaxDigits))};
  } else if (rtol || atol) {
    tolerance.kind = Tolerance::Kind::kRelative;
    if (rtol) tolerance.rtol = nonnegative(*rtol);
    if (atol) tolerance.atol = nonnegative(*atol);
  } else if (expectation.values.defined()) {
    for (const double value : expectation.values.span<double>()) {
      if (std::isfinite(value) && value != std::floor(value)) {
        node.fail(fmt::format(
            "expected \"digits\", \"significant\", \"rtol\" or \"atol\" beside numbers that are "
            "not whole, got none beside {}",
            value));
      }
    }
  }
}

}  // namespace

Expectation parse_expectation(const JsonNode& node) {
  node.require_object({"step", "index", "values", "digits", "significant", "rtol", "atol", "note"});
  Expectation expectation;
  expectation.place = node.place();
  const auto step = node.find("step");
  if (!step) node.fail("expected a key \"step\", got none");
  expectation.step = step->string();
  if (!is_step_name(expectation.step)) {
    step->fail(fmt::format("expected the name of a step, got \"{}\"{}", visible(expectation.step),
                           did_you_mean(expectation.step, all_step_names())));
  }
  if (const auto index = node.find("index")) {
    expectation.index = index->is_array() ? index->integers(0, kMaxScores)
                                          : std::vector{index->integer(0, kMaxScores)};
    if (expectation.index.empty() || expectation.index.size() > kMaxRank) {
      index->expected(fmt::format("a whole number or an array of 1 to {} of them", kMaxRank));
    }
  }
  if (const auto note = node.find("note")) expectation.note = note->string();
  const auto values = node.find("values");
  if (!values) node.fail("expected a key \"values\", got none");
  if (base_name(expectation.step).ends_with("tokens")) {
    parse_expected_words(*values, expectation);
  } else {
    expectation.values = values->numbers(0, kMaxRank, /*special=*/true);
  }
  parse_tolerance(node, expectation);
  return expectation;
}

}  // namespace fovea::scene
