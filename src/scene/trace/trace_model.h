// SPDX-License-Identifier: Apache-2.0
//
// Matrix view of the steps of a trace: the batch item, head, row and column of each number, the
// labels of its row and column, whether it is masked, and its text.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/scene.h"

#include "scene/trace/number_text.h"

namespace fovea::scene {

/// The sign that replaces a masked score or weight.
inline constexpr std::string_view kMaskedMark = "×";

/// Meaning of the rows or columns of a matrix.
enum class Axis : std::uint8_t { kQueries, kKeys, kNumbers };

/// A step as matrices: [batch][head][row][col].
struct StepLayout {
  const Step* step = nullptr;
  std::string_view base;  ///< without "focus." and "[...]"
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  /// Number of matrices: one per query for the hidden layer, otherwise 1.
  std::int64_t planes = 1;
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  bool has_batch = false;  ///< whether the step's shape has this dimension
  bool has_heads = false;
  Axis row_axis = Axis::kNumbers;
  Axis col_axis = Axis::kNumbers;
  bool maskable = false;  ///< whether masked cells are shown as kMaskedMark
  bool weights = false;   ///< non-negative shares instead of signed values; selects the palette

  /// Returns the number at a position; `plane` is 0 except for the hidden layer.
  double at(std::int64_t item, std::int64_t head, std::int64_t plane, std::int64_t row,
            std::int64_t col) const;
};

/// Calls `visit(double)` for every number, in C order.
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

/// Common number format of a step, and its largest finite magnitude.
class StepNumbers {
 public:
  /// Chooses one format for the elements of `step` and for `others`, which are shown beside them.
  StepNumbers(const Step& step, int precision, const std::vector<double>& others);

  std::string text(double value) const;
  double largest() const { return largest_; }
  /// Digits after the decimal point; negative for integers.
  int decimals() const { return decimals_; }
  bool scientific() const { return scientific_; }
  /// Returns "0.0001" if smaller numbers are shown as "<0.0001", otherwise "".
  const std::string& least() const { return text_.least(); }

 private:
  double largest_;
  NumberText text_;
  bool fixed_ = false;  // row sums, which are one up to rounding
  int decimals_ = -1;
  bool scientific_ = false;
};

/// Returns the trace. Throws InvalidArgument unless trace_scene() computed its steps.
const Trace& computed(const Trace& trace);

class TraceModel {
 public:
  /// Throws as computed() does.
  explicit TraceModel(const Trace& trace);

  const Trace& trace() const { return trace_; }
  const Scene& scene() const { return trace_.scene; }
  std::int64_t batch() const { return batch_; }
  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }

  /// Returns the layout of a step. The step must have numbers.
  StepLayout layout(const Step& step) const;
  /// Returns the number format of a step. Formats are computed once per step and cached.
  const StepNumbers& numbers(const Step& step) const;

  /// Returns the whole-matrix step with this base name and variant, or nullptr if there is none.
  const Step* find(std::string_view name) const { return trace_.find(name); }

  /// Returns the steps from the first score of a query and key to the final one, which the weights
  /// are made from. Not empty for a trace of trace_scene().
  std::vector<const Step*> score_steps() const;

  /// Returns the label of a row or column: a word, or a zero-based number.
  std::string_view word(Axis axis, std::int64_t item, std::int64_t index) const;

  /// Returns the sink of a head, if there is one, rounded to the floating-point type of the scene.
  std::optional<double> sink(std::int64_t head) const;
  /// Returns the maximum of the sink and the final scores of the visible keys. Returns nothing for
  /// a row with neither.
  std::optional<double> largest_score(std::int64_t item, std::int64_t head,
                                      std::int64_t query) const;

  /// Returns the number of keys of a batch item without its padding (Mask::key_length).
  std::int64_t keys_without_padding(std::int64_t item) const;

  /// Returns whether a key is masked for a query.
  bool masked(std::int64_t item, std::int64_t head, std::int64_t query, std::int64_t key) const;
  bool any_mask() const { return any_mask_; }
  /// Returns masked() for all [batch][head][query][key].
  std::vector<bool> mask() const;

 private:
  /// Returns the values of the sinks that the softmax table shows in the column of a step.
  std::vector<double> sink_numbers(const Step& step) const;

  const Trace& trace_;
  std::int64_t batch_;
  std::int64_t queries_;
  std::int64_t keys_;
  bool any_mask_ = false;
  mutable std::map<const Step*, StepNumbers> numbers_;
};

}  // namespace fovea::scene
