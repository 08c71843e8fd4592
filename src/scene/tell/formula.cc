// SPDX-License-Identifier: Apache-2.0
//
// Formulas (formula.h). Symbols: X embeddings, Y source embeddings, Q, K, V, S scores, A weights, C
// context, M mask, B bias, P biases of positions; index i for queries, j and k for keys, d for
// dimensions, h for heads.

#include "scene/tell/formula.h"

#include <cstdlib>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "scene/read/step_catalogue.h"

namespace fovea::scene {
namespace {

using Kind = Formula::Kind;

// Names of MathML's elements where there is one.
Formula mi(std::string_view name) { return {Kind::kIdentifier, std::string(name), {}}; }
Formula mn(std::string_view number) { return {Kind::kNumber, std::string(number), {}}; }
Formula mo(std::string_view sign) { return {Kind::kOperator, std::string(sign), {}}; }
Formula mtext(std::string_view text) { return {Kind::kText, std::string(text), {}}; }
Formula row(std::vector<Formula> parts) { return {Kind::kRow, "", std::move(parts)}; }
Formula sub(Formula base, Formula index) {
  return {Kind::kSubscript, "", {std::move(base), std::move(index)}};
}
Formula sup(Formula base, Formula power) {
  return {Kind::kSuperscript, "", {std::move(base), std::move(power)}};
}
Formula fraction(Formula above, Formula below) {
  return {Kind::kFraction, "", {std::move(above), std::move(below)}};
}
Formula root(Formula inside) { return {Kind::kRoot, "", {std::move(inside)}}; }
Formula under(Formula sign, Formula index) {
  return {Kind::kUnder, "", {std::move(sign), std::move(index)}};
}
Formula sum_over(Formula index) { return under(mo("\u2211"), std::move(index)); }
Formula in_parentheses(Formula inside) { return {Kind::kParentheses, "", {std::move(inside)}}; }
Formula call(std::string_view function, Formula argument) {
  return row({mi(function), mo("\u2061"), in_parentheses(std::move(argument))});
}

/// Writes formulas for one row (of the focus) or for the whole matrix.
struct Writer {
  const Scene& scene;
  const Texts& texts;
  bool focus;

  Formula index(std::string_view key) const { return focus ? mi(key) : row({mi("i"), mi(key)}); }
  Formula entry(std::string_view letter, std::string_view key = "j") const {
    return sub(mi(letter), index(key));
  }
  Formula primed(std::string_view letter) const {
    return {Kind::kScripts, "", {mi(letter), index("j"), mo("\u2032")}};
  }
  Formula query() const { return focus ? mi("q") : sub(mi("q"), mi("i")); }
  Formula source() const { return mi(scene.source ? "Y" : "X"); }

  Formula dimensions(std::string_view letter, std::int64_t rows, std::int64_t cols) const {
    return row({mi(letter), mo("\u2208"),
                sup(mi("\u211D"),
                    row({mn(std::to_string(rows)), mo("\u00D7"), mn(std::to_string(cols))}))});
  }

  /// Returns the query's row of a matrix, "x = X_i".
  Formula row_of(std::string_view letter, std::string_view matrix) const {
    return row({mi(letter), mo("="), sub(mi(matrix), mi("i"))});
  }

  Formula projected(std::string_view result, const Formula& from, std::string_view which) const {
    const Formula weights = sub(mi("W"), mi(which));
    if (!focus) return row({mi(result), mo("="), from, weights});
    return row({mi(result), mo("="), mi("x"), weights});
  }

  Formula scores() const {
    const Formula key = sub(mi("k"), mi("j"));
    if (std::holds_alternative<reference::GeneralScore>(scene.score_kind)) {
      if (!focus) return row({mi("S"), mo("="), mi("Q"), mi("W"), sup(mi("K"), mo("\u22A4"))});
      return row({entry("s"), mo("="), query(), mi("W"), sup(key, mo("\u22A4"))});
    }
    if (std::holds_alternative<reference::AdditiveScore>(scene.score_kind)) {
      return row({entry("s"), mo("="), mi("v"), mo("\u00B7"), entry("h")});
    }
    if (!focus) return row({mi("S"), mo("="), mi("Q"), sup(mi("K"), mo("\u22A4"))});
    return row({entry("s"), mo("="), query(), mo("\u00B7"), key, mo("="), sum_over(mi("d")),
                sub(mi("q"), mi("d")), sub(mi("k"), row({mi("j"), mi("d")}))});
  }

  Formula hidden() const {
    return row({entry("h"), mo("="),
                call("tanh", row({query(), mi("W"), mo("+"), sub(mi("k"), mi("j")), mi("U")}))});
  }

  Formula scaled() const {
    const Formula before = entry("s");
    if (scene.scale_text == "1/sqrt(head_dim)") {
      return row({primed("s"), mo("="), fraction(before, root(sub(mi("d"), mi("k"))))});
    }
    return row({primed("s"), mo("="), mn(scene.scale_text), mo("\u00B7"), before});
  }

  Formula softcapped() const {
    const Formula before = entry("s");
    const Formula cap = mn(fmt::format("{}", scene.options.score.softcap));
    return row({primed("s"), mo("="), cap, mo("\u00B7"), call("tanh", fraction(before, cap))});
  }

  Formula biased() const {
    std::vector<Formula> sum = {primed("s"), mo("="), entry("s")};
    const auto add = [&](std::vector<Formula> parts) { sum.push_back(row(std::move(parts))); };
    const ScoreOptions& score = scene.options.score;
    if (score.bias.defined()) add({mo("+"), entry("b")});
    const std::optional<std::int64_t> offset = shared_offset();
    const bool per_item = !offset && (score.alibi || score.relative);
    // Query i has position i + offset among the keys.
    const Formula position = per_item ? sub(mi("p"), mi("i")) : mi("i");
    const std::int64_t ahead = offset.value_or(0);
    if (score.alibi) {
      std::vector<Formula> parts = {mo("\u2212"), mi("m"), mo("|"), position};
      shift(parts, ahead);
      parts.insert(parts.end(), {mo("\u2212"), mi("j"), mo("|")});
      add(std::move(parts));
    }
    if (score.relative) {
      std::vector<Formula> distance = {mi("j"), mo("\u2212"), position};
      shift(distance, -ahead);
      add({mo("+"), sub(mi("t"), call("bucket", row(std::move(distance))))});
    }
    if (per_item) {
      add({mo(","), sub(mi("p"), mi("i")), mo("="), mi("i"), mo("+"),
           mtext(texts.plain("formula.offset"))});
    }
    return row(std::move(sum));
  }

  Formula masked() const {
    const Formula before = entry("s");
    return row({primed("s"), mo("="), by_visibility(before)});
  }

  Formula weights(reference::Normalization how) const {
    const Formula j = entry("s");
    const Formula k = entry("s", "k");
    const bool sinks = !scene.options.score.sinks.empty();
    if (how == reference::Normalization::kSum) {
      return row({entry("a"), mo("="), fraction(j, row({sum_over(mi("k")), k}))});
    }
    if (how == reference::Normalization::kSoftmaxUnshifted) {
      return row({entry("a"), mo("="), power(j, std::nullopt, sinks)});
    }
    const Formula largest = focus ? mi("m") : sub(mi("m"), mi("i"));
    Formula maximum = row({under(mi("max"), mi("k")), {Kind::kSpace, "", {}}, k});
    if (sinks) {
      maximum = row({mi("max"), in_parentheses(row({mtext(texts.plain("formula.sink")), mo(","),
                                                    std::move(maximum)}))});
    }
    return row({entry("a"), mo("="), power(j, largest, sinks), mo(","), largest, mo("="),
                std::move(maximum)});
  }

  Formula row_sums() const {
    const Formula sum = row({sum_over(mi("j")), entry("a")});
    return scene.options.score.sinks.empty() ? row({sum, mo("="), mn("1")}) : sum;
  }

  Formula context() const {
    if (!focus) return row({mi("C"), mo("="), mi("A"), mi("V")});
    return row({mi("c"), mo("="), sum_over(mi("j")), entry("a"), sub(mi("v"), mi("j"))});
  }

  Formula merged() const {
    std::vector<Formula> joined = {mo("[")};
    for (std::int64_t head = 0; head < scene.heads; ++head) {
      // More than five heads are abbreviated.
      if (scene.heads > 5 && head == 3) {
        joined.push_back(mo("\u22EF"));
        head = scene.heads - 1;
      }
      joined.push_back(sup(mi(focus ? "c" : "C"), in_parentheses(mn(std::to_string(head)))));
    }
    joined.push_back(mo("]"));
    return row(std::move(joined));
  }

  /// Returns C = softmax(...) V, with the letters of the matrices that the scene has.
  Formula attention() const {
    const bool own = scene.projections || scene.direct;
    const Formula query = of_head(own ? "Q" : "X");
    const Formula value = of_head(own ? "V" : scene.source ? "Y" : "X");
    std::vector<Formula> sum = {scaled_product(query, own ? "K" : scene.source ? "Y" : "X")};
    const ScoreOptions& score = scene.options.score;
    if (score.softcap > 0) {
      const Formula cap = mn(fmt::format("{}", score.softcap));
      sum = {cap, mo("\u00B7"), call("tanh", fraction(std::move(sum.front()), cap))};
    }
    const auto add = [&](std::string_view letter) {
      sum.push_back(mo("+"));
      sum.push_back(mi(letter));
    };
    if (score.bias.defined()) add("B");
    if (score.alibi || score.relative) add("P");
    const bool masked = !scene.options.mask.allows_all();
    if (masked) add("M");
    std::vector<Formula> parts = {of_head("C"), mo("="), call("softmax", row(std::move(sum))),
                                  value};
    if (masked) {
      parts.insert(parts.end(), {mo(","),
                                 {Kind::kSpace, "", {}},
                                 {Kind::kSpace, "", {}},
                                 sub(mi("M"), index("j")),
                                 mo("="),
                                 by_visibility(mn("0"))});
    }
    return row(std::move(parts));
  }

 private:
  /// Appends nothing, "+ 2" or "\u2212 2".
  static void shift(std::vector<Formula>& parts, std::int64_t by) {
    if (by == 0) return;
    parts.insert(parts.end(), {mo(by < 0 ? "\u2212" : "+"), mn(std::to_string(std::abs(by)))});
  }

  /// Returns a brace with `value` where the key is visible, and minus infinity elsewhere.
  Formula by_visibility(const Formula& value) const {
    return {Kind::kCases,
            "",
            {value, mtext(texts.plain("formula.visible")), row({mo("\u2212"), mi("\u221E")}),
             mtext(texts.plain("formula.hidden"))}};
  }

  /// Returns a matrix that each head has its own of.
  Formula of_head(std::string_view letter) const {
    return scene.heads == 1 ? mi(letter) : sup(mi(letter), in_parentheses(mi("h")));
  }

  Formula scaled_product(const Formula& query, std::string_view key) const {
    const Formula transposed = sup(
        mi(key), scene.heads == 1 ? mo("\u22A4") : row({in_parentheses(mi("h")), mo("\u22A4")}));
    Formula product = row({query, transposed});
    if (std::holds_alternative<reference::GeneralScore>(scene.score_kind)) {
      product = row({query, mi("W"), transposed});
    } else if (std::holds_alternative<reference::AdditiveScore>(scene.score_kind)) {
      product = of_head("S");
    }
    if (scene.scale_text == "1/sqrt(head_dim)") {
      return fraction(std::move(product), root(sub(mi("d"), mi("k"))));
    }
    return scene.scale_text == "1" ? product : row({mn(scene.scale_text), mo("\u00B7"), product});
  }

  /// Returns the alignment's offset if all batch items have the same one.
  std::optional<std::int64_t> shared_offset() const {
    const std::int64_t queries = scene.words.length();
    const ProblemShape problem{static_cast<std::int64_t>(scene.words.tokens.size()), scene.heads,
                               scene.kv_heads, queries,
                               scene.source ? scene.source->length() : queries};
    const std::int64_t first = query_offset(scene.options, problem, 0);
    for (std::int64_t item = 1; item < problem.batch; ++item) {
      if (query_offset(scene.options, problem, item) != first) return std::nullopt;
    }
    return first;
  }

  /// Returns e^(s_j - m) over the sum of e^(s_k - m), plus the term of the sink if there is one.
  Formula power(const Formula& score, const std::optional<Formula>& shift, bool sinks) const {
    const auto raised = [&](const Formula& exponent) {
      return sup(mi("e"), shift ? row({exponent, mo("\u2212"), *shift}) : exponent);
    };
    Formula below = row({sum_over(mi("k")), raised(entry("s", "k"))});
    if (sinks) below = row({below, mo("+"), raised(mtext(texts.plain("formula.sink")))});
    return fraction(raised(score), below);
  }
};

}  // namespace

Formula step_formula(std::string_view name, const Scene& scene, const Texts& texts) {
  const std::string_view base = base_name(name);
  const Writer w{scene, texts, name.starts_with("focus.")};
  const std::int64_t length = scene.words.tokens.empty() ? 0 : scene.words.length();
  const auto columns = [](const Tensor& matrix) {
    return matrix.rank() == 0 ? 0 : matrix.extent(matrix.rank() - 1);
  };
  const auto listed = [](std::string_view letter, std::int64_t count) {
    return row({sub(mi(letter), mn("0")), mo(","), mo("\u2026"), mo(","),
                sub(mi(letter), mn(std::to_string(count - 1)))});
  };
  if (base == "tokens") return listed("w", length);
  if (base == "source_tokens") return listed("u", scene.source ? scene.source->length() : 0);
  if (base == "embeddings") {
    if (w.focus) return w.row_of("x", "X");
    return w.dimensions("X", length, columns(scene.words.embeddings));
  }
  if (base == "source_embeddings" && scene.source) {
    return w.dimensions("Y", scene.source->length(), columns(scene.source->embeddings));
  }
  if (base == "query_weights") return sub(mi("W"), mi("Q"));
  if (base == "key_weights") return sub(mi("W"), mi("K"));
  if (base == "value_weights") return sub(mi("W"), mi("V"));
  if (scene.direct && !w.focus) {
    const DirectInputs& in = *scene.direct;
    const std::int64_t keys = scene.source ? scene.source->length() : length;
    if (base == "query") return w.dimensions("Q", length, columns(in.query));
    if (base == "key") return w.dimensions("K", keys, columns(in.key));
    if (base == "value") return w.dimensions("V", keys, columns(in.value));
  } else if (scene.direct) {
    if (base == "query") return w.row_of("q", "Q");
    if (base == "key") return w.row_of("k", "K");
    if (base == "value") return w.row_of("v", "V");
  }
  if (base == "query") return w.projected(w.focus ? "q" : "Q", mi("X"), "Q");
  if (base == "key") return w.projected(w.focus ? "k" : "K", w.source(), "K");
  if (base == "value") return w.projected(w.focus ? "v" : "V", w.source(), "V");
  if (base == "hidden") return w.hidden();
  if (base == "scores") return w.scores();
  if (base == "scaled_scores") return w.scaled();
  if (base == "softcapped_scores") return w.softcapped();
  if (base == "biased_scores") return w.biased();
  if (base == "masked_scores") return w.masked();
  if (base == "weights") return w.weights(normalization_of(name, scene.normalizations));
  if (base == "row_sums") return w.row_sums();
  if (base == "context") return w.context();
  if (base == "merged_context") return w.merged();
  return mtext(step_info(name).formula);
}

std::optional<Formula> attention_formula(const Scene& scene, const Texts& texts) {
  if (scene.normalizations.back() == reference::Normalization::kSum) return std::nullopt;
  if (!scene.options.score.sinks.empty()) return std::nullopt;
  return Writer{scene, texts, false}.attention();
}

}  // namespace fovea::scene
