// SPDX-License-Identifier: Apache-2.0
//
// Remarks on the weights, derived from the data (story.h).

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "scene/tell/story.h"
#include "scene/trace/score_terms.h"
#include "scene/trace/softmax_table.h"
#include "scene/trace/trace_model.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

struct RowFacts {
  double most = 0.0;
  std::int64_t where = -1;
  std::int64_t visible = 0;    // unmasked keys
  std::int64_t looked_at = 0;  // keys with non-zero weight
  double entropy = 0.0;        // of the shares of the weights in their sum, which a sink reduces
  bool has_negative = false;
  bool has_nan = false;
  bool has_infinity = false;
};

/// Notable properties of the weights of one head and batch item.
class MatrixRemarks {
 public:
  MatrixRemarks(const TraceModel& model, const Texts& texts, const StepLayout& weights,
                std::int64_t item, std::int64_t head)
      : model_(model), texts_(texts), weights_(weights), item_(item), head_(head) {}

  std::vector<std::string> tell() {
    sort_rows();
    std::vector<std::string> remarks;
    if (!broken_.empty()) {
      remarks.push_back(texts_.plain("remark.broken", {{"queries", some_queries(broken_)}}));
    }
    if (!infinite_.empty()) {
      remarks.push_back(texts_.plain("remark.infinite", {{"queries", some_queries(infinite_)}}));
    }
    if (!blind_.empty()) {
      remarks.push_back(texts_.plain("remark.blind", {{"queries", some_queries(blind_)}}));
    }
    if (!zero_.empty()) {
      remarks.push_back(texts_.plain("remark.zero", {{"queries", some_queries(zero_)}}));
    }
    if (!sunk_.empty()) {
      remarks.push_back(texts_.plain("remark.sink", {{"queries", some_queries(sunk_)}}));
    }
    if (weights_.cols < 2) return remarks;
    const std::vector<Link> strongest = strongest_links();
    if (!strongest.empty()) {
      remarks.push_back(texts_.plain(
          one_or_other("remark.strongest", strongest.size()),
          {{"links", some(strongest,
                          [&](const Link& link) {
                            return texts_.plain("remark.link", {{"query", query(link.query)},
                                                                {"key", target(link)}});
                          })},
           {"weight", model_.numbers(*weights_.step).text(facts(strongest[0].query).most)}}));
    }
    const std::vector<std::int64_t> even = most_even();
    // The row of the strongest link is not called even.
    const bool notable =
        even.size() > 1 ||
        (even.size() == 1 && weights_.rows > 1 &&
         (strongest.front().query != even[0] || strongest.back().query != even[0]));
    if (notable) {
      remarks.push_back(
          texts_.plain(one_or_other("remark.most_even", even.size()),
                       {{"queries", some_queries(even)},
                        {"n", fmt::format("{:.1f}", std::exp(facts(even[0]).entropy))}}));
    }
    if (single_.size() == 1) {
      remarks.push_back(texts_.plain(
          "remark.single.one",
          {{"query", query(single_[0])}, {"key", target({single_[0], facts(single_[0]).where})}}));
    } else if (!single_.empty()) {
      remarks.push_back(texts_.plain("remark.single.other", {{"queries", some_queries(single_)}}));
    }
    return remarks;
  }

 private:
  struct Link {
    std::int64_t query, key;
  };

  /// Differences below this are rounding errors: symmetric rows have the same weights.
  static constexpr double kTie = 1e-6;

  RowFacts look_at_row(std::int64_t i) const {
    RowFacts facts;
    double sum = 0.0, logarithms = 0.0;
    for (std::int64_t j = 0; j < weights_.cols; ++j) {
      // A weight of 0 does not imply a mask: a sink can absorb the whole weight of the row.
      if (model_.masked(item_, head_, i, j)) continue;
      ++facts.visible;
      const double weight = weights_.at(item_, head_, 0, i, j);
      if (std::isnan(weight)) facts.has_nan = true;
      if (std::isinf(weight)) facts.has_infinity = true;
      if (weight > facts.most) {
        facts.most = weight;
        facts.where = j;
      }
      if (weight < 0.0) facts.has_negative = true;
      if (weight != 0.0) ++facts.looked_at;
      if (weight > 0) {
        sum += weight;
        logarithms += weight * std::log(weight);
      }
    }
    if (sum > 0) facts.entropy = std::log(sum) - logarithms / sum;
    return facts;
  }

  /// Returns whether the sink has the whole weight of a row whose words have none. Returns false if
  /// the sum of a naive softmax overflows, because all quotients are then 0 or NaN.
  bool sink_takes_all(std::int64_t i) const {
    if (model_.scene().options.score.sinks.empty()) return false;
    const Step* const sums = model_.find("exponential_sums");
    return sums != nullptr && std::isfinite(model_.layout(*sums).at(item_, head_, 0, i, 0));
  }

  void sort_rows() {
    // Without a source, the words of padded keys are queries too, and no word of the sentence.
    const std::int64_t rows =
        model_.scene().source ? weights_.rows : model_.keys_without_padding(item_);
    for (std::int64_t i = 0; i < rows; ++i) {
      facts_.push_back(look_at_row(i));
      const RowFacts& row = facts_.back();
      if (row.has_nan || row.has_infinity) {
        (row.has_nan ? broken_ : infinite_).push_back(i);
      } else if (row.looked_at == 0) {
        (row.visible == 0 ? blind_ : sink_takes_all(i) ? sunk_ : zero_).push_back(i);
      } else if (row.looked_at == 1) {
        single_.push_back(i);
      } else {
        several_.push_back(i);
      }
    }
  }

  /// Returns the links with the largest weight of all rows with several keys, in order of queries.
  std::vector<Link> strongest_links() const {
    double most = 0.0;
    for (const std::int64_t i : several_) most = std::max(most, facts(i).most);
    std::vector<Link> links;
    for (const std::int64_t i : several_) {
      if (facts(i).most <= 0.0 || facts(i).most < most * (1.0 - kTie)) continue;
      for (std::int64_t j = 0; j < weights_.cols; ++j) {
        if (model_.masked(item_, head_, i, j)) continue;
        if (weights_.at(item_, head_, 0, i, j) >= most * (1.0 - kTie)) links.push_back({i, j});
      }
    }
    return links;
  }

  /// Returns the rows with the largest entropy, which is not defined for the negative weights that
  /// "sum" can produce.
  std::vector<std::int64_t> most_even() const {
    double most = 0.0;
    for (const std::int64_t i : several_) {
      if (!facts(i).has_negative) most = std::max(most, facts(i).entropy);
    }
    std::vector<std::int64_t> rows;
    for (const std::int64_t i : several_) {
      if (!facts(i).has_negative && facts(i).entropy >= most - kTie) rows.push_back(i);
    }
    return rows;
  }

  const RowFacts& facts(std::int64_t i) const { return facts_[static_cast<std::size_t>(i)]; }

  std::string query(std::int64_t i) const { return quoted(Axis::kQueries, i); }

  std::string quoted(Axis axis, std::int64_t i) const {
    return texts_.plain("list.quoted", {{"word", visible(model_.word(axis, item_, i))}});
  }

  /// Returns the word of a link's key.
  std::string target(const Link& link) const {
    return !model_.scene().source && link.key == link.query ? texts_.plain("remark.itself")
                                                            : quoted(Axis::kKeys, link.key);
  }

  static std::string one_or_other(std::string_view key, std::size_t count) {
    return fmt::format("{}.{}", key, count == 1 ? "one" : "other");
  }

  /// Returns a list such as: A, B and 3 more
  template <class Item, class Name>
  std::string some(const std::vector<Item>& which, const Name& name) const {
    constexpr std::size_t kShown = 3;
    std::string list;
    for (std::size_t i = 0; i < which.size() && i < kShown; ++i) {
      const bool last = i + 1 == which.size();
      if (i > 0) list += texts_.plain(last ? "list.and" : "list.comma");
      list += name(which[i]);
    }
    if (which.size() > kShown) {
      list += texts_.plain("list.more", {{"n", std::to_string(which.size() - kShown)}});
    }
    return list;
  }

  std::string some_queries(const std::vector<std::int64_t>& which) const {
    return some(which, [&](std::int64_t i) { return query(i); });
  }

  const TraceModel& model_;
  const Texts& texts_;
  const StepLayout& weights_;
  std::int64_t item_;
  std::int64_t head_;
  std::vector<RowFacts> facts_;
  std::vector<std::int64_t> broken_, infinite_, blind_, zero_, sunk_, single_;
  std::vector<std::int64_t> several_;  // the other rows: finite weights on at least two keys
};

}  // namespace

std::vector<Remark> remarks_on_weights(const TraceModel& model, std::size_t most,
                                       const Texts& texts) {
  std::vector<Remark> remarks;
  const Step* weights = model.find("weights");
  if (weights == nullptr) return remarks;
  const StepLayout layout = model.layout(*weights);
  std::size_t told = 0;
  for (std::int64_t item = 0; item < layout.batch; ++item) {
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      if (told++ == most) return remarks;
      const std::string where = place_of(layout, item, head, texts);
      for (const std::string& remark : MatrixRemarks(model, texts, layout, item, head).tell()) {
        remarks.push_back(
            {item, head, where.empty() ? remark : where + texts.plain("list.colon") + remark});
      }
    }
  }
  return remarks;
}

std::string scale_remark(const TraceModel& model, const Texts& texts) {
  const Scene& scene = model.scene();
  const auto head_dim = operand(model, "query", 0, {0, 0})->numbers.size();
  const double usual = 1.0 / std::sqrt(static_cast<double>(head_dim));
  const double scale = scene.options.score.scale.value_or(usual);
  if (model.find("scaled_scores") != nullptr) {
    const std::string number = fmt::format("{:.4g}", scale);
    return texts.plain(
        "remark.scaled",
        {{"scale", scene.scale_text == number ? number : scene.scale_text + " = " + number}});
  }
  if (head_dim == 1 || !std::holds_alternative<reference::DotScore>(scene.score_kind)) return "";
  return texts.plain("remark.not_scaled",
                     {{"n", std::to_string(head_dim)}, {"scale", fmt::format("{:.4g}", usual)}});
}

std::string sink_remark(const SoftmaxTable& table, const Texts& texts) {
  if (!table.sink()) return "";
  const SoftmaxColumn& last = table.columns().back();
  return texts.plain("remark.sink_share", {{"words", table.text(last, table.total_of_words(last))},
                                           {"sink", table.text(last, table.sink_value(last))}});
}

std::string naive_remark(const TraceModel& model, std::int64_t head, const Texts& texts) {
  const SoftmaxTable table(model, head);
  const SoftmaxColumn& scores = table.columns().front();
  const bool narrow = model.scene().arithmetic == DType::kFloat32;
  const double largest = narrow ? static_cast<double>(std::numeric_limits<float>::max())
                                : std::numeric_limits<double>::max();
  switch (table.naive_fault()) {
    case NaiveFault::kNone:
      break;
    case NaiveFault::kUnderflow:
      return texts.plain("remark.underflow");
    case NaiveFault::kSumOverflow:
      return texts.plain("remark.sum_overflow");
    case NaiveFault::kOverflow:
      return texts.plain("remark.overflow",
                         {{"score", table.text(scores, table.largest_finite(scores))},
                          {"type", std::string(dtype_name(model.scene().arithmetic))},
                          {"largest", fmt::format("{:.1e}", largest)}});
  }
  return "";
}

std::string place_of(const StepLayout& layout, std::int64_t item, std::int64_t head,
                     const Texts& texts) {
  std::string text;
  if (layout.has_batch && layout.batch > 1) {
    text = texts.plain("place.item",
                       {{"n", std::to_string(item + 1)}, {"count", std::to_string(layout.batch)}});
  }
  if (layout.has_heads) {
    if (!text.empty()) text += texts.plain("list.comma");
    text += texts.plain("place.head", {{"n", std::to_string(head)}});
  }
  return text;
}

std::string how_drawn(const Scene& scene) {
  std::vector<std::pair<const char*, std::string>> parts;
  if (scene.direct) {
    const DirectInputs& in = *scene.direct;
    parts = {{"query", in.query_drawn}, {"key", in.key_drawn}, {"value", in.value_drawn}};
  } else if (scene.projections) {
    const Projections& w = *scene.projections;
    parts = {{"W_Q", w.query_drawn}, {"W_K", w.key_drawn}, {"W_V", w.value_drawn}};
  }
  std::string list;
  bool same = true;
  for (const auto& [name, drawn] : parts) {
    same = same && drawn == parts[0].second;
    if (!drawn.empty()) list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", name, drawn);
  }
  return same && !parts.empty() ? parts[0].second : list;
}

std::string summarize(const Scene& scene, const Texts& texts) {
  const auto counted = [&](std::string_view key, std::int64_t count) {
    return texts.counted(fmt::format("summary.{}", key), count);
  };
  // Groups about words, scores, mask and arithmetic.
  std::vector<std::vector<std::string>> groups = {{counted("words", scene.words.length())}};
  const auto add = [&](std::string_view key, Texts::Values values = {}) {
    groups.back().push_back(texts.plain(fmt::format("summary.{}", key), values));
  };
  if (scene.batched) {
    groups.back().push_back(counted("items", static_cast<std::int64_t>(scene.words.tokens.size())));
  }
  if (!scene.direct) {
    groups.back().push_back(counted("numbers", scene.words.embeddings.extent(2)));
  }
  if (scene.source) groups.back().push_back(counted("source", scene.source->length()));
  groups.emplace_back();
  const bool dot = std::holds_alternative<reference::DotScore>(scene.score_kind);
  add(dot                                                                 ? "dot"
      : std::holds_alternative<reference::GeneralScore>(scene.score_kind) ? "general"
                                                                          : "additive");
  if (scene.scale_text == "1") {
    add("not_scaled");
  } else {
    add("scaled", {{"scale", scene.scale_text}});
  }
  const ScoreOptions& score = scene.options.score;
  if (score.softcap > 0) add("softcap", {{"cap", fmt::format("{}", score.softcap)}});
  if (score.bias.defined()) add("bias");
  if (score.alibi) add("alibi");
  if (score.relative) add("relative");
  if (!score.sinks.empty()) add("sink");
  if (scene.heads > 1) groups.back().push_back(counted("heads", scene.heads));
  if (scene.kv_heads != scene.heads) groups.back().push_back(counted("kv_heads", scene.kv_heads));
  if (scene.direct) {
    add("direct");
  } else if (scene.projections) {
    add(how_drawn(scene).empty() ? "given_weights" : "random_weights");
  } else {
    add(dot ? "no_weights" : "no_projections");
  }
  if (!scene.options.mask.allows_all()) {
    groups.emplace_back();
    add("mask", {{"mask", scene.options.mask.to_string()}});
  }
  if (scene.arithmetic == DType::kFloat32) groups.push_back({"float32"});
  std::string text;
  for (const auto& group : groups) {
    text += fmt::format("{}{}", text.empty() ? "" : texts.plain("list.semicolon"),
                        fmt::join(group, texts.plain("list.comma")));
  }
  return text;
}

}  // namespace fovea::scene
