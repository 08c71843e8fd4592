// SPDX-License-Identifier: Apache-2.0
//
// The weights of the focus word as a table: final score, score - max, exp and quotient for each
// key, with totals. Text, Markdown, LaTeX and the page show the same numbers.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// A column of the table.
struct SoftmaxColumn {
  enum class Part : std::uint8_t { kScore, kShifted, kExponential, kWeight };
  Part part = Part::kScore;
  reference::Normalization kind = reference::Normalization::kSoftmax;  ///< not for kScore
  const Step* step = nullptr;
  const Step* sums = nullptr;  ///< the step with the sums of the rows of `step`, if there is one
};

/// The reason why a row of the naive softmax has no proper weights.
enum class NaiveFault : std::uint8_t {
  kNone,
  kOverflow,     ///< the exponential of the largest score is inf
  kSumOverflow,  ///< every exponential is finite, but their sum is inf
  kUnderflow,    ///< every exponential is 0
};

/// The table of one head. The model must outlive it and must have a focus.
class SoftmaxTable {
 public:
  SoftmaxTable(const TraceModel& model, std::int64_t head);

  /// Returns the score, followed by the columns of each normalization; the last column has the
  /// weights that the context is computed with.
  const std::vector<SoftmaxColumn>& columns() const { return columns_; }

  double value(const SoftmaxColumn& column, std::int64_t key) const;
  bool masked(std::int64_t key) const;
  /// Returns the largest finite number of the visible keys, or 0 if there is none.
  double largest_finite(const SoftmaxColumn& column) const;

  /// Returns the largest score, including the sink, if there is a softmax column and a visible key
  /// or a sink.
  std::optional<double> maximum() const;
  /// Returns the sum of a column, with the sink; nothing for scores that are not summed and for
  /// shifted scores.
  std::optional<double> total(const SoftmaxColumn& column) const;
  /// Returns the sum of the weights in a column of weights, without the sink.
  double total_of_words(const SoftmaxColumn& column) const { return stored_total(*column.sums); }

  /// Returns the sink of the head, if there is one.
  std::optional<double> sink() const;
  /// Returns the sink's number in a column. Requires a sink.
  double sink_value(const SoftmaxColumn& column) const;

  NaiveFault naive_fault() const;

  /// Returns a number of the column, or its total, in the format of its step.
  std::string text(const SoftmaxColumn& column, double value) const;
  std::string total_text(const SoftmaxColumn& column) const;

 private:
  double stored_total(const Step& sums) const;
  bool has(reference::Normalization kind) const;

  const TraceModel& model_;
  std::int64_t head_;
  Focus focus_;
  std::vector<SoftmaxColumn> columns_;
};

}  // namespace fovea::scene
