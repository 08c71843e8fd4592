// SPDX-License-Identifier: Apache-2.0
//
// Options of scores in JSON (score_json.h).

#include "json/score_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "json/mask_json.h"
#include "problem/broadcast.h"

namespace fovea::scene {
namespace {

AttentionOptions options_with(const ScoreOptions& score) {
  AttentionOptions options;
  options.score = score;
  return options;
}

/// Returns numbers from the text or from a tensor of floats.
TensorRef parse_numbers(const JsonNode& node, int least, int most, bool special,
                        const TensorLookup& tensors) {
  if (!tensors || !node.is_string()) return node.numbers(least, most, special);
  TensorRef found;
  at_place(node, [&] {
    found = tensors(node.string());
    if (!is_float(found->dtype()) || found->rank() < least || found->rank() > most) {
      const std::string extents = least == most
                                      ? fmt::format("{} dimension{}", most, most == 1 ? "" : "s")
                                      : fmt::format("{} to {} dimensions", least, most);
      fail("numbers: expected a tensor of floats with {}, got {} {}", extents,
           dtype_name(found->dtype()), to_string(found->shape()));
    }
  });
  return found;
}

std::vector<double> to_vector(const TensorRef& tensor) {
  const Tensor numbers = convert(tensor, DType::kFloat64);
  const auto span = numbers.span<double>();
  return {span.begin(), span.end()};
}

RelativeTable parse_relative(const JsonNode& node, const TensorLookup& tensors) {
  node.require_object({"table", "bidirectional", "max_distance"});
  RelativeTable relative;
  const auto table = node.find("table");
  if (!table) node.fail("expected a key \"table\", got none");
  relative.table = parse_numbers(*table, 2, 2, /*special=*/false, tensors);
  if (const auto given = node.find("bidirectional")) relative.bidirectional = given->boolean();
  if (const auto given = node.find("max_distance")) {
    relative.max_distance = given->integer(1, std::int64_t{1} << 40);
  }
  return relative;
}

}  // namespace

void parse_score_options(const JsonNode& node, const ProblemShape& shape, ScoreOptions& score,
                         const TensorLookup& tensors) {
  const auto check = [&](const JsonNode& at) {
    at_place(at, [&] { validate(options_with(score), shape); });
  };
  if (const auto softcap = node.find("softcap")) {
    score.softcap = softcap->number();
    if (!(score.softcap >= 0)) softcap->expected("a number above 0, or 0 for none");
  }
  if (const auto bias = node.find("bias")) {
    score.bias = parse_numbers(*bias, 1, 4, /*special=*/true, tensors);
    at_place(*bias, [&] { validate_broadcast(score.bias, shape, "bias"); });
  }
  if (const auto alibi = node.find("alibi")) {
    if (alibi->is_boolean()) {
      if (alibi->boolean()) score.alibi = Alibi{};
    } else {
      if (!alibi->is_array() && !(tensors && alibi->is_string())) {
        alibi->expected("true or an array of slopes, one per head");
      }
      score.alibi = Alibi{to_vector(parse_numbers(*alibi, 1, 1, /*special=*/false, tensors))};
      if (score.alibi->slopes.empty()) {
        alibi->expected("true or an array of slopes, one per head");
      }
      check(*alibi);
    }
  }
  if (const auto relative = node.find("relative")) {
    score.relative = parse_relative(*relative, tensors);
    check(*relative);
  }
  if (const auto sinks = node.find("sinks")) {
    score.sinks = to_vector(parse_numbers(*sinks, 1, 1, /*special=*/false, tensors));
    if (score.sinks.empty()) sinks->expected("one number per head");
    check(*sinks);
  }
}

Json score_json(const ScoreOptions& score, const TensorNaming& name) {
  if (score.custom.tile != nullptr || score.custom.one != nullptr) {
    fail_argument("custom",
                  "expected a score without a function, which a file cannot hold, got one");
  }
  const auto list = [&](const char* what, const std::vector<double>& numbers) -> Json {
    const bool finite = std::all_of(numbers.begin(), numbers.end(),
                                    [](double number) { return std::isfinite(number); });
    if (finite && numbers.size() <= kMaxNumbersAsText) return numbers;
    return name(what, Tensor::from({static_cast<std::int64_t>(numbers.size())}, numbers));
  };
  Json written = Json::object();
  if (score.scale) written["scale"] = *score.scale;
  if (score.softcap > 0) written["softcap"] = score.softcap;
  if (score.bias.defined()) written["bias"] = name("bias", score.bias);
  if (score.alibi) {
    written["alibi"] =
        score.alibi->slopes.empty() ? Json(true) : list("slopes", score.alibi->slopes);
  }
  if (score.relative) {
    written["relative"] = {{"table", name("relative", score.relative->table)},
                           {"bidirectional", score.relative->bidirectional},
                           {"max_distance", score.relative->max_distance}};
  }
  if (!score.sinks.empty()) written["sinks"] = list("sinks", score.sinks);
  return written;
}

}  // namespace fovea::scene
