// SPDX-License-Identifier: Apache-2.0

#include "scene/story.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "scene/number_text.h"
#include "scene/scene_parts.h"
#include "scene/step_catalogue.h"
#include "scene/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::int64_t kFewColumns = 16;  // of an array of numbers
constexpr std::int64_t kFewTerms = 6;     // of a product that is written out
constexpr std::int64_t kFewInARow = 8;    // of numbers in brackets
constexpr int kBarColumns = 20;
constexpr std::size_t kTopWords = 10;
const std::string kMasked = "·";

std::vector<std::string> visible_words(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (const std::string& word : words) result.push_back(visible(word));
  return result;
}

/// A bar for a share of the largest value; empty for what is not positive.
std::string bar(double value, double largest) {
  if (!(value > 0) || !(largest > 0) || !std::isfinite(value)) return "";
  const double columns = std::round(kBarColumns * value / largest);
  return std::string(static_cast<std::size_t>(columns), '#');
}

/// The positions shown of `count`: all of a few; otherwise the first, the last and those around
/// `keep`, with -1 for what is left out.
std::vector<std::int64_t> shown(std::int64_t count, std::int64_t few, std::int64_t keep) {
  const std::int64_t first = few / 2;
  const std::int64_t last = few / 4;
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i) {
    if (count <= few || i < first || i >= count - last || i == keep) {
      result.push_back(i);
    } else if (result.back() != -1) {
      result.push_back(-1);
    }
  }
  return result;
}

class Storyteller {
 public:
  explicit Storyteller(const Trace& trace)
      : trace_(trace), scene_(trace.scene), many_(is_large(trace.scene)) {}

  Story tell() {
    story_.title = visible(scene_.title);
    story_.summary = visible(summarize(scene_));
    story_.notes = notes({"scene"});
    tell_inputs();
    if (scene_.focus) tell_focus();
    tell_all();
    return std::move(story_);
  }

 private:
  static bool is_large(const Scene& scene) {
    const Sequence& source = scene.source ? *scene.source : scene.words;
    return std::max(scene.words.length(), source.length()) > kFewWords;
  }

  // ---- Parts -----------------------------------------------------------------------------------

  const Step* find(const std::string& name) const { return trace_.find(name); }

  std::vector<std::string> notes(const std::vector<std::string>& steps) const {
    std::vector<std::string> result;
    for (const auto& [name, note] : scene_.notes) {
      const bool here =
          std::any_of(steps.begin(), steps.end(),
                      [&name = name](const std::string& step) { return name == step; });
      if (here) result.push_back(visible(note));
    }
    return result;
  }

  Section section(std::string title, const std::string& step) const {
    const StepInfo& info = step_info(step);
    const Step* found = find(step);
    return {visible(title),
            std::string(found != nullptr ? std::string_view(found->formula) : info.formula),
            std::string(info.reading),
            {},
            {},
            {}};
  }

  std::vector<std::string> words(std::int64_t item) const {
    return visible_words(scene_.words.tokens[static_cast<std::size_t>(item)]);
  }
  std::vector<std::string> key_words(std::int64_t item) const {
    return scene_.source ? visible_words(scene_.source->tokens[static_cast<std::size_t>(item)])
                         : words(item);
  }
  std::string focus_name() const { return fmt::format("\"{}\"", visible(focus_word(scene_))); }
  bool is_focus(std::int64_t item, std::int64_t i) const {
    return scene_.focus && *scene_.focus == Focus{item, i};
  }

  /// Calls `visit(caption, item, matrix)` for every matrix of a step: one per head and batch item.
  template <class Visitor>
  void for_each_matrix(const Step& step, const std::string& name, Visitor&& visit) const {
    const std::string& base = step.name;
    const bool has_batch = scene_.batched && !base.ends_with("_weights");
    Shape leading;
    for (int dim = 0; dim + 2 < step.shape.rank(); ++dim) leading.push_back(step.shape[dim]);
    for_each_index(leading, [&](const Index& at) {
      TensorView matrix = step.values;
      std::string caption = name;
      std::int64_t item = 0;
      for (int dim = 0; dim < at.rank(); ++dim) {
        matrix = matrix[at[dim]];
        const bool is_item = dim == 0 && has_batch;
        if (is_item) item = at[dim];
        if (!is_item || scene_.words.tokens.size() > 1) {
          caption += fmt::format(", {} {}", is_item ? "item" : "head", at[dim]);
        }
      }
      if (caption.starts_with(", ")) caption.erase(0, 2);
      visit(caption, item, matrix);
    });
  }

  /// A matrix as a table; rows are `labels`, columns `headers` (or numbers, when empty).
  Table table(const std::string& caption, const TensorView& matrix,
              const std::vector<std::string>& labels, const std::vector<std::string>& headers,
              std::int64_t focus_row, bool heat) const {
    Table result{caption, {}, {}, heat};
    const auto columns = shown(matrix.extent(1), kFewColumns, -1);
    const auto rows = shown(matrix.extent(0), kFewColumns, focus_row);
    for (const std::int64_t j : columns) {
      result.columns.push_back({j < 0             ? "…"
                                : headers.empty() ? fmt::format("{}", j)
                                                  : headers[static_cast<std::size_t>(j)]});
    }
    const NumberText numbers(matrix, scene_.precision);
    double hottest = 0.0;  // shades run from 0 to the largest number
    for_each_index(matrix.shape(), [&](const Index& at) {
      if (std::isfinite(matrix.value(at))) hottest = std::max(hottest, matrix.value(at));
    });
    for (const std::int64_t i : rows) {
      TableRow row;
      row.label = i < 0 ? "…" : labels.empty() ? "" : labels[static_cast<std::size_t>(i)];
      row.focus = i >= 0 && i == focus_row;
      for (const std::int64_t j : columns) {
        if (i < 0 || j < 0) {
          row.cells.push_back({"…"});
          continue;
        }
        const double value = matrix.value({i, j});
        row.cells.push_back({value == -HUGE_VAL ? kMasked : numbers.padded(value),
                             !heat                                   ? Cell().heat
                             : std::isfinite(value) && hottest > 0.0 ? value / hottest
                                                                     : value});
      }
      result.rows.push_back(std::move(row));
    }
    return result;
  }

  // ---- What goes in ----------------------------------------------------------------------------

  void add_matrices(Section& target, const std::string& name, const std::string& caption,
                    bool keys = false) const {
    const Step* step = find(name);
    if (step == nullptr) return;
    const bool is_weights = name.ends_with("_weights");
    for_each_matrix(
        *step, caption, [&](const std::string& text, std::int64_t item, const TensorView& matrix) {
          const auto labels = is_weights ? std::vector<std::string>()
                              : keys     ? key_words(item)
                                         : words(item);
          const bool marked = !is_weights && (!keys || !scene_.source);
          const std::int64_t focus_row =
              marked && scene_.focus && scene_.focus->item == item ? scene_.focus->index : -1;
          Table made = table(text, matrix, labels, {}, focus_row, false);
          if (name == "embeddings") {
            for (TableRow& row : made.rows) {
              if (row.focus) row.remark = "the query";
            }
          }
          target.blocks.push_back(std::move(made));
        });
  }

  void tell_inputs() {
    Section embeddings = section("Embeddings", "embeddings");
    add_matrices(embeddings, "embeddings", scene_.source ? "words" : "");
    add_matrices(embeddings, "source_embeddings", "source", true);
    embeddings.notes = notes({"tokens", "embeddings", "source_tokens", "source_embeddings"});
    if (!scene_.words.drawn.empty()) {
      embeddings.remarks.push_back(fmt::format("Drawn at random: {}.", scene_.words.drawn));
    }
    story_.sections.push_back(std::move(embeddings));
    if (!scene_.projections) return;

    Section projections{"Queries, keys and values",
                        "query = x W_Q, key = x W_K, value = x W_V",
                        "Three views of each word: what it asks for, what it can be found by, and "
                        "what it passes on.",
                        {},
                        {},
                        {}};
    add_matrices(projections, "query_weights", "W_Q");
    add_matrices(projections, "key_weights", "W_K");
    add_matrices(projections, "value_weights", "W_V");
    add_matrices(projections, "query", "query");
    add_matrices(projections, "key", "key", true);
    add_matrices(projections, "value", "value", true);
    projections.notes = notes({"query_weights", "key_weights", "value_weights", "query", "key",
                               "value", "focus.query", "focus.key", "focus.value"});
    if (!scene_.projections->drawn.empty()) {
      projections.remarks.push_back(fmt::format("Drawn at random: {}.", scene_.projections->drawn));
    }
    story_.sections.push_back(std::move(projections));
  }

  // ---- One word --------------------------------------------------------------------------------

  /// A focus step's row for one head.
  TensorView row(const Step& step, std::int64_t head) const {
    const TensorView values = step.values;
    return scene_.heads > 1 ? values[head] : values;
  }

  std::string head_caption(std::int64_t head) const {
    return scene_.heads > 1 ? fmt::format("head {}", head) : std::string();
  }

  /// The two factors of each product that a score sums up, written out: "0.55*0.43 + 0.87*0.15".
  std::vector<std::string> products(std::int64_t head) const {
    const bool additive = std::holds_alternative<reference::AdditiveScore>(scene_.score_kind);
    const auto* general = std::get_if<reference::GeneralScore>(&scene_.score_kind);
    TensorView left, right;  // [terms], [keys, terms]
    Tensor projected;
    if (additive) {
      left = std::get<reference::AdditiveScore>(scene_.score_kind).v;
      right = row(*find("focus.hidden"), head);
    } else {
      left = head_row("query", scene_.words.embeddings, scene_.heads, head)[scene_.focus->index];
      const Sequence& source = scene_.source ? *scene_.source : scene_.words;
      right = head_row("key", source.embeddings, scene_.kv_heads,
                       head / (scene_.heads / scene_.kv_heads));
    }
    if (general != nullptr) {
      projected = Tensor(DType::kFloat64, {right.extent(1)});
      for (std::int64_t e = 0; e < right.extent(1); ++e) {
        for (std::int64_t d = 0; d < left.extent(0); ++d) {
          projected.at<double>({e}) += left.value({d}) * general->weights.value({d, e});
        }
      }
      left = projected;
    }
    if (left.extent(0) > kFewTerms) return {};
    const NumberText left_text(left, scene_.precision);
    const NumberText right_text(right, scene_.precision);
    std::vector<std::string> result;
    for (std::int64_t j = 0; j < right.extent(0); ++j) {
      std::string sum;
      for (std::int64_t d = 0; d < left.extent(0); ++d) {
        const std::string left_factor = left_text.trimmed(left.value({d}));
        const auto term_width =
            left_factor.size() + 1 + static_cast<std::size_t>(right_text.width());
        const std::string term = left_factor + '*' + right_text.trimmed(right.value({j, d}));
        sum += fmt::format("{}{:>{}}", d == 0 ? "" : " + ", term, term_width);
      }
      result.push_back(std::move(sum));
    }
    return result;
  }

  /// The focus item's rows of a projected step for one head; without projections, that head's part
  /// of the embeddings.
  TensorView head_row(const std::string& step, const Tensor& embeddings, std::int64_t heads,
                      std::int64_t head) const {
    TensorView rows;
    if (const Step* found = find(step)) {
      rows = found->values;
      if (scene_.batched) rows = rows[scene_.focus->item];
      return scene_.heads > 1 ? rows[head] : rows;
    }
    const std::int64_t dim = embeddings.extent(2) / heads;
    const TensorView item = embeddings.view()[scene_.focus->item];
    return TensorView(static_cast<const double*>(item.data()) + head * dim, DType::kFloat64,
                      {item.extent(0), dim}, item.strides());
  }

  /// The keys shown: all of a few; of many, those with the largest weights.
  std::vector<std::int64_t> shown_keys(std::int64_t head) const {
    const TensorView weights = row(*find("focus.weights"), head);
    std::vector<std::int64_t> order(static_cast<std::size_t>(weights.extent(0)));
    std::iota(order.begin(), order.end(), 0);
    if (!many_) return order;
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return weights.value({a}) > weights.value({b});
    });
    order.resize(std::min(order.size(), kTopWords));
    return order;
  }

  void tell_focus() {
    const std::string name = focus_name();
    Section scores = section("Scores of " + name, "focus.scores");
    scores.reading = fmt::format("How well does each word match {}?", name);
    Section weights = section("Weights of " + name, "focus.weights");
    if (scene_.normalizations.size() > 1) {
      weights.reading = fmt::format(
          "Several ways to make the scores add up to one; {} is the one used from here on.",
          normalization_label(scene_.normalizations.back()));
    }
    Section context = section("Context of " + name, "focus.context");
    if (many_) {
      scores.remarks.push_back(
          fmt::format("Shown: the {} words with the largest weights.", shown_keys(0).size()));
    }
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      scores.blocks.push_back(score_table(head));
      weights.blocks.push_back(weight_table(head));
      context.blocks.push_back(context_table(head));
    }
    if (const Step* merged = find("focus.merged_context")) {
      Table joined{"heads side by side", {{"", true}}, {}, false};
      joined.rows.push_back({"", {{bracketed(merged->values)}}, false, {}});
      context.blocks.push_back(std::move(joined));
    }
    if (find("scaled_scores") != nullptr) {
      const double head_dim = static_cast<double>(
          (scene_.projections ? scene_.projections->query : scene_.words.embeddings)
              .shape()[scene_.projections ? 1 : 2] /
          scene_.heads);
      const double scale = scene_.options.score.scale.value_or(1.0 / std::sqrt(head_dim));
      const std::string number = fmt::format("{:.4g}", scale);
      scores.remarks.push_back(fmt::format("Scaled by {}{}.", scene_.scale_text,
                                           scene_.scale_text == number ? "" : " = " + number));
    }
    scores.notes = notes({"focus.tokens", "focus.embeddings", "focus.hidden", "focus.scores",
                          "focus.scaled_scores", "focus.softcapped_scores", "focus.biased_scores",
                          "focus.masked_scores"});
    weights.notes = notes(weight_steps("focus."));
    context.notes = notes({"focus.context", "focus.merged_context"});
    for (Section* one : {&scores, &weights, &context}) {
      story_.sections.push_back(std::move(*one));
    }
  }

  std::vector<std::string> weight_steps(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const char* base : {"weights", "row_sums"}) {
      names.push_back(prefix + base);
      for (const auto kind : scene_.normalizations) {
        names.push_back(fmt::format("{}{}[{}]", prefix, base, normalization_name(kind)));
      }
    }
    return names;
  }

  Table score_table(std::int64_t head) const {
    Table result{head_caption(head), {}, {}, false};
    const auto sums = many_ ? std::vector<std::string>() : products(head);
    std::vector<TensorView> stages;
    for (const char* stage :
         {"scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"}) {
      const Step* step = find(std::string("focus.") + stage);
      if (step == nullptr) continue;
      stages.push_back(row(*step, head));
      const std::string_view name = stage;
      result.columns.push_back({std::string(name.substr(0, name.find('_')))});
    }
    result.columns[0].header = stages.size() > 1 ? "score" : "";
    if (!sums.empty()) result.columns.insert(result.columns.begin(), {"", true, true});
    result.columns.push_back({"", true});

    std::vector<NumberText> texts;
    for (const TensorView& stage : stages) texts.emplace_back(stage, scene_.precision);
    const TensorView& last = stages.back();
    double largest = 0.0;
    for (std::int64_t j = 0; j < last.extent(0); ++j) {
      if (std::isfinite(last.value({j}))) largest = std::max(largest, last.value({j}));
    }
    const auto names = key_words(scene_.focus->item);
    for (const std::int64_t j : shown_keys(head)) {
      TableRow line{names[static_cast<std::size_t>(j)], {}, is_focus_key(j), {}};
      if (!sums.empty()) line.cells.push_back({sums[static_cast<std::size_t>(j)] + " ="});
      for (std::size_t s = 0; s < stages.size(); ++s) {
        const double value = stages[s].value({j});
        line.cells.push_back({value == -HUGE_VAL ? kMasked : texts[s].padded(value)});
      }
      line.cells.push_back({bar(last.value({j}), largest)});
      result.rows.push_back(std::move(line));
    }
    return result;
  }

  bool is_focus_key(std::int64_t j) const { return !scene_.source && j == scene_.focus->index; }

  Table weight_table(std::int64_t head) const {
    Table result{head_caption(head), {}, {}, false};
    TableRow total{"sum", {}, false, {}};
    std::vector<TensorView> kinds;
    std::vector<NumberText> texts;
    for (const auto kind : scene_.normalizations) {
      const bool main = kind == scene_.normalizations.back();
      const std::string suffix = main ? "" : fmt::format("[{}]", normalization_name(kind));
      kinds.push_back(row(*find("focus.weights" + suffix), head));
      texts.emplace_back(kinds.back(), scene_.precision);
      result.columns.push_back({std::string(normalization_label(kind))});
      const double sum = row(*find("focus.row_sums" + suffix), head).value({});
      total.cells.push_back({std::isfinite(sum) ? fmt::format("{:.{}f}", sum, scene_.precision)
                             : std::isnan(sum)  ? "nan"
                                                : "inf"});
    }
    result.columns.push_back({"", true});
    const TensorView& main = kinds.back();
    double largest = 0.0;
    for (std::int64_t j = 0; j < main.extent(0); ++j) {
      if (std::isfinite(main.value({j}))) largest = std::max(largest, main.value({j}));
    }
    const auto names = key_words(scene_.focus->item);
    const Step* masked = find("focus.masked_scores");
    for (const std::int64_t j : shown_keys(head)) {
      TableRow line{names[static_cast<std::size_t>(j)], {}, is_focus_key(j), {}};
      const bool hidden = masked != nullptr && row(*masked, head).value({j}) == -HUGE_VAL;
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        line.cells.push_back({hidden ? kMasked : texts[k].padded(kinds[k].value({j}))});
      }
      line.cells.push_back({bar(main.value({j}), largest)});
      result.rows.push_back(std::move(line));
    }
    result.rows.push_back(std::move(total));
    return result;
  }

  std::string bracketed(const TensorView& numbers) const {
    const NumberText text(numbers, scene_.precision);
    std::string list;
    for (const std::int64_t d : shown(numbers.extent(0), kFewInARow, -1)) {
      list += (list.empty() ? "" : " ") + (d < 0 ? "…" : text.padded(numbers.value({d})));
    }
    return '[' + list + ']';
  }

  Table context_table(std::int64_t head) const {
    Table result{head_caption(head), {{"", true}}, {}, false};
    const TensorView weights = row(*find("focus.weights"), head);
    const Sequence& source = scene_.source ? *scene_.source : scene_.words;
    const TensorView values = head_row("value", source.embeddings, scene_.kv_heads,
                                       head / (scene_.heads / scene_.kv_heads));
    const NumberText weight_text(weights, scene_.precision);
    const NumberText value_text(values, scene_.precision);
    const auto names = key_words(scene_.focus->item);
    bool first = true;
    const Step* masked = find("focus.masked_scores");
    for (const std::int64_t j : shown_keys(head)) {
      if (masked != nullptr && row(*masked, head).value({j}) == -HUGE_VAL) continue;
      std::string numbers;
      for (const std::int64_t d : shown(values.extent(1), kFewInARow, -1)) {
        numbers +=
            (numbers.empty() ? "" : " ") + (d < 0 ? "…" : value_text.padded(values.value({j, d})));
      }
      const std::string term = fmt::format("{} {} * [{}]", first ? ' ' : '+',
                                           weight_text.padded(weights.value({j})), numbers);
      result.rows.push_back({names[static_cast<std::size_t>(j)], {{term}}, is_focus_key(j), {}});
      first = false;
    }
    if (many_) result.rows.push_back({"…", {{"+ …"}}, false, {}});
    result.rows.push_back({"", {{"= " + bracketed(row(*find("focus.context"), head))}}, false, {}});
    return result;
  }

  // ---- All words at once -----------------------------------------------------------------------

  void tell_all() {
    Section all = section("All words at once", "weights");
    all.formula = many_ ? "a picture of the weights" : "every query at once, in matrix form";
    all.reading = "Each row shares out one word's attention; the stronger the shade, the more.";
    if (!many_) {
      for (const char* stage :
           {"scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"}) {
        add_square(all, stage, std::string(step_info(stage).title), false);
      }
    }
    for (const auto kind : scene_.normalizations) {
      const bool main = kind == scene_.normalizations.back();
      if (many_ && !main) continue;
      const std::string suffix = main ? "" : fmt::format("[{}]", normalization_name(kind));
      const std::string caption = scene_.normalizations.size() > 1
                                      ? fmt::format("Weights ({})", normalization_label(kind))
                                      : std::string("Weights");
      add_square(all, "weights" + suffix, caption, true);
    }
    add_matrices(all, "context", "Context");
    add_matrices(all, "merged_context", "Merged context");
    all.notes = notes(weight_steps(""));
    for (std::string& note :
         notes({"hidden", "scores", "scaled_scores", "softcapped_scores", "biased_scores",
                "masked_scores", "context", "merged_context"})) {
      all.notes.push_back(std::move(note));
    }
    add_remarks(all);
    story_.sections.push_back(std::move(all));
  }

  void add_remarks(Section& all) const {
    std::int64_t told = 0;
    for_each_matrix(*find("weights"), "",
                    [&](const std::string& caption, std::int64_t item, const TensorView& matrix) {
                      if (++told > 4) return;  // more would drown the picture
                      const std::string where = caption.empty() ? "" : caption + ": ";
                      for (const std::string& remark : remarks_on_weights(
                               matrix, words(item), key_words(item), scene_.precision)) {
                        all.remarks.push_back(where + remark);
                      }
                    });
  }

  /// A queries x keys matrix: a table for few words, a picture for many.
  void add_square(Section& target, const std::string& name, const std::string& caption,
                  bool heat) const {
    const Step* step = find(name);
    if (step == nullptr) return;
    const Step* masked = find("masked_scores");
    for_each_matrix(
        *step, caption, [&](const std::string& text, std::int64_t item, const TensorView& matrix) {
          Tensor shown_values = convert(matrix, DType::kFloat64);
          if (heat && masked != nullptr) {
            std::string which = text.substr(caption.size());
            if (which.starts_with(", ")) which.erase(0, 2);
            hide_masked(*masked, which, item, shown_values);
          }
          if (many_) {
            target.blocks.push_back(Picture{text, std::move(shown_values), words(item)});
            return;
          }
          const std::int64_t focus_row =
              scene_.focus && scene_.focus->item == item ? scene_.focus->index : -1;
          // Hidden weights are -inf from here on, which a table shows as a dot.
          target.blocks.push_back(
              table(text, shown_values, words(item), key_words(item), focus_row, heat));
        });
  }

  /// Marks what the mask hides as -inf, in the matrix of the same head and item.
  void hide_masked(const Step& masked, const std::string& which, std::int64_t item,
                   Tensor& values) const {
    for_each_matrix(
        masked, "",
        [&](const std::string& caption, std::int64_t masked_item, const TensorView& scores) {
          if (caption != which || masked_item != item) return;
          for_each_index(scores.shape(), [&](const Index& at) {
            if (scores.value(at) == -HUGE_VAL) values.at<double>(at) = -HUGE_VAL;
          });
        });
  }

  const Trace& trace_;
  const Scene& scene_;
  bool many_;
  Story story_;
};

}  // namespace

Story tell_story(const Trace& trace) { return Storyteller(trace).tell(); }

}  // namespace fovea::scene
