// SPDX-License-Identifier: Apache-2.0
//
// Formulas in MathML (mathml.h). Symbols: X embeddings, Y source embeddings, Q, K, V, S scores,
// A weights, C context; index i for queries, j and k for keys, d for dimensions.

#include "scene/html/mathml.h"

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <variant>

#include <fmt/format.h>

#include "scene/read/step_catalogue.h"
#include "text/html_escape.h"

namespace fovea::scene::html {
namespace {

std::string mi(std::string_view name) { return fmt::format("<mi>{}</mi>", name); }
std::string mn(std::string_view number) { return fmt::format("<mn>{}</mn>", escape(number)); }
std::string mo(std::string_view sign) { return fmt::format("<mo>{}</mo>", sign); }
std::string mtext(std::string_view text) { return fmt::format("<mtext>{}</mtext>", text); }

std::string row(std::initializer_list<std::string> parts) {
  std::string out = "<mrow>";
  for (const std::string& part : parts) out += part;
  return out + "</mrow>";
}
std::string sub(const std::string& base, const std::string& index) {
  return fmt::format("<msub>{}{}</msub>", base, index);
}
std::string sup(const std::string& base, const std::string& power) {
  return fmt::format("<msup>{}{}</msup>", base, power);
}
std::string fraction(const std::string& above, const std::string& below) {
  return fmt::format("<mfrac>{}{}</mfrac>", above, below);
}
std::string root(const std::string& inside) { return fmt::format("<msqrt>{}</msqrt>", inside); }
std::string sum_over(const std::string& index) {
  return fmt::format("<munder><mo>\u2211</mo>{}</munder>", index);
}
std::string in_parentheses(const std::string& inside) { return row({mo("("), inside, mo(")")}); }
std::string call(std::string_view function, const std::string& argument) {
  return row({mi(function), mo("\u2061"), in_parentheses(argument)});
}

/// Writes formulas for one row (of the focus) or for the whole matrix.
struct Writer {
  const Scene& scene;
  const Texts& texts;
  bool focus;

  std::string index(std::string_view key) const {
    return focus ? mi(key) : row({mi("i"), mi(key)});
  }
  std::string entry(std::string_view letter, std::string_view key = "j") const {
    return sub(mi(letter), index(key));
  }
  std::string primed(std::string_view letter) const {
    return fmt::format("<msubsup>{}{}{}</msubsup>", mi(letter), index("j"), mo("\u2032"));
  }
  std::string query() const { return focus ? mi("q") : sub(mi("q"), mi("i")); }
  std::string source() const { return mi(scene.source ? "Y" : "X"); }

  std::string dimensions(std::string_view letter, std::int64_t rows, std::int64_t cols) const {
    return row({mi(letter), mo("\u2208"),
                sup(mi("\u211D"),
                    row({mn(std::to_string(rows)), mo("\u00D7"), mn(std::to_string(cols))}))});
  }

  /// Returns the query's row of a matrix, "x = X_i".
  std::string row_of(std::string_view letter, std::string_view matrix) const {
    return row({mi(letter), mo("="), sub(mi(matrix), mi("i"))});
  }

  std::string projected(std::string_view result, const std::string& from,
                        std::string_view which) const {
    const std::string weights = sub(mi("W"), mi(which));
    if (!focus) return row({mi(result), mo("="), from, weights});
    return row({mi(result), mo("="), mi("x"), weights});
  }

  std::string scores() const {
    const std::string key = sub(mi("k"), mi("j"));
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

  std::string hidden() const {
    return row({entry("h"), mo("="),
                call("tanh", row({query(), mi("W"), mo("+"), sub(mi("k"), mi("j")), mi("U")}))});
  }

  std::string scaled() const {
    const std::string before = entry("s");
    if (scene.scale_text == "1/sqrt(head_dim)") {
      return row({primed("s"), mo("="), fraction(before, root(sub(mi("d"), mi("k"))))});
    }
    return row({primed("s"), mo("="), mn(scene.scale_text), mo("\u00B7"), before});
  }

  std::string softcapped() const {
    const std::string before = entry("s");
    const std::string cap = mn(fmt::format("{}", scene.options.score.softcap));
    return row({primed("s"), mo("="), cap, mo("\u00B7"), call("tanh", fraction(before, cap))});
  }

  std::string biased() const {
    const std::string before = entry("s");
    std::string out = row({primed("s"), mo("="), before});
    const ScoreOptions& score = scene.options.score;
    if (score.bias.defined()) out += row({mo("+"), entry("b")});
    const std::optional<std::int64_t> offset = shared_offset();
    const bool per_item = !offset && (score.alibi || score.relative);
    // Query i has position i + offset among the keys.
    const std::string position = per_item ? sub(mi("p"), mi("i")) : mi("i");
    const std::int64_t ahead = offset.value_or(0);
    if (score.alibi) {
      out += row(
          {mo("\u2212"), mi("m"), mo("|"), position, added(ahead), mo("\u2212"), mi("j"), mo("|")});
    }
    if (score.relative) {
      out += row(
          {mo("+"),
           sub(mi("t"), call("bucket", row({mi("j"), mo("\u2212"), position, added(-ahead)})))});
    }
    if (per_item) {
      out += row({mo(","), sub(mi("p"), mi("i")), mo("="), mi("i"), mo("+"),
                  mtext(texts("formula.offset"))});
    }
    return row({out});
  }

  std::string masked() const {
    const std::string before = entry("s");
    const std::string cases = fmt::format(
        "<mtable><mtr><mtd>{}</mtd><mtd>{}</mtd></mtr>"
        "<mtr><mtd>{}</mtd><mtd>{}</mtd></mtr></mtable>",
        before, mtext(texts("formula.visible")), row({mo("\u2212"), mi("\u221E")}),
        mtext(texts("formula.hidden")));
    // A separate row, so that the brace stretches to the height of the cases.
    return row({primed("s"), mo("="), row({mo("{"), cases})});
  }

  std::string weights(std::string_view how) const {
    const std::string j = entry("s");
    const std::string k = entry("s", "k");
    const bool sinks = !scene.options.score.sinks.empty();
    if (how == "sum") {
      return row({entry("a"), mo("="), fraction(j, row({sum_over(mi("k")), k}))});
    }
    if (how == "softmax_unshifted") {
      return row({entry("a"), mo("="), power(j, "", "", sinks)});
    }
    const std::string largest = focus ? mi("m") : sub(mi("m"), mi("i"));
    return row({entry("a"), mo("="), power(j, "\u2212", largest, sinks), mo(","), largest, mo("="),
                row({"<munder><mi>max</mi><mi>k</mi></munder>", "<mspace width=\"0.17em\"/>", k})});
  }

  std::string row_sums() const {
    const std::string sum = row({sum_over(mi("j")), entry("a")});
    return scene.options.score.sinks.empty() ? row({sum, mo("="), mn("1")}) : sum;
  }

  std::string context() const {
    if (!focus) return row({mi("C"), mo("="), mi("A"), mi("V")});
    return row({mi("c"), mo("="), sum_over(mi("j")), entry("a"), sub(mi("v"), mi("j"))});
  }

  std::string merged() const {
    std::string inside;
    for (std::int64_t head = 0; head < scene.heads; ++head) {
      // More than five heads are abbreviated.
      if (scene.heads > 5 && head == 3) {
        inside += mo("\u22EF");
        head = scene.heads - 1;
      }
      inside += sup(mi(focus ? "c" : "C"), in_parentheses(mn(std::to_string(head))));
    }
    return row({mo("["), inside, mo("]")});
  }

 private:
  /// Returns "+ 2" or "\u2212 2", or an empty string for 0.
  static std::string added(std::int64_t number) {
    if (number == 0) return "";
    return mo(number < 0 ? "\u2212" : "+") + mn(std::to_string(std::abs(number)));
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
  std::string power(const std::string& score, std::string_view sign, const std::string& shift,
                    bool sinks) const {
    const auto raised = [&](const std::string& exponent) {
      return sup(mi("e"), sign.empty() ? exponent : row({exponent, mo(sign), shift}));
    };
    std::string below = row({sum_over(mi("k")), raised(entry("s", "k"))});
    if (sinks) below = row({below, mo("+"), raised(mtext(texts("formula.sink")))});
    return fraction(raised(score), below);
  }
};

std::string_view normalization_of(std::string_view name, const Scene& scene) {
  const std::size_t bracket = name.find('[');
  if (bracket != std::string_view::npos) {
    return name.substr(bracket + 1, name.size() - bracket - 2);
  }
  return scene.normalizations.empty() ? "softmax" : normalization_name(scene.normalizations.back());
}

std::string formula(std::string_view name, const Scene& scene, const Texts& texts) {
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
  if (base == "weights") return w.weights(normalization_of(name, scene));
  if (base == "row_sums") return w.row_sums();
  if (base == "context") return w.context();
  if (base == "merged_context") return w.merged();
  return mtext(escape(step_info(name).formula));
}

}  // namespace

std::string step_mathml(std::string_view name, const Scene& scene, const Texts& texts) {
  return fmt::format("<math xmlns=\"http://www.w3.org/1998/Math/MathML\">{}</math>",
                     formula(name, scene, texts));
}

}  // namespace fovea::scene::html
