// SPDX-License-Identifier: Apache-2.0
//
// Rows of attention that are collected from the results for separate ranges of keys.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/attention.h"
#include "fovea/execution.h"
#include "fovea/tensor.h"

namespace fovea::distributed {

/// The rows of a rank: sums of contexts, each weighted by the exponential of its lse. The weights
/// are relative to the maximum lse so far, so that they cannot overflow. Sums are float32 (float64
/// for float64 problems); the maximum and the sum of weights of a row are float64. The order of
/// add() determines the rounding.
class PartialRows {
 public:
  /// Rows that go to `outputs`, of which lse or context may be undefined. `sums` is the type of the
  /// sums. Each entry of `sinks`, one per head or none, is the lse of a context of zeros.
  PartialRows(const AttentionOutputs& outputs, const Shape& rows, DType sums,
              const std::vector<double>& sinks);

  /// Returns the size of the memory for the sums: 0 if they fit in the context.
  std::size_t memory_bytes() const;
  /// Sets the memory for the sums, aligned to 64 bytes.
  void use_memory(std::byte* memory);

  /// Returns the sums of `queries` queries from `first` on if a result for them can be written
  /// there instead of added, because each of them has none yet; otherwise an undefined view.
  MutableTensorView place_of_first(std::int64_t first, std::int64_t queries) const;
  /// Adds the results of the queries that start at `first` for further keys. `context` is [batch,
  /// q_heads, queries, value_dim], undefined if the outputs have no context, or the view that
  /// place_of_first() returned.
  void add(const TensorView& context, const TensorView& lse, std::int64_t first,
           const Execution& execution);
  /// Writes the outputs.
  void finish(const Execution& execution);

 private:
  struct Weight {
    double maximum;  // of lse; the sum is relative to it
    double sum;
  };

  Weight& weight(const Index& at) {
    return weights_[static_cast<std::size_t>((at[0] * rows_[1] + at[1]) * rows_[2] + at[2])];
  }
  bool has_sums() const { return sums_.defined() && sums_.extent(3) > 0; }
  template <class T>
  void add_row(const TensorView& context, const TensorView& lse, const Index& at,
               std::int64_t first);
  template <class T>
  void finish_row(const Index& at);
  template <class Row>
  void for_each_head(const Execution& execution, std::int64_t queries, const Row& row);

  AttentionOutputs outputs_;
  const Shape rows_;  // [batch, q_heads, queries]
  const DType type_;
  const bool sinks_;
  MutableTensorView sums_;           // undefined without a context
  std::vector<Weight> weights_;      // of the rows
  std::vector<std::uint8_t> begun_;  // by query: whether the sums have been written
};

}  // namespace fovea::distributed
