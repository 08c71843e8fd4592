// SPDX-License-Identifier: Apache-2.0
//
// Collects the columns of the softmax table from the steps of a trace (softmax_table.h). Only the
// sink's numbers are computed here, because sinks are not part of the steps.

#include "scene/trace/softmax_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "scene/read/step_catalogue.h"

namespace fovea::scene {

using reference::Normalization;
using Part = SoftmaxColumn::Part;

SoftmaxTable::SoftmaxTable(const TraceModel& model, std::int64_t head)
    : model_(model), head_(head), focus_(*model.scene().focus) {
  columns_.push_back({.step = model.score_steps().back()});
  for (const Normalization kind : model.scene().normalizations) {
    const bool last = kind == model.scene().normalizations.back();
    const std::string suffix = last ? "" : fmt::format("[{}]", normalization_name(kind));
    const auto add = [&](Part part, const char* name, const char* sums) {
      if (const Step* step = model.find(name + suffix)) {
        columns_.push_back(
            {part, kind, step, sums == nullptr ? nullptr : model.find(sums + suffix)});
      }
    };
    add(Part::kShifted, "shifted_scores", nullptr);
    add(Part::kExponential, "exponentials", "exponential_sums");
    add(Part::kWeight, "weights", "row_sums");
  }
}

double SoftmaxTable::value(const SoftmaxColumn& column, std::int64_t key) const {
  return model_.layout(*column.step).at(focus_.item, head_, 0, focus_.index, key);
}

bool SoftmaxTable::masked(std::int64_t key) const {
  return model_.masked(focus_.item, head_, focus_.index, key);
}

double SoftmaxTable::largest_finite(const SoftmaxColumn& column) const {
  std::optional<double> most;
  for (std::int64_t key = 0; key < model_.keys(); ++key) {
    const double number = value(column, key);
    if (!masked(key) && std::isfinite(number)) most = std::max(most.value_or(number), number);
  }
  return most.value_or(0.0);
}

bool SoftmaxTable::has(Normalization kind) const {
  return std::ranges::find(model_.scene().normalizations, kind) !=
         model_.scene().normalizations.end();
}

std::optional<double> SoftmaxTable::maximum() const {
  if (!has(Normalization::kSoftmax)) return std::nullopt;
  return model_.largest_score(focus_.item, head_, focus_.index);
}

double SoftmaxTable::stored_total(const Step& sums) const {
  return model_.layout(sums).at(focus_.item, head_, 0, focus_.index, 0);
}

std::optional<double> SoftmaxTable::total(const SoftmaxColumn& column) const {
  if (column.sums != nullptr) {
    // The stored sums of exponentials include the sink, those of weights do not.
    const bool add_sink = column.part == Part::kWeight && sink().has_value();
    return stored_total(*column.sums) + (add_sink ? sink_value(column) : 0.0);
  }
  if (column.part != Part::kScore || !has(Normalization::kSum)) return std::nullopt;
  double sum = 0.0;
  for (std::int64_t key = 0; key < model_.keys(); ++key) {
    if (!masked(key)) sum += value(column, key);
  }
  return sum;
}

std::optional<double> SoftmaxTable::sink() const { return model_.sink(head_); }

double SoftmaxTable::sink_value(const SoftmaxColumn& column) const {
  const double shifted = column.kind == Normalization::kSoftmax && column.part != Part::kScore
                             ? *sink() - *maximum()
                             : *sink();
  if (column.part == Part::kScore || column.part == Part::kShifted) return shifted;
  if (column.part == Part::kExponential) return std::exp(shifted);
  const auto exponentials = std::ranges::find_if(columns_, [&](const SoftmaxColumn& other) {
    return other.part == Part::kExponential && other.kind == column.kind;
  });
  return std::exp(shifted) / stored_total(*exponentials->sums);
}

NaiveFault SoftmaxTable::naive_fault() const {
  for (const SoftmaxColumn& column : columns_) {
    if (column.part != Part::kExponential || column.kind != Normalization::kSoftmaxUnshifted) {
      continue;
    }
    bool visible = false;
    for (std::int64_t key = 0; key < model_.keys(); ++key) {
      if (masked(key)) continue;
      visible = true;
      if (std::isinf(value(column, key)) && std::isfinite(value(columns_.front(), key))) {
        return NaiveFault::kOverflow;
      }
    }
    const double sum = stored_total(*column.sums);
    if (visible && std::isinf(sum)) return NaiveFault::kSumOverflow;
    if (visible && sum == 0.0) return NaiveFault::kUnderflow;
  }
  return NaiveFault::kNone;
}

std::string SoftmaxTable::text(const SoftmaxColumn& column, double value) const {
  return model_.numbers(*column.step).text(value);
}

std::string SoftmaxTable::total_text(const SoftmaxColumn& column) const {
  const std::optional<double> sum = total(column);
  if (!sum) return "";
  return model_.numbers(column.sums != nullptr ? *column.sums : *column.step).text(*sum);
}

}  // namespace fovea::scene
