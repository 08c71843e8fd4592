// SPDX-License-Identifier: Apache-2.0
//
// Merging of partial results (partial.h). A result that is the only one of its row is not rounded
// again: its weight is 1.

#include "distributed/partial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/element_type.h"
#include "distributed/rows.h"
#include "engine/call/parallel.h"

namespace fovea::distributed {
namespace {

constexpr double kEmpty = -std::numeric_limits<double>::infinity();

/// Returns exp(number - maximum). One of two numbers is their maximum, whose result is 1.
double exp_below(double number, double maximum) {
  return number == maximum ? 1.0 : std::exp(number - maximum);
}

template <class T>
T* row_of(const MutableTensorView& tensor, const Index& at) {
  return static_cast<T*>(tensor.address({at[0], at[1], at[2], 0}));
}

}  // namespace

PartialRows::PartialRows(const AttentionOutputs& outputs, const Shape& rows, DType sums,
                         const std::vector<double>& sinks)
    : outputs_(outputs),
      rows_(rows),
      type_(sums),
      sinks_(!sinks.empty()),
      sums_(outputs.context),
      begun_(static_cast<std::size_t>(rows[2])) {
  weights_.reserve(static_cast<std::size_t>(element_count(rows)));
  for (std::int64_t head = 0; head < rows[0] * rows[1]; ++head) {
    const double sink = sinks_ ? sinks[static_cast<std::size_t>(head % rows[1])] : kEmpty;
    weights_.insert(weights_.end(), static_cast<std::size_t>(rows[2]),
                    {sink, sink == kEmpty ? 0.0 : 1.0});
  }
}

std::size_t PartialRows::memory_bytes() const {
  if (!sums_.defined() || sums_.dtype() == type_) return 0;
  return static_cast<std::size_t>(sums_.size()) * dtype_size(type_);
}

void PartialRows::use_memory(std::byte* memory) {
  if (memory_bytes() == 0) return;
  const Shape shape = sums_.shape();
  sums_ = {memory, type_, shape};
}

MutableTensorView PartialRows::place_of_first(std::int64_t first, std::int64_t queries) const {
  const auto begun = begun_.begin() + first;
  const bool any = std::any_of(begun, begun + queries, [](std::uint8_t one) { return one != 0; });
  if (!has_sums() || sinks_ || any) return {};
  return rows_from(sums_, first, queries);
}

template <class Row>
void PartialRows::for_each_head(const Execution& execution, std::int64_t queries, const Row& row) {
  const std::int64_t heads = rows_[0] * rows_[1];
  const Execution silent{.threads = execution.threads};
  engine::for_each_item(silent, engine::thread_count(silent, heads), heads,
                        [&](std::int64_t head, int) {
                          for (std::int64_t i = 0; i < queries; ++i) {
                            row(Index{head / rows_[1], head % rows_[1], i});
                          }
                        });
}

template <class T>
void PartialRows::add_row(const TensorView& context, const TensorView& lse, const Index& at,
                          std::int64_t first) {
  const auto added = static_cast<double>(lse.at<T>(at));
  const Index there{at[0], at[1], first + at[2]};
  Weight& weight = this->weight(there);
  const bool begun = begun_[static_cast<std::size_t>(there[2])] != 0;
  // A NaN must not be lost: std::max returns its first argument if one is NaN.
  const double maximum = std::max(added, weight.maximum);
  // Without a visible key, lse is -inf, and the context is 0.
  const double of_sum = weight.sum == 0.0 ? 0.0 : exp_below(weight.maximum, maximum);
  const double of_added = added == kEmpty ? 0.0 : exp_below(added, maximum);
  const bool alone = weight.sum == 0.0;
  weight = {maximum, weight.sum * of_sum + of_added};
  if (!has_sums()) return;
  T* const sums = row_of<T>(sums_, there);
  const T* const more = static_cast<const T*>(context.address({at[0], at[1], at[2], 0}));
  if (sums == more) return;  // written in place, with a weight of 1
  const auto a = static_cast<T>(of_sum);
  const auto b = static_cast<T>(of_added);
  const std::int64_t dim = sums_.extent(3);
  if (!begun || alone) {
    for (std::int64_t c = 0; c < dim; ++c) sums[c] = more[c] * b;
  } else if (added != kEmpty) {
    for (std::int64_t c = 0; c < dim; ++c) sums[c] = sums[c] * a + more[c] * b;
  }
}

void PartialRows::add(const TensorView& context, const TensorView& lse, std::int64_t first,
                      const Execution& execution) {
  for_each_head(execution, lse.extent(2), [&](const Index& at) {
    if (type_ == DType::kFloat64) {
      add_row<double>(context, lse, at, first);
    } else {
      add_row<float>(context, lse, at, first);
    }
  });
  std::fill_n(begun_.begin() + first, lse.extent(2), std::uint8_t{1});
}

template <class T>
void PartialRows::finish_row(const Index& at) {
  const Weight& weight = this->weight(at);
  const bool empty = weight.sum == 0.0;
  if (outputs_.lse.defined()) {
    outputs_.lse.at<T>(at) = static_cast<T>(empty ? kEmpty : weight.maximum + std::log(weight.sum));
  }
  if (!has_sums()) return;
  const std::int64_t dim = sums_.extent(3);
  T* const sums = row_of<T>(sums_, at);
  if (begun_[static_cast<std::size_t>(at[2])] == 0) std::fill_n(sums, dim, T{0});
  const T divisor = empty ? T{1} : static_cast<T>(weight.sum);
  with_element(outputs_.context.dtype(), [&](auto zero) {
    using Out = decltype(zero);
    if constexpr (std::is_same_v<Out, std::int64_t> || std::is_same_v<Out, bool>) {
      return;
    } else {
      Out* const context = row_of<Out>(outputs_.context, at);
      if (static_cast<void*>(context) == sums && divisor == T{1}) return;
      for (std::int64_t c = 0; c < dim; ++c) context[c] = static_cast<Out>(sums[c] / divisor);
    }
  });
}

void PartialRows::finish(const Execution& execution) {
  for_each_head(execution, rows_[2], [&](const Index& at) {
    if (type_ == DType::kFloat64) {
      finish_row<double>(at);
    } else {
      finish_row<float>(at);
    }
  });
}

}  // namespace fovea::distributed
