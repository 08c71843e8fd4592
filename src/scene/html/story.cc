// SPDX-License-Identifier: Apache-2.0
//
// The story of one word (story.h), with numbers from rows of the whole-matrix steps. page/story.js
// builds the same tables from the same rows for other words (FILL), so both files must change
// together.

#include "scene/html/story.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "scene/html/mathml.h"
#include "scene/html/table.h"
#include "scene/read/step_catalogue.h"
#include "scene/tell/story.h"
#include "scene/trace/score_terms.h"
#include "scene/trace/softmax_table.h"
#include "scene/trace/top_keys.h"
#include "text/html_escape.h"

namespace fovea::scene::html {
namespace {

/// Formats a factor of a written-out sum, without trailing zeros.
std::string factor(double value, int precision) {
  std::string text = fmt::format("{:.{}f}", value, precision);
  if (value != 0.0 && std::abs(value) < std::pow(10.0, -precision)) {
    return fmt::format("{:.2e}", value);
  }
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

class Story {
 public:
  Story(const TraceModel& model, const Texts& texts)
      : model_(model), texts_(texts), scene_(model.scene()), focus_(*model.scene().focus) {}

  std::vector<PageSection> tell() {
    tell_word();
    tell_matrix("hidden");
    tell_scores();
    tell_weights();
    tell_context();
    return std::move(sections_);
  }

 private:
  bool sinks() const { return !scene_.options.score.sinks.empty(); }
  std::string word() const {
    return fmt::format("<span class=\"focus-word\">{}</span>",
                       isolate(model_.word(Axis::kQueries, focus_.item, focus_.index)));
  }

  PageSection section(std::string_view id) const {
    const std::string title = texts_(fmt::format("story.{}", id), {{"word", word()}});
    return {fmt::format("story-{}", id), {}, title, {}, {}, {}, {}};
  }

  /// Adds a step and its formula to the section. Returns false if the trace does not have the step.
  bool claim(PageSection& target, const std::string& name, bool with_formula = true) const {
    if (model_.find("focus." + name) == nullptr) return false;
    target.steps.push_back("focus." + name);
    if (with_formula) target.formulas.push_back(step_mathml("focus." + name, scene_, texts_));
    return true;
  }

  /// Returns one <figure> per head; `make` returns its contents.
  template <class Make>
  std::string each_head(std::string_view kind, Make&& make) const {
    std::string out = "<div class=\"maps\">\n";
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      out += fmt::format("<figure class=\"tale\" data-kind=\"{}\"{}>", kind,
                         head_data(head, scene_.heads));
      if (scene_.heads > 1) {
        out += fmt::format("<figcaption>{}</figcaption>",
                           texts_("place.head", {{"n", std::to_string(head)}}));
      }
      out += fmt::format("<div class=\"scroll\">{}</div></figure>\n", make(head));
    }
    return out + "</div>\n";
  }

  static std::string column(std::string_view step, std::string_view title) {
    const std::string data = step.empty() ? "" : fmt::format(" data-step=\"focus.{}\"", step);
    return fmt::format("<th scope=\"col\"{}>{}</th>", data, title);
  }

  std::string key_heading(std::int64_t key) const {
    return heading("row", model_.word(Axis::kKeys, focus_.item, key), "");
  }

  std::string written_out(std::int64_t head, std::int64_t key) const {
    const ScoreTerms terms = score_terms(model_, head, focus_, key);
    std::string out;
    for (const auto& [a, b] : terms.factors) {
      if (!out.empty()) out += " + ";
      const std::string right = write(b, terms.right);
      out += write(a, terms.left) + "\u00B7" + (b < 0 ? "(" + right + ")" : right);
    }
    return out;
  }

  std::string write(double value, const StepNumbers* how) const {
    return how != nullptr ? how->text(value) : factor(value, scene_.precision);
  }

  /// Returns the keys to list: all, or those with the largest weights.
  std::vector<std::int64_t> listed_keys(std::int64_t head) const {
    if (cut()) return top_keys(model_, head);
    std::vector<std::int64_t> keys(static_cast<std::size_t>(model_.keys()));
    std::iota(keys.begin(), keys.end(), 0);
    return keys;
  }

  bool cut() const { return model_.keys() > kMaxTableRows; }

  /// Returns a row with the heading "… 288 more" if keys are omitted.
  std::string rest_row(std::size_t columns) const {
    if (!cut()) return "";
    return fmt::format(
        "<tr class=\"rest\"><th scope=\"row\">{}</th><td colspan=\"{}\">{}</td></tr>\n",
        texts_("story.more", {{"n", std::to_string(model_.keys() - kTopKeys)}}), columns,
        texts_("story.most"));
  }

  // ---- Sections --------------------------------------------------------------------------------

  void tell_word() {
    PageSection out = section("word");
    claim(out, "tokens", false);
    std::vector<std::string> parts;
    for (const char* name : {"embeddings", "query", "key", "value"}) {
      if (claim(out, name)) parts.emplace_back(name);
    }
    out.reading = texts_(parts.size() > 1 ? (scene_.direct ? "story.direct" : "story.views")
                         : scene_.source  ? "story.query_row"
                                          : "story.row");
    const auto table = [&](std::int64_t head) {
      std::string rows;
      for (const std::string& part : parts) {
        const bool whole = part == "embeddings";
        std::vector<double> numbers;
        const Step* step = model_.find(part);
        const StepLayout layout = model_.layout(*step);
        if (whole) {
          for (std::int64_t d = 0; d < layout.cols; ++d) {
            numbers.push_back(layout.at(focus_.item, 0, 0, focus_.index, d));
          }
        } else {
          numbers = operand(model_, part, head, focus_)->numbers;
        }
        rows += fmt::format("<tr data-step=\"focus.{}\"><th scope=\"row\">{}</th>", part,
                            texts_("name." + part));
        rows += number_cells(numbers, model_.numbers(*step)) + "</tr>\n";
      }
      return "<table class=\"heat\"><tbody>\n" + rows + "</tbody></table>";
    };
    out.body = each_head("word", table);
    sections_.push_back(std::move(out));
  }

  static std::string number_cells(const std::vector<double>& numbers, const StepNumbers& how) {
    std::string out;
    for (std::size_t d = 0; d < numbers.size(); ++d) {
      if (static_cast<std::int64_t>(d) == kMaxShownNumbers) return out + "<td>\u2026</td>";
      out += heat_cell(how, numbers[d]);
    }
    return out;
  }

  void tell_matrix(const std::string& name) {
    PageSection out = section(name);
    const Step* step = model_.find(name);
    if (!claim(out, name) || step == nullptr) return;
    out.reading = escape(step_reading(name, sinks(), texts_));
    const StepLayout layout = model_.layout(*step);
    const StepNumbers& how = model_.numbers(*step);
    out.body = each_head("hidden", [&](std::int64_t head) {
      std::string rows;
      for (const std::int64_t key : listed_keys(head)) {
        std::vector<double> numbers;
        for (std::int64_t d = 0; d < layout.cols; ++d) {
          numbers.push_back(layout.at(focus_.item, head, focus_.index, key, d));
        }
        rows += "<tr>" + key_heading(key) + number_cells(numbers, how) + "</tr>\n";
      }
      return "<table class=\"heat\"><tbody>\n" + rows + rest_row(1) + "</tbody></table>";
    });
    sections_.push_back(std::move(out));
  }

  /// A column of key_table().
  struct Column {
    std::string step;
    std::string title;
  };
  /// Returns a table of keys: one column per step, bars after the last one, and an optional footer.
  std::string key_table(std::int64_t head, const std::vector<Column>& columns, bool products,
                        const std::string& footer) const {
    std::string out = "<table class=\"list\"><thead><tr><td></td>";
    if (products) {
      out += fmt::format("<th scope=\"col\" class=\"terms\">{}</th>", texts_("name.products"));
    }
    for (const Column& c : columns) out += column(c.step, c.title);
    out += "<td></td></tr></thead><tbody>\n";
    std::vector<StepLayout> steps;
    for (const Column& c : columns) steps.push_back(model_.layout(*model_.find(c.step)));
    const auto hidden = [&](const StepLayout& layout, std::int64_t key) {
      // In the table of weights, all numbers of a masked key are hidden.
      return (layout.maskable || !footer.empty()) &&
             model_.masked(focus_.item, head, focus_.index, key);
    };
    const auto number = [&](const StepLayout& layout, std::int64_t key) {
      return layout.at(focus_.item, head, 0, focus_.index, key);
    };
    bool axis = false;
    for (std::int64_t key = 0; key < model_.keys(); ++key) {
      const double last = number(steps.back(), key);
      axis = axis || (!hidden(steps.back(), key) && std::isfinite(last) && last < 0.0);
    }
    for (const std::int64_t key : listed_keys(head)) {
      out += "<tr>" + key_heading(key);
      if (products) out += "<td class=\"terms\">" + written_out(head, key) + " =</td>";
      for (const StepLayout& layout : steps) {
        out += hidden(layout, key)
                   ? masked_cell(texts_)
                   : number_cell(model_.numbers(*layout.step).text(number(layout, key)));
      }
      out += hidden(steps.back(), key) ? "<td></td>"
                                       : bar(steps.back(), number(steps.back(), key), axis);
      out += "</tr>\n";
    }
    out += rest_row(columns.size() + (products ? 2 : 1)) + "</tbody>";
    if (!footer.empty()) out += "<tfoot>" + footer + "</tfoot>";
    return out + "</table>";
  }

  static std::string number_cell(const std::string& text, const std::string& attributes = "") {
    return fmt::format("<td{}>{}</td>", attributes, escape(text));  // "<0.0001"
  }

  /// Returns a bar. If any number of the table is negative, bars start at an axis in the middle.
  std::string bar(const StepLayout& layout, double value, bool axis) const {
    if (!std::isfinite(value) || (value == 0.0 && !axis)) return "<td></td>";
    const double largest = model_.numbers(*layout.step).largest();
    return fmt::format("<td class=\"bar-cell{}{}{}\" style=\"--v:{:.3f}\"><i>\u00A0</i></td>",
                       value < 0 ? " n" : "", layout.weights ? " share" : "", axis ? " axis" : "",
                       largest > 0 ? std::abs(value) / largest : 0.0);
  }

  void tell_scores() {
    PageSection out = section("scores");
    std::vector<Column> columns;
    for (const std::string step :
         {"scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"}) {
      if (claim(out, step)) columns.push_back({step, texts_("column." + step)});
    }
    if (columns.empty()) return;
    out.reading = texts_("story.match", {{"word", word()}});
    const auto count = static_cast<std::int64_t>(score_terms(model_, 0, focus_, 0).factors.size());
    const bool products = count > 0 && count <= kMaxTerms;
    out.body = each_head("scores",
                         [&](std::int64_t head) { return key_table(head, columns, products, ""); });
    // For other words too, a mask is shown in this table first, if it is a step.
    if (model_.any_mask() && columns.back().step == "masked_scores")
      out.body += mask_legend(texts_);
    out.body += fmt::format("<p class=\"small scale-remark\">{}</p>\n",
                            escape(scale_remark(model_, texts_)));
    sections_.push_back(std::move(out));
  }

  // ---- The table of softmax --------------------------------------------------------------------

  std::string softmax_title(const SoftmaxColumn& column) const {
    switch (column.part) {
      case SoftmaxColumn::Part::kScore:
        return texts_("softmax.score");
      case SoftmaxColumn::Part::kShifted:
        return texts_("softmax.shifted");
      case SoftmaxColumn::Part::kExponential:
        return texts_(column.kind == reference::Normalization::kSoftmax
                          ? "softmax.exponential"
                          : "softmax.naive_exponential");
      case SoftmaxColumn::Part::kWeight:
        return escape(normalization_label(column.kind, texts_));
    }
    return {};
  }

  /// Returns a row below the keys; `cell` returns the text of a column, or "".
  template <class Cell>
  std::string total_row(const SoftmaxTable& table, std::string_view kind, Cell&& cell) const {
    std::string out = fmt::format("<tr data-total=\"{}\"><th scope=\"row\">{}</th>", kind,
                                  texts_(fmt::format("softmax.{}", kind)));
    for (const SoftmaxColumn& column : table.columns()) {
      const std::string text = cell(column);
      const bool stored = kind == "sum" && column.sums != nullptr;
      out += number_cell(text,
                         stored ? fmt::format(" data-step=\"focus.{}\"", column.sums->name) : "");
    }
    return out + "<td></td></tr>\n";
  }

  std::string remark_row(const SoftmaxTable& table, const std::string& remark) const {
    if (remark.empty()) return "";
    return fmt::format("<tr class=\"remark\"><td colspan=\"{}\">{}</td></tr>\n",
                       table.columns().size() + 2, escape(remark));
  }

  /// Returns the rows of the sink, the maximum and the sums, and remarks. page/story.js writes the
  /// same for other words (softmaxTotals).
  std::string softmax_totals(const SoftmaxTable& table, std::int64_t head) const {
    std::string out;
    if (table.sink()) {
      out += total_row(table, "sink", [&](const SoftmaxColumn& column) {
        return table.text(column, table.sink_value(column));
      });
    }
    if (const auto most = table.maximum()) {
      out += total_row(table, "max", [&](const SoftmaxColumn& column) {
        return column.part == SoftmaxColumn::Part::kScore ? table.text(column, *most) : "";
      });
    }
    out += total_row(table, "sum",
                     [&](const SoftmaxColumn& column) { return table.total_text(column); });
    return out + remark_row(table, sink_remark(table, texts_)) +
           remark_row(table, naive_remark(model_, head, texts_));
  }

  void tell_weights() {
    PageSection out = section("weights");
    for (const reference::Normalization kind : scene_.normalizations) {
      const bool last = kind == scene_.normalizations.back();
      const std::string suffix = last ? "" : fmt::format("[{}]", normalization_name(kind));
      for (const char* part : {"shifted_scores", "exponentials", "exponential_sums"}) {
        claim(out, part + suffix, false);
      }
      claim(out, "weights" + suffix);
      claim(out, "row_sums" + suffix, false);
    }
    out.reading = escape(step_reading("weights", sinks(), texts_));
    if (scene_.normalizations.size() > 1 && !sinks()) {
      const auto name = normalization_label(scene_.normalizations.back(), texts_);
      out.reading = texts_("story.normalizations", {{"name", escape(name)}});
    }
    out.body = each_head("weights", [&](std::int64_t head) {
      const SoftmaxTable table(model_, head);
      std::vector<Column> columns;
      for (const SoftmaxColumn& column : table.columns()) {
        columns.push_back({column.step->name, softmax_title(column)});
      }
      return key_table(head, columns, false, softmax_totals(table, head));
    });
    if (model_.any_mask() && model_.find("masked_scores") == nullptr) {
      out.body += mask_legend(texts_);
    }
    sections_.push_back(std::move(out));
  }

  void tell_context() {
    PageSection out = section("context");
    const Step* context = model_.find("context");
    const Step* weights = model_.find("weights");
    if (!claim(out, "context") || context == nullptr || weights == nullptr) return;
    claim(out, "merged_context");
    out.reading = escape(step_reading("context", sinks(), texts_));
    const StepLayout result = model_.layout(*context);
    const StepLayout share = model_.layout(*weights);
    const StepNumbers& result_how = model_.numbers(*context);
    const StepNumbers& share_how = model_.numbers(*weights);
    out.body = each_head("context", [&](std::int64_t head) {
      std::string rows;
      for (const std::int64_t key : listed_keys(head)) {
        const auto value = operand(model_, "value", head, {focus_.item, key});
        if (!value || (share.maskable && model_.masked(focus_.item, head, focus_.index, key))) {
          continue;
        }
        rows += fmt::format(
            "<tr>{}<td class=\"weight\">{}</td><td class=\"times\">\u00B7</td>{}</tr>\n",
            key_heading(key),
            escape(share_how.text(share.at(focus_.item, head, 0, focus_.index, key))),
            number_cells(value->numbers, model_.numbers(*value->step)));
      }
      if (rows.empty()) {
        rows = fmt::format("<tr><th scope=\"row\">\u2013</th><td colspan=\"3\">{}</td></tr>\n",
                           texts_("story.no_key"));
      }
      std::vector<double> numbers;
      for (std::int64_t d = 0; d < result.cols; ++d) {
        numbers.push_back(result.at(focus_.item, head, 0, focus_.index, d));
      }
      return fmt::format(
          "<table class=\"heat list\"><thead><tr><td></td><th scope=\"col\">{}</th><td></td>"
          "<th scope=\"colgroup\" colspan=\"{}\">{}</th></tr></thead><tbody>\n{}{}</tbody>"
          "<tfoot><tr data-step=\"focus.context\"><th scope=\"row\" colspan=\"2\">{}</th>"
          "<td class=\"times\">=</td>{}</tr></tfoot></table>",
          texts_("name.weight"), std::min(result.cols, kMaxShownNumbers + 1), texts_("name.value"),
          rows, rest_row(3), texts_("name.context"), number_cells(numbers, result_how));
    });
    append_merged(out);
    sections_.push_back(std::move(out));
  }

  void append_merged(PageSection& out) const {
    const Step* merged = model_.find("merged_context");
    if (merged == nullptr || model_.find("focus.merged_context") == nullptr) return;
    const StepLayout layout = model_.layout(*merged);
    std::vector<double> numbers;
    for (std::int64_t d = 0; d < layout.cols; ++d) {
      numbers.push_back(layout.at(focus_.item, 0, 0, focus_.index, d));
    }
    out.body += fmt::format(
        "<figure class=\"tale\" data-kind=\"merged\" "
        "data-head=\"0\"><figcaption>{}</figcaption><div class=\"scroll\"><table "
        "class=\"heat\"><tbody>"
        "<tr data-step=\"focus.merged_context\"><th scope=\"row\">{}</th>{}</tr>"
        "</tbody></table></div></figure>\n",
        texts_("story.merged"), texts_("name.context"),
        number_cells(numbers, model_.numbers(*merged)));
  }

  const TraceModel& model_;
  const Texts& texts_;
  const Scene& scene_;
  Focus focus_;
  std::vector<PageSection> sections_;
};

}  // namespace

std::vector<PageSection> story_sections(const TraceModel& model, const Texts& texts) {
  if (!model.scene().focus) return {};
  return Story(model, texts).tell();
}

}  // namespace fovea::scene::html
