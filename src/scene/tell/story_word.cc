// SPDX-License-Identifier: Apache-2.0
//
// One word in detail (story_parts.h): its scores (written out as products if they are short), its
// weights under every normalization side by side, and its context as a weighted sum.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "scene/read/scene_parts.h"
#include "scene/read/step_catalogue.h"
#include "scene/tell/story_parts.h"
#include "scene/trace/number_text.h"
#include "scene/trace/score_terms.h"
#include "scene/trace/softmax_table.h"
#include "scene/trace/top_keys.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::size_t kFewTerms = 6;    // maximum number of terms in a written-out sum
constexpr std::int64_t kFewInARow = 8;  // maximum number of values in brackets
constexpr int kBarColumns = 20;

/// Draws numbers as bars on a common scale. If any number is negative, the bars start at an axis.
class Bars {
 public:
  void add(double value) {
    if (!std::isfinite(value)) return;
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }

  Cell cell(double value) const {
    Cell result{text(value)};
    result.bar = extent(value);
    return result;
  }

 private:
  /// Returns where the bar of a number begins and ends, as shares of the width, or nothing.
  std::optional<std::pair<double, double>> extent(double value) const {
    if (!std::isfinite(value) || high_ == low_) return std::nullopt;
    const double axis = (0.0 - low_) / (high_ - low_);
    const double end = axis + value / (high_ - low_);
    return std::pair(std::min(axis, end), std::max(axis, end));
  }

  /// Returns "####", or "   ##│" and "     │####" around an axis.
  std::string text(double value) const {
    if (!std::isfinite(value) || high_ == low_) return "";
    const auto length = [&](double part) {
      return static_cast<std::size_t>(std::round(kBarColumns * (part / (high_ - low_))));
    };
    const std::string bar(length(std::abs(value)), '#');
    if (low_ == 0.0) return bar;
    const std::size_t left = length(-low_);
    return value < 0.0 ? std::string(left - bar.size(), ' ') + bar + "│"
                       : std::string(left, ' ') + "│" + bar;
  }

  double low_ = 0.0;
  double high_ = 0.0;
};

/// Right-aligns all texts to the width of the longest.
void align(std::vector<std::string>& texts) {
  int width = 0;
  for (const std::string& text : texts) width = std::max(width, display_width(text));
  for (std::string& text : texts) text = pad_left(text, width);
}

class WordTeller {
 public:
  explicit WordTeller(const StoryParts& parts)
      : parts_(parts), model_(parts.model()), scene_(parts.scene()), focus_(*scene_.focus) {}

  std::vector<Section> tell() const {
    const std::string name = fmt::format("\"{}\"", visible(focus_word(scene_)));
    Section scores = parts_.section("Scores of " + name, "focus.scores");
    scores.reading = fmt::format("How well does each word match {}?", name);
    Section weights = parts_.section("Weights of " + name, "focus.weights");
    if (scene_.normalizations.size() > 1 && scene_.options.score.sinks.empty()) {
      weights.reading = fmt::format(
          "Several ways to make the scores add up to one; {} is the one used from here on.",
          normalization_label(scene_.normalizations.back()));
    }
    if (!scene_.options.score.sinks.empty()) weights.formula += ", with exp(sink) in the sum";
    Section context = parts_.section("Context of " + name, "focus.context");
    std::vector<std::string> stages = {"focus.hidden"};
    for (const Step* step : model_.score_steps()) stages.push_back("focus." + step->name);
    parts_.add_formulas(scores, stages);
    for (const reference::Normalization kind : scene_.normalizations) {
      parts_.add_formulas(weights, {"focus.weights" + parts_.suffix(kind)});
    }
    parts_.add_formulas(context, {"focus.context", "focus.merged_context"});
    if (sees_nothing()) {
      weights.remarks.push_back(name + " may see nothing: its weights and its context are 0.");
    }
    add_score_weights(scores);
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      scores.blocks.push_back(score_table(head));
      weights.blocks.push_back(weight_table(head));
      context.blocks.push_back(context_table(head));
    }
    if (const Step* merged = parts_.find("merged_context")) {
      Table joined{"heads side by side", {{"", true}}, {}, false};
      Cell own{"= " + bracketed_own_row(*merged, 0)};
      own.parts = row_parts("=", "", "", own_row(*merged, 0), *merged);
      joined.rows.push_back({"", {std::move(own)}, false, {}});
      context.blocks.push_back(std::move(joined));
    }
    if (cut()) {
      scores.remarks.push_back(
          fmt::format("Shown: the {} words with the largest weights.", kTopKeys));
    }
    if (const std::string scale = scale_remark(model_); !scale.empty()) {
      scores.remarks.push_back(scale);
    }
    add_weight_remarks(weights);

    scores.notes = parts_.notes({"focus.tokens", "focus.embeddings", "focus.hidden", "focus.scores",
                                 "focus.scaled_scores", "focus.softcapped_scores",
                                 "focus.biased_scores", "focus.masked_scores"});
    weights.notes = parts_.notes(parts_.weight_steps("focus."));
    context.notes = parts_.notes({"focus.context", "focus.merged_context"});
    return {std::move(scores), std::move(weights), std::move(context)};
  }

 private:
  // ---- Numbers ---------------------------------------------------------------------------------

  /// Returns the value for the focus query and a key, in a step of shape [..., queries, keys].
  double at_key(const Step& step, std::int64_t head, std::int64_t key) const {
    return model_.layout(step).at(focus_.item, head, 0, focus_.index, key);
  }

  /// Returns the row of the focus query in a step.
  std::vector<double> own_row(const Step& step, std::int64_t head) const {
    const StepLayout layout = model_.layout(step);
    std::vector<double> row;
    for (std::int64_t d = 0; d < layout.cols; ++d) {
      row.push_back(layout.at(focus_.item, head, 0, focus_.index, d));
    }
    return row;
  }

  bool masked(std::int64_t head, std::int64_t key) const {
    return model_.masked(focus_.item, head, focus_.index, key);
  }

  /// Returns the scale for the bars of the visible keys in a step.
  Bars bars(const Step& step, std::int64_t head) const {
    Bars result;
    for (std::int64_t key = 0; key < model_.keys(); ++key) {
      if (!masked(head, key)) result.add(at_key(step, head, key));
    }
    return result;
  }

  /// Returns whether only some of the keys are shown.
  bool cut() const { return parts_.many() && model_.keys() > kTopKeys; }

  /// Returns the keys to show: all, or those with the largest weights if there are many.
  std::vector<std::int64_t> shown_keys(std::int64_t head) const {
    if (cut()) return top_keys(model_, head);
    std::vector<std::int64_t> all(static_cast<std::size_t>(model_.keys()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // ---- Rows ------------------------------------------------------------------------------------

  TableRow row_of(std::int64_t key) const {
    return {visible(model_.word(Axis::kKeys, focus_.item, key)),
            {},
            !scene_.source && key == focus_.index,
            {}};
  }

  std::string head_caption(std::int64_t head) const {
    return scene_.heads > 1 ? fmt::format("head {}", head) : std::string();
  }

  /// Returns "[0.43 0.15 …]" for each row, in the number format of the step, with aligned columns.
  std::vector<std::string> bracketed(const std::vector<std::vector<double>>& rows,
                                     const Step& step) const {
    if (rows.empty()) return {};
    const StepNumbers& how = model_.numbers(step);
    std::vector<std::string> result(rows.size());
    const auto count = static_cast<std::int64_t>(rows[0].size());
    for (const std::int64_t d : shown_positions(count, kFewInARow, -1)) {
      std::vector<std::string> column;
      for (const auto& row : rows) {
        column.push_back(d < 0 ? "…" : how.text(row[static_cast<std::size_t>(d)]));
      }
      align(column);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        result[i] += (result[i].empty() ? "[" : " ") + column[i];
      }
    }
    for (std::string& text : result) text += ']';
    return result;
  }

  std::string bracketed_own_row(const Step& step, std::int64_t head) const {
    return bracketed({own_row(step, head)}, step)[0];
  }

  /// Returns the parts of "SIGN SHARE * [0.43 0.15 …]".
  std::vector<std::string> row_parts(const std::string& sign, const std::string& share,
                                     const std::string& times, const std::vector<double>& row,
                                     const Step& step) const {
    std::vector<std::string> parts = {sign, share, times, "["};
    for (const std::int64_t d :
         shown_positions(static_cast<std::int64_t>(row.size()), kFewInARow, -1)) {
      parts.push_back(d < 0 ? "…" : model_.numbers(step).text(row[static_cast<std::size_t>(d)]));
    }
    parts.emplace_back("]");
    return parts;
  }

  bool sees_nothing() const {
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      for (std::int64_t key = 0; key < model_.keys(); ++key) {
        if (!masked(head, key)) return false;
      }
    }
    return true;
  }

  // ---- Scores ----------------------------------------------------------------------------------

  /// Returns the table of a parameter matrix that is not a step. Rows and columns are numbered.
  Table matrix(const std::string& caption, const TensorView& values) const {
    Table result{caption, {}, {}, false};
    const NumberText numbers(values, scene_.precision);
    const auto columns = shown_positions(values.extent(1), kFewInARow, -1);
    for (const std::int64_t j : columns) {
      result.columns.push_back({j < 0 ? "…" : fmt::format("{}", j)});
    }
    for (const std::int64_t i : shown_positions(values.extent(0), 2 * kFewInARow, -1)) {
      TableRow row{i < 0 ? "…" : "", {}, false, {}};
      for (const std::int64_t j : columns) {
        row.cells.push_back({i < 0 || j < 0 ? "…" : numbers.padded(values.value({i, j}))});
      }
      result.rows.push_back(std::move(row));
    }
    return result;
  }

  /// Adds the parameters of the general and the additive score, and the additive hidden layer.
  void add_score_weights(Section& scores) const {
    if (const auto* general = std::get_if<reference::GeneralScore>(&scene_.score_kind)) {
      scores.blocks.push_back(matrix("W", general->weights));
    }
    const auto* additive = std::get_if<reference::AdditiveScore>(&scene_.score_kind);
    if (additive == nullptr) return;
    scores.blocks.push_back(matrix("W", additive->query_weights));
    scores.blocks.push_back(matrix("U", additive->key_weights));
    const Tensor v = Tensor(additive->v).reshaped({1, additive->v->extent(0)});
    scores.blocks.push_back(matrix("v", v));
    if (parts_.many()) return;
    const StepLayout hidden = model_.layout(*parts_.find("hidden"));
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      Tensor rows(DType::kFloat64, {model_.keys(), hidden.cols});
      for_each_index(rows.shape(), [&](const Index& at) {
        rows.at<double>(at) = hidden.at(focus_.item, head, focus_.index, at[0], at[1]);
      });
      const std::string where = head_caption(head);
      Table layer = matrix(where.empty() ? "hidden layer" : "hidden layer, " + where, rows);
      const auto shown = shown_positions(rows.extent(0), 2 * kFewInARow, -1);
      for (std::size_t i = 0; i < shown.size(); ++i) {
        if (shown[i] >= 0) layer.rows[i].label = row_of(shown[i]).label;
      }
      scores.blocks.push_back(std::move(layer));
    }
  }

  std::string factor(double value, const StepNumbers* how) const {
    return how != nullptr ? how->text(value) : fmt::format("{:.{}g}", value, scene_.precision);
  }

  /// Returns each shown score as a written-out sum, "0.55*0.43 + 0.87*0.15 + ...", or nothing if
  /// the sums are long.
  std::vector<Cell> products(std::int64_t head) const {
    if (parts_.many()) return {};
    std::vector<std::vector<std::string>> terms;  // [term][key], to align each term
    std::vector<Cell> result(static_cast<std::size_t>(model_.keys()));
    for (std::int64_t key = 0; key < model_.keys(); ++key) {
      const ScoreTerms sum = score_terms(model_, head, focus_, key);
      if (sum.factors.empty() || sum.factors.size() > kFewTerms) return {};
      terms.resize(sum.factors.size());
      for (std::size_t d = 0; d < terms.size(); ++d) {
        const auto& [left, right] = sum.factors[d];
        const std::string a = factor(left, sum.left);
        const std::string b = factor(right, sum.right);
        terms[d].push_back(a + '*' + b);
        auto& parts = result[static_cast<std::size_t>(key)].parts;
        parts.insert(parts.end(), {a, "*", b, d + 1 < terms.size() ? "+" : "="});
      }
    }
    for (auto& term : terms) align(term);
    for (std::size_t key = 0; key < result.size(); ++key) {
      std::vector<std::string> sum;
      for (const auto& term : terms) sum.push_back(term[key]);
      result[key].text = fmt::format("{} =", fmt::join(sum, " + "));
    }
    return result;
  }

  Table score_table(std::int64_t head) const {
    Table result{head_caption(head), {}, {}, false};
    const auto sums = products(head);
    if (!sums.empty()) result.columns.push_back({"", true, 1});
    const std::vector<const Step*> stages = model_.score_steps();
    for (const Step* stage : stages) {
      const auto underscore = stage->name.find('_');
      const bool first = underscore == std::string::npos;
      result.columns.push_back({first ? "score" : stage->name.substr(0, underscore)});
    }
    // A single column of scores needs no header in addition to the section title.
    if (stages.size() == 1) result.columns.back().header.clear();
    result.columns.push_back({"", true, 2});

    const Bars scale = bars(*stages.back(), head);
    for (const std::int64_t key : shown_keys(head)) {
      TableRow row = row_of(key);
      if (!sums.empty()) row.cells.push_back(sums[static_cast<std::size_t>(key)]);
      for (const Step* stage : stages) {
        const bool hidden = stage->name == "masked_scores" && masked(head, key);
        row.cells.push_back({hidden ? std::string(kMaskedMark)
                                    : model_.numbers(*stage).text(at_key(*stage, head, key))});
      }
      row.cells.push_back(masked(head, key) ? Cell()
                                            : scale.cell(at_key(*stages.back(), head, key)));
      result.rows.push_back(std::move(row));
    }
    return result;
  }

  // ---- Weights and context ---------------------------------------------------------------------

  /// Returns the column's header, and the order in which columns are omitted if the table is too
  /// wide: the bars, what the naive softmax divides, and what the section before has shown already.
  static Column header(const SoftmaxColumn& column) {
    const bool softmax = column.kind == reference::Normalization::kSoftmax;
    switch (column.part) {
      case SoftmaxColumn::Part::kScore:
        return {english().plain("softmax.score"), false, 3};
      case SoftmaxColumn::Part::kShifted:
        return {english().plain("softmax.shifted"), false, 2};
      case SoftmaxColumn::Part::kExponential:
        return {english().plain(softmax ? "softmax.exponential" : "softmax.naive_exponential"),
                false, softmax ? 1 : 4};
      case SoftmaxColumn::Part::kWeight:
        return {std::string(normalization_label(column.kind))};
    }
    return {};
  }

  Table weight_table(std::int64_t head) const {
    const SoftmaxTable softmax(model_, head);
    Table result{head_caption(head), {}, {}, false};
    for (const SoftmaxColumn& column : softmax.columns()) result.columns.push_back(header(column));
    result.columns.push_back({"", true, 5});
    const SoftmaxColumn& last = softmax.columns().back();
    const Bars scale = bars(*last.step, head);
    for (const std::int64_t key : shown_keys(head)) {
      TableRow row = row_of(key);
      const bool hidden = masked(head, key);
      for (const SoftmaxColumn& column : softmax.columns()) {
        row.cells.push_back(
            {hidden ? std::string(kMaskedMark) : softmax.text(column, softmax.value(column, key))});
      }
      row.cells.push_back(hidden ? Cell() : scale.cell(softmax.value(last, key)));
      result.rows.push_back(std::move(row));
    }
    if (cut()) {
      result.rows.push_back({"…", std::vector<Cell>(softmax.columns().size(), {"…"}), false, {}});
    }
    add_totals(result, softmax);
    return result;
  }

  /// Adds the rows of the sink, the maximum and the sums.
  static void add_totals(Table& table, const SoftmaxTable& softmax) {
    TableRow sink{english().plain("softmax.sink"), {}, false, {}};
    TableRow maximum{english().plain("softmax.max"), {}, false, {}};
    TableRow sum{english().plain("softmax.sum"), {}, false, {}};
    const std::optional<double> most = softmax.maximum();
    for (const SoftmaxColumn& column : softmax.columns()) {
      if (softmax.sink()) sink.cells.push_back({softmax.text(column, softmax.sink_value(column))});
      const bool score = column.part == SoftmaxColumn::Part::kScore;
      maximum.cells.push_back({score && most ? softmax.text(column, *most) : ""});
      sum.cells.push_back({softmax.total_text(column)});
    }
    if (softmax.sink()) table.rows.push_back(std::move(sink));
    if (most) table.rows.push_back(std::move(maximum));
    table.rows.push_back(std::move(sum));
  }

  /// Adds the share of the sink, and the reason why a naive softmax fails, for the first head that
  /// has one.
  void add_weight_remarks(Section& weights) const {
    const auto add = [&](std::int64_t head, const std::string& remark) {
      const std::string where = head_caption(head);
      if (!remark.empty()) {
        weights.remarks.push_back(where.empty() ? remark : where + ": " + remark);
      }
      return !remark.empty();
    };
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      add(head, sink_remark(SoftmaxTable(model_, head)));
    }
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      if (add(head, naive_remark(model_, head))) return;
    }
  }

  Table context_table(std::int64_t head) const {
    Table result{head_caption(head), {{"", true}}, {}, false};
    const Step& weights = *parts_.find("weights");
    std::vector<std::string> shares;
    std::vector<std::vector<double>> numbers;
    std::vector<std::int64_t> keys;
    const Step* value_step = nullptr;
    for (const std::int64_t key : shown_keys(head)) {
      if (masked(head, key)) continue;
      keys.push_back(key);
      shares.push_back(model_.numbers(weights).text(at_key(weights, head, key)));
      auto value = operand(model_, "value", head, {focus_.item, key});
      numbers.push_back(std::move(value->numbers));
      value_step = value->step;
    }
    align(shares);
    const auto values =
        value_step == nullptr ? std::vector<std::string>() : bracketed(numbers, *value_step);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      TableRow row = row_of(keys[i]);
      const std::string sign = i == 0 ? "" : "+";
      Cell sum{fmt::format("{:1} {} * {}", sign, shares[i], values[i])};
      sum.parts = row_parts(sign, shares[i], "*", numbers[i], *value_step);
      row.cells.push_back(std::move(sum));
      result.rows.push_back(std::move(row));
    }
    if (cut()) {
      Cell more{"+ …"};
      more.parts = {"+", "…"};
      result.rows.push_back({"…", {std::move(more)}, false, {}});
    }
    const Step& context = *parts_.find("context");
    Cell sum{"= " + bracketed_own_row(context, head)};
    sum.parts = row_parts("=", "", "", own_row(context, head), context);
    result.rows.push_back({"", {std::move(sum)}, false, {}});
    return result;
  }

  const StoryParts& parts_;
  const TraceModel& model_;
  const Scene& scene_;
  Focus focus_;
};

}  // namespace

std::vector<Section> tell_word(const StoryParts& parts) { return WordTeller(parts).tell(); }

}  // namespace fovea::scene
