// SPDX-License-Identifier: Apache-2.0
//
// A part of a problem as a problem of its own: some consecutive queries of one head, with all keys
// of their sequence. Tensors are read in place; masks and positions are shifted.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// The selection of a part of a problem.
struct PartPlace {
  std::int64_t item = 0;                      ///< a batch item or packed sequence
  std::int64_t head = 0;                      ///< a query head
  std::int64_t first_query = 0, queries = 0;  ///< a range within the item; may be empty
};

/// The location of a part in the tensors of the whole problem.
struct PartSpan {
  std::int64_t item = 0;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0, queries = 0;  ///< in the tensors, where sequences may be packed
  std::int64_t first_key = 0, keys = 0;
};

/// Returns the mask of the part: query i of batch item 0 and head 0 sees key j exactly if `mask`
/// lets query i of the part see key j of the part. The caller shifts the alignment.
Mask part_of(const Mask& mask, const PartSpan& part);

/// Returns the part of a tensor that broadcasts to [batch, q_heads, q_len, kv_len]. The result
/// broadcasts to [queries, keys]; it is undefined if `tensor` is undefined. The result is a view of
/// `tensor`, which must outlive the view.
TensorRef part_of(const TensorRef& tensor, const PartSpan& part);

/// Returns `key` as a value tensor with value_dim 0, for calls that compute only weights.
TensorView no_value(const TensorView& key);

/// A part as a problem of one batch item and one head. The reference computes exactly the same
/// results for the part as for the same rows of the whole problem.
class ProblemPart {
 public:
  /// `options` must be valid for `shape`, and the tensors they refer to must outlive the part.
  /// Throws InvalidArgument if `place` is outside the problem, or if the options include dropout,
  /// because its random numbers depend on positions in the whole problem.
  ProblemPart(const AttentionOptions& options, const ProblemShape& shape, const PartPlace& place);

  /// Returns the shape of the part's scores, [1, 1, queries, keys].
  ProblemShape shape() const;
  /// Returns the part's mask, score options and alignment, and the execution options. The part has
  /// explicit ALiBi slopes, even if the whole problem uses the default slopes. Custom score
  /// functions receive positions in the whole problem.
  const AttentionOptions& options() const { return options_; }
  const PartSpan& span() const { return span_; }

  /// Returns the part's rows of a tensor [batch, q_heads, q_len, dim] as [1, 1, queries, dim].
  TensorView queries_of(const TensorView& tensor) const;
  /// Returns the part's rows of a tensor [batch, kv_heads, kv_len, dim] as [1, 1, keys, dim].
  TensorView keys_of(const TensorView& tensor) const;
  /// Returns the part's elements of a tensor [batch, q_heads, q_len] as [1, 1, queries].
  TensorView numbers_of(const TensorView& tensor) const;

 private:
  PartSpan span_;
  AttentionOptions options_;
};

}  // namespace fovea
