// SPDX-License-Identifier: Apache-2.0
//
// Computes the trace of a scene: projects the embeddings, runs the reference attention, and names
// every intermediate array. The steps of the focus query are rows of the same arrays.

#include <algorithm>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "scene/read/scene_parts.h"
#include "scene/read/step_catalogue.h"
#include "scene/trace/check.h"
#include "scene/trace/heads.h"
#include "scene/trace/softmax_steps.h"

namespace fovea::scene {
namespace {

/// An array as computed, always with the batch dimension, and with a head dimension if it has
/// heads.
struct WholeStep {
  std::string name;
  Tensor values;  // [batch, (heads,) ...]
  bool has_heads = false;
  bool per_query = true;  // has a row for each query
};

class Tracer {
 public:
  explicit Tracer(const Scene& scene) : scene_(scene) {}

  Trace run() {
    Trace trace;
    trace.scene = scene_;
    compute_inputs();
    compute_attention();

    add_words(trace, "tokens", scene_.words);
    if (scene_.direct && scene_.source) add_words(trace, "source_tokens", *scene_.source);
    for (const WholeStep& step : inputs_) {
      if (step.name == "source_embeddings") add_words(trace, "source_tokens", *scene_.source);
      trace.steps.push_back(whole(step));
    }
    if (scene_.focus) {
      Step word{"focus.tokens", "The query", "", {}, {focus_word(scene_)}, Shape{}};
      word.numeric = scene_.words.numeric;
      trace.steps.push_back(std::move(word));
      for (const auto* steps : {&inputs_, &attention_}) {
        for (const WholeStep& step : *steps) {
          if (step.per_query) trace.steps.push_back(focused(step));
        }
      }
    }
    for (WholeStep& step : attention_) trace.steps.push_back(whole(std::move(step)));
    trace.visible = std::move(visible_);
    check_questions(trace);
    trace.checks = check_steps(trace);
    return trace;
  }

 private:
  void add(std::vector<WholeStep>& steps, std::string name, Tensor values, bool has_heads,
           bool per_query = true) {
    if (values.defined()) {
      steps.push_back({std::move(name), std::move(values), has_heads, per_query});
    }
  }

  static Tensor with_batch(const Tensor& tensor, DType dtype) {
    Shape shape{1};
    for (const std::int64_t extent : tensor.shape()) shape.push_back(extent);
    return convert(tensor, dtype).reshaped(shape);
  }

  void compute_inputs() {
    const DType dtype = scene_.arithmetic;
    const bool cross = scene_.source.has_value();
    if (scene_.direct) {
      query_ = convert(scene_.direct->query, dtype);
      key_ = convert(scene_.direct->key, dtype);
      value_ = convert(scene_.direct->value, dtype);
      add_heads();
      return;
    }
    const Sequence& source = cross ? *scene_.source : scene_.words;
    query_ = convert(scene_.words.embeddings, dtype);
    key_ = value_ = convert(source.embeddings, dtype);
    add(inputs_, "embeddings", query_, false);
    if (cross) add(inputs_, "source_embeddings", key_, false, false);
    if (!scene_.projections) return;
    const Projections& w = *scene_.projections;
    add(inputs_, "query_weights", with_batch(w.query, dtype), false, false);
    add(inputs_, "key_weights", with_batch(w.key, dtype), false, false);
    add(inputs_, "value_weights", with_batch(w.value, dtype), false, false);
    query_ = reference::project(query_, w.query, dtype);
    key_ = reference::project(key_, w.key, dtype);
    value_ = reference::project(value_, w.value, dtype);
    add_heads();
  }

  /// Adds queries, keys and values, split into heads.
  void add_heads() {
    const bool per_query = !scene_.source;
    add(inputs_, "query", Tensor(split_heads(query_, scene_.heads)), true);
    add(inputs_, "key", Tensor(split_heads(key_, scene_.kv_heads)), true, per_query);
    add(inputs_, "value", Tensor(split_heads(value_, scene_.kv_heads)), true, per_query);
  }

  void compute_attention() {
    const reference::Inputs in{split_heads(query_, scene_.heads),
                               split_heads(key_, scene_.kv_heads),
                               split_heads(value_, scene_.kv_heads)};
    reference::ReferenceOptions how{scene_.score_kind, scene_.normalizations.back(),
                                    scene_.arithmetic};
    reference::Steps steps = reference::attention_steps(in, scene_.options, how);
    visible_ = std::move(steps.visible);
    add(attention_, "hidden", std::move(steps.hidden), true);
    add(attention_, "scores", std::move(steps.scores), true);
    add(attention_, "scaled_scores", std::move(steps.scaled_scores), true);
    add(attention_, "softcapped_scores", std::move(steps.softcapped_scores), true);
    add(attention_, "biased_scores", std::move(steps.biased_scores), true);
    add(attention_, "masked_scores", std::move(steps.masked_scores), true);
    const Tensor final_scores = attention_.back().values;
    for (std::size_t i = 0; i + 1 < scene_.normalizations.size(); ++i) {
      how.normalization = scene_.normalizations[i];
      reference::Steps other = reference::attention_steps(in, scene_.options, how);
      const std::string suffix = fmt::format("[{}]", normalization_name(how.normalization));
      add_softmax(final_scores, how.normalization, suffix);
      add(attention_, "weights" + suffix, std::move(other.weights), true);
      add(attention_, "row_sums" + suffix, std::move(other.row_sums), true);
    }
    add_softmax(final_scores, scene_.normalizations.back(), "");
    add(attention_, "weights", std::move(steps.weights), true);
    add(attention_, "row_sums", std::move(steps.row_sums), true);
    if (scene_.heads > 1) add(attention_, "merged_context", merge_heads(steps.context), false);
    // The context precedes the merged context.
    const auto place = attention_.end() - (scene_.heads > 1 ? 1 : 0);
    attention_.insert(place, WholeStep{"context", std::move(steps.context), true, true});
  }

  /// Adds the parts of softmax, if the normalization has an exponential.
  void add_softmax(const Tensor& scores, reference::Normalization kind, const std::string& suffix) {
    if (kind == reference::Normalization::kSum) return;
    SoftmaxSteps steps = softmax_steps(scores, visible_, scene_.options.score.sinks, kind);
    add(attention_, "shifted_scores" + suffix, std::move(steps.shifted), true);
    add(attention_, "exponentials" + suffix, std::move(steps.exponentials), true);
    add(attention_, "exponential_sums" + suffix, std::move(steps.sums), true);
  }

  /// Converts [batch, heads, length, dim] to [batch, length, heads * dim].
  static Tensor merge_heads(const Tensor& context) {
    const Shape& s = context.shape();
    return Tensor(context.view().transposed(1, 2)).reshaped({s[0], s[2], s[1] * s[3]});
  }

  void add_words(Trace& trace, std::string name, const Sequence& sequence) const {
    Step step{std::move(name), {}, {}, {}, {}, {}};
    step.title = step_title(step.name);
    for (const auto& item : sequence.tokens) {
      step.words.insert(step.words.end(), item.begin(), item.end());
    }
    if (scene_.batched) step.shape.push_back(static_cast<std::int64_t>(sequence.tokens.size()));
    step.shape.push_back(sequence.length());
    step.numeric = sequence.numeric;
    trace.steps.push_back(std::move(step));
  }

  /// Returns the displayed step, without dimensions that the scene does not have.
  Step whole(WholeStep step) const {
    const Shape& full = step.values.shape();
    const bool weights = step.name.ends_with("_weights");
    Shape shape;
    for (int dim = 0; dim < full.rank(); ++dim) {
      const bool dropped = (dim == 0 && (!scene_.batched || weights)) ||
                           (dim == 1 && step.has_heads && full[dim] == 1 && scene_.heads == 1);
      if (!dropped) shape.push_back(full[dim]);
    }
    return make(std::move(step.name), std::move(step.values).reshaped(shape));
  }

  /// Returns the focus query's part of a step: [(heads,) ...].
  Step focused(const WholeStep& step) const {
    TensorView rows = step.values.view()[scene_.focus->item];
    if (step.has_heads) rows = rows.transposed(0, 1);  // query dimension first
    rows = rows[scene_.focus->index];
    Tensor values{rows};
    if (step.has_heads && scene_.heads == 1) {
      Shape shape(std::span(rows.shape().begin() + 1, rows.shape().end()));
      values = std::move(values).reshaped(shape);
    }
    return make("focus." + step.name, std::move(values));
  }

  Step make(std::string name, Tensor values) const {
    const StepInfo& info = step_info(name);
    std::string title = step_title(name);
    if (name.starts_with("focus.")) title = fmt::format("{} of \"{}\"", title, focus_word(scene_));
    std::string formula(info.formula);
    const auto kind = normalization_of(name, scene_.normalizations);
    if (info.name == "weights") formula = normalization_formula(kind);
    if (info.name == "exponentials") formula = exponential_formula(kind);
    if (info.name == "scores") formula = score_formula();
    if (scene_.direct && (info.name == "query" || info.name == "key" || info.name == "value")) {
      formula = "one row of numbers per word";
    }
    const Shape shape = values.shape();
    return {std::move(name), std::move(title), std::move(formula), std::move(values), {}, shape};
  }

  std::string_view score_formula() const {
    if (std::holds_alternative<reference::GeneralScore>(scene_.score_kind)) {
      return "score[j] = query W . key[j]";
    }
    if (std::holds_alternative<reference::AdditiveScore>(scene_.score_kind)) {
      return "score[j] = v . tanh(query W + key[j] U)";
    }
    return step_info("scores").formula;
  }

  const Scene& scene_;
  Tensor query_, key_, value_;  // [batch, length, heads * dim]
  Tensor visible_;
  std::vector<WholeStep> inputs_;
  std::vector<WholeStep> attention_;
};

}  // namespace

const Step* Trace::find(std::string_view name) const {
  const std::string wanted = canonical_name(name);
  const auto found = std::ranges::find(steps, wanted, &Step::name);
  return found == steps.end() ? nullptr : &*found;
}

bool Trace::passed() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.passed; });
}

Trace trace_scene(const Scene& scene) {
  validate(scene);
  return Tracer(scene).run();
}

}  // namespace fovea::scene
