// SPDX-License-Identifier: Apache-2.0
//
// How the steps of a trace lie as matrices: which batch item, head, row and column a number has,
// what its row and column are called, whether it is masked, and how it is written.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/scene.h"

#include "scene/trace/number_text.h"

namespace fovea::scene {

/// What the rows or the columns of a matrix stand for.
enum class Axis : std::uint8_t { kQueries, kKeys, kNumbers };

/// A step as matrices: [batch][head][row][col].
struct StepLayout {
  const Step* step = nullptr;
  std::string_view base;  ///< without "focus." and "[...]"
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  /// Only the hidden layer has one matrix per query: this many.
  std::int64_t planes = 1;
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  bool has_batch = false;  ///< whether the step's own shape has the dimension
  bool has_heads = false;
  Axis row_axis = Axis::kNumbers;
  Axis col_axis = Axis::kNumbers;
  bool maskable = false;  ///< whether masked cells are shown as a dot
  bool weights = false;   ///< shares, not signed quantities: another palette

  /// The number at a place; `plane` is 0 but for the hidden layer.
  double at(std::int64_t item, std::int64_t head, std::int64_t plane, std::int64_t row,
            std::int64_t col) const;
};

/// Calls `visit(double)` for every number, in row-major order.
template <class Visit>
void for_each_value(const Tensor& tensor, Visit&& visit) {
  switch (tensor.dtype()) {
    case DType::kFloat64:
      for (const double value : tensor.span<double>()) visit(value);
      return;
    case DType::kFloat32:
      for (const float value : tensor.span<float>()) visit(static_cast<double>(value));
      return;
    default:
      for_each_index(tensor.shape(), [&](const Index& index) { visit(tensor.value(index)); });
      return;
  }
}

/// How the numbers of one step are written, all alike, and the largest finite magnitude.
class StepNumbers {
 public:
  StepNumbers(const Step& step, int precision);

  std::string text(double value) const;
  double largest() const { return largest_; }
  /// Digits after the point; negative for whole numbers.
  int decimals() const { return decimals_; }
  bool scientific() const { return scientific_; }

 private:
  NumberText text_;
  bool fixed_ = false;  // sums of shares: one, up to rounding
  int decimals_ = -1;
  bool scientific_ = false;
  double largest_ = 0.0;
};

class TraceModel {
 public:
  explicit TraceModel(const Trace& trace);

  const Trace& trace() const { return trace_; }
  const Scene& scene() const { return trace_.scene; }
  std::int64_t batch() const { return batch_; }
  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }

  /// A step that has numbers.
  StepLayout layout(const Step& step) const;
  /// Computed once per step.
  const StepNumbers& numbers(const Step& step) const;

  /// The whole-matrix step of this base name and variant; nullptr when the scene has none.
  const Step* find(std::string_view name) const { return trace_.find(name); }

  /// The label of a row or column: a word, or a number counted from 0.
  std::string_view word(Axis axis, std::int64_t item, std::int64_t index) const;

  /// Whether a query may not look at a key.
  bool masked(std::int64_t item, std::int64_t head, std::int64_t query, std::int64_t key) const;
  bool any_mask() const { return any_mask_; }
  /// What masked() says for [batch][head][query][key].
  std::vector<bool> mask() const;

 private:
  const Trace& trace_;
  std::int64_t batch_;
  std::int64_t queries_;
  std::int64_t keys_;
  bool any_mask_ = false;
  mutable std::map<const Step*, StepNumbers> numbers_;
};

}  // namespace fovea::scene
