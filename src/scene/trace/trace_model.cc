// SPDX-License-Identifier: Apache-2.0
//
// Derives the layout of a step from the dimensions of the scene (trace_model.h).

#include "scene/trace/trace_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/fail.h"
#include "scene/read/step_catalogue.h"

namespace fovea::scene {
namespace {

/// Returns whether a step has one number per query and key.
bool is_query_by_key(std::string_view base) {
  return base == "scores" || base == "weights" || base == "exponentials" ||
         base.ends_with("_scores");
}

/// Returns whether a step has one number per query.
bool is_per_query(std::string_view base) {
  return base == "row_sums" || base == "exponential_sums";
}

/// Returns the rank of a step without batch and heads.
int own_rank(std::string_view base) {
  if (is_per_query(base)) return 1;
  return base == "hidden" ? 3 : 2;
}

/// Returns a sample that is sufficient to choose a number format for millions of numbers. The
/// sample includes the largest and the smallest number, which determine whether scientific notation
/// is used.
Tensor typical_numbers(const Tensor& all) {
  constexpr std::int64_t kSample = 10'000;
  if (all.size() <= kSample) return all;
  const std::int64_t every = all.size() / kSample;
  std::vector<double> sample;
  double smallest = 0.0;
  double largest = 0.0;
  std::int64_t i = 0;
  for_each_value(all, [&](double value) {
    if (i++ % every == 0) sample.push_back(value);
    if (!std::isfinite(value) || value == 0.0) return;
    if (smallest == 0.0 || std::abs(value) < std::abs(smallest)) smallest = value;
    if (std::abs(value) > std::abs(largest)) largest = value;
  });
  sample.push_back(smallest);
  sample.push_back(largest);
  const Tensor row = Tensor::from({static_cast<std::int64_t>(sample.size())}, sample);
  return convert(row, all.dtype());
}

/// Returns a vector with the elements of `sample` and `others`, in the type of `sample`.
Tensor with_others(Tensor sample, const std::vector<double>& others) {
  if (others.empty()) return sample;
  std::vector<double> numbers;
  for_each_value(sample, [&](double value) { numbers.push_back(value); });
  numbers.insert(numbers.end(), others.begin(), others.end());
  return convert(Tensor::from({static_cast<std::int64_t>(numbers.size())}, numbers),
                 sample.dtype());
}

double largest_finite(const Tensor& all) {
  double largest = 0.0;
  for_each_value(all, [&](double value) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  });
  return largest;
}

/// Returns the notation of small numbers: weights are shares of a whole, and so are exponentials of
/// at most 1, which all exponentials of shifted scores are.
SmallNumbers small_numbers(const Step& step, double largest) {
  const std::string_view base = base_name(step.name);
  const bool shares = base == "weights" || (base == "exponentials" && largest <= 1.0);
  return shares ? SmallNumbers::kBound : SmallNumbers::kScientific;
}

}  // namespace

double StepLayout::at(std::int64_t item, std::int64_t head, std::int64_t plane, std::int64_t row,
                      std::int64_t col) const {
  Index index;
  if (has_batch) index.push_back(item);
  if (has_heads) index.push_back(head);
  const int own = step->values.rank() - index.rank();
  if (own >= 3) index.push_back(plane);
  if (own >= 2) index.push_back(row);
  if (own >= 1) index.push_back(own == 1 && is_per_query(base) ? row : col);
  return step->values.value(index);
}

StepNumbers::StepNumbers(const Step& step, int precision, const std::vector<double>& others)
    : largest_(largest_finite(step.values)),
      text_(with_others(typical_numbers(step.values), others).view(), precision,
            small_numbers(step, largest_)) {
  bool first = true;
  for_each_value(step.values, [&](double value) {
    if (!first || !std::isfinite(value) || text_.is_bound(value)) return;
    first = false;  // all numbers have the same format, so one that is not a bound is sufficient
    const std::string shown = text_.trimmed(value);
    const std::size_t end = std::min(shown.find('e'), shown.size());
    const std::size_t point = shown.find('.');
    scientific_ = end < shown.size();
    if (!text_.whole()) decimals_ = 0;
    if (point != std::string::npos) decimals_ = static_cast<int>(end - point - 1);
  });
  const std::string_view base = base_name(step.name);
  // Row sums are one up to rounding. A bare "1" among decimals would look like an integer.
  fixed_ = base == "row_sums";
  if (fixed_) {
    decimals_ = precision;
    scientific_ = false;
  }
}

std::string StepNumbers::text(double value) const {
  if (fixed_ && std::isfinite(value)) return fmt::format("{:.{}f}", value, decimals_);
  return text_.trimmed(value);
}

const Trace& computed(const Trace& trace) {
  if (!trace.visible.defined() || trace.steps.empty() || trace.scene.words.tokens.empty()) {
    fail_argument("trace", "expected a result of trace_scene(), got a trace without steps");
  }
  return trace;
}

TraceModel::TraceModel(const Trace& trace)
    : trace_(computed(trace)),
      batch_(static_cast<std::int64_t>(trace.scene.words.tokens.size())),
      queries_(trace.scene.words.length()),
      keys_(trace.scene.source ? trace.scene.source->length() : queries_) {
  const auto visible = trace.visible.span<bool>();
  any_mask_ = std::find(visible.begin(), visible.end(), false) != visible.end();
}

StepLayout TraceModel::layout(const Step& step) const {
  StepLayout out;
  out.step = &step;
  out.base = base_name(step.name);
  const std::string_view base = out.base;
  const Shape& shape = step.values.shape();

  const bool shared = base.ends_with("_weights");  // the same for every batch item
  out.has_batch = scene().batched && !shared && shape.rank() > own_rank(base);
  const int rest = shape.rank() - (out.has_batch ? 1 : 0);
  out.has_heads = rest > own_rank(base);
  int dim = 0;
  if (out.has_batch) out.batch = shape[dim++];
  if (out.has_heads) out.heads = shape[dim++];
  if (base == "hidden" && shape.rank() - dim == 3) out.planes = shape[dim++];
  if (is_per_query(base)) {
    out.rows = shape.rank() > dim ? shape[dim] : 1;
  } else {
    if (shape.rank() - dim >= 2) out.rows = shape[dim++];
    if (shape.rank() - dim >= 1) out.cols = shape[dim];
  }

  if (is_query_by_key(base)) {
    out.row_axis = Axis::kQueries;
    out.col_axis = Axis::kKeys;
  } else if (base == "source_embeddings" || base == "key" || base == "value" || base == "hidden") {
    out.row_axis = Axis::kKeys;
  } else if (!shared) {
    out.row_axis = Axis::kQueries;
  }
  out.weights = base == "weights";
  out.maskable = any_mask() && (base == "weights" || base == "masked_scores" ||
                                base == "shifted_scores" || base == "exponentials");
  return out;
}

const StepNumbers& TraceModel::numbers(const Step& step) const {
  const auto found = numbers_.find(&step);
  if (found != numbers_.end()) return found->second;
  return numbers_.emplace(&step, StepNumbers(step, scene().precision, sink_numbers(step)))
      .first->second;
}

std::optional<double> TraceModel::sink(std::int64_t head) const {
  const std::vector<double>& sinks = scene().options.score.sinks;
  if (sinks.empty()) return std::nullopt;
  const double sink = sinks[static_cast<std::size_t>(head)];
  return scene().arithmetic == DType::kFloat32 ? static_cast<double>(static_cast<float>(sink))
                                               : sink;
}

std::optional<double> TraceModel::largest_score(std::int64_t item, std::int64_t head,
                                                std::int64_t query) const {
  const StepLayout scores = layout(*score_steps().back());
  std::optional<double> most = sink(head);
  for (std::int64_t key = 0; key < keys_; ++key) {
    if (masked(item, head, query, key)) continue;
    const double score = scores.at(item, head, 0, query, key);
    if (!most || !(score <= *most)) most = score;
  }
  return most;
}

std::vector<double> TraceModel::sink_numbers(const Step& step) const {
  const std::vector<double>& sinks = scene().options.score.sinks;
  if (sinks.empty() || step.name.starts_with("focus.")) return {};
  const Step* const scores = score_steps().back();
  if (&step == scores) {
    std::vector<double> numbers;
    for (std::int64_t head = 0; head < std::ssize(sinks); ++head) numbers.push_back(*sink(head));
    return numbers;
  }
  const std::string_view base = base_name(step.name);
  if (base != "shifted_scores" && base != "exponentials") return {};
  // The softmax subtracts the largest score of the row, including the sink. The naive softmax does
  // not.
  const std::string variant = step.name.substr(base.size());
  const bool shifts = find("shifted_scores" + variant) != nullptr;
  const StepLayout all = layout(*scores);
  std::vector<double> numbers;
  for (std::int64_t item = 0; item < all.batch; ++item) {
    for (std::int64_t head = 0; head < all.heads; ++head) {
      for (std::int64_t row = 0; row < all.rows; ++row) {
        const double shifted = *sink(head) - (shifts ? *largest_score(item, head, row) : 0.0);
        numbers.push_back(base == "exponentials" ? std::exp(shifted) : shifted);
      }
    }
  }
  return numbers;
}

std::int64_t TraceModel::keys_without_padding(std::int64_t item) const {
  return scene().options.mask.key_length(item).value_or(keys_);
}

std::vector<const Step*> TraceModel::score_steps() const {
  std::vector<const Step*> steps;
  for (const Step& step : trace_.steps) {
    if (step.name.ends_with("scores") && !step.name.starts_with("focus.") &&
        !is_softmax_part(step.name)) {
      steps.push_back(&step);
    }
  }
  return steps;
}

std::string_view TraceModel::word(Axis axis, std::int64_t item, std::int64_t index) const {
  const bool keys = axis == Axis::kKeys && scene().source.has_value();
  const Sequence& sequence = keys ? *scene().source : scene().words;
  return sequence.tokens[static_cast<std::size_t>(item)][static_cast<std::size_t>(index)];
}

std::vector<bool> TraceModel::mask() const {
  std::vector<bool> result;
  for (const bool visible : trace_.visible.span<bool>()) result.push_back(!visible);
  return result;
}

bool TraceModel::masked(std::int64_t item, std::int64_t head, std::int64_t query,
                        std::int64_t key) const {
  return any_mask_ && !trace_.visible.at<bool>({item, head, query, key});
}

}  // namespace fovea::scene
