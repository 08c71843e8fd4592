// SPDX-License-Identifier: Apache-2.0

#include "scene/html_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "scene/step_catalogue.h"

namespace fovea::scene::html {
namespace {

/// The steps whose numbers belong to a query and a key.
bool is_query_by_key(std::string_view base) {
  return base == "scores" || base == "weights" || base.ends_with("_scores");
}

/// Dimensions without batch and heads.
int own_rank(std::string_view base) {
  if (base == "row_sums") return 1;
  return base == "hidden" ? 3 : 2;
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
  if (own >= 1) index.push_back(own == 1 && base == "row_sums" ? row : col);
  return step->values.value(index);
}

StepNumbers::StepNumbers(const Step& step, int precision) : text_(step.values, precision) {
  bool first = true;
  const std::string_view base = base_name(step.name);
  for_each_index(step.values.shape(), [&](const Index& index) {
    const double value = step.values.value(index);
    if (!std::isfinite(value)) return;
    largest_ = std::max(largest_, std::abs(value));
    if (!first) return;
    first = false;  // all look alike, so one tells
    const std::string shown = text_.trimmed(value);
    const std::size_t end = std::min(shown.find('e'), shown.size());
    const std::size_t point = shown.find('.');
    scientific_ = end < shown.size();
    if (point != std::string::npos) decimals_ = static_cast<int>(end - point - 1);
  });
  // A sum of weights is one up to rounding; "1" among decimals would look like something else.
  fixed_ = base == "row_sums" || (base == "weights" && scientific_);
  if (fixed_) {
    decimals_ = precision;
    scientific_ = false;
  }
}

std::string StepNumbers::text(double value) const {
  if (fixed_ && std::isfinite(value)) return fmt::format("{:.{}f}", value, decimals_);
  std::string out = text_.trimmed(value);
  // NumPy keeps the point of a number without decimals ("1.", "1.e-04"); here it would be noise.
  const std::size_t point = std::min(out.find(".e"), out.size() - 1);
  if (out[point] == '.') out.erase(point, 1);
  return out;
}

PageModel::PageModel(const Trace& trace)
    : trace_(trace),
      batch_(static_cast<std::int64_t>(trace.scene.words.tokens.size())),
      queries_(trace.scene.words.length()),
      keys_(trace.scene.source ? trace.scene.source->length() : queries_) {
  find_masked();
}

StepLayout PageModel::layout(const Step& step) const {
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
  if (base == "row_sums") {
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
  out.maskable = any_mask() && (base == "weights" || base == "masked_scores");
  return out;
}

const StepNumbers& PageModel::numbers(const Step& step) const {
  const auto found = numbers_.find(&step);
  if (found != numbers_.end()) return found->second;
  return numbers_.emplace(&step, StepNumbers(step, scene().precision)).first->second;
}

std::string_view PageModel::word(Axis axis, std::int64_t item, std::int64_t index) const {
  const bool keys = axis == Axis::kKeys && scene().source.has_value();
  const Sequence& sequence = keys ? *scene().source : scene().words;
  return sequence.tokens[static_cast<std::size_t>(item)][static_cast<std::size_t>(index)];
}

bool PageModel::masked(std::int64_t item, std::int64_t head, std::int64_t query,
                       std::int64_t key) const {
  if (masked_.empty()) return false;
  const std::int64_t at = ((item * scene().heads + head) * queries_ + query) * keys_ + key;
  return masked_[static_cast<std::size_t>(at)];
}

void PageModel::find_masked() {
  const AttentionOptions& options = scene().options;
  const TensorView& bias = options.score.bias;
  if (options.mask.allows_all() && !bias.defined()) return;
  const ProblemShape problem{batch_, scene().heads, scene().kv_heads, queries_, keys_};
  const auto count = static_cast<std::size_t>(batch_ * scene().heads * queries_ * keys_);
  masked_.reserve(count);
  bool any = false;
  for (std::int64_t item = 0; item < batch_; ++item) {
    const std::int64_t offset = query_offset(options, problem, item);
    for (std::int64_t head = 0; head < scene().heads; ++head) {
      for (std::int64_t query = 0; query < queries_; ++query) {
        for (std::int64_t key = 0; key < keys_; ++key) {
          const ScorePosition at{item, head, query, key, offset};
          const bool hidden = !options.mask.visible(at) ||
                              (bias.defined() && broadcast_value(bias, at) ==
                                                     -std::numeric_limits<double>::infinity());
          masked_.push_back(hidden);
          any = any || hidden;
        }
      }
    }
  }
  if (!any) masked_.clear();
}

std::string step_id(std::string_view name) {
  std::string out = "step-";
  for (const char c : name) {
    if (c == '[' || c == '.') {
      out.push_back('-');
    } else if (c != ']') {
      out.push_back(c);
    }
  }
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string out;
  for (const std::int64_t extent : shape) {
    if (!out.empty()) out += " \u00D7 ";
    out += std::to_string(extent);
  }
  return out.empty() ? "1" : out;
}

}  // namespace fovea::scene::html
