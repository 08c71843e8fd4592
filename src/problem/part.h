// SPDX-License-Identifier: Apache-2.0
//
// A part of a problem as a problem of its own: some consecutive queries of one head, with all keys
// of their sequence; or a range of queries and a range of keys, of all batch items and heads.
// Tensors are read in place; masks and positions are shifted.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// The selection of a part of a problem.
struct PartPlace {
  std::int64_t item = 0;                      ///< a batch item or packed sequence
  std::int64_t head = 0;                      ///< a query head
  std::int64_t first_query = 0, queries = 0;  ///< a range within the item; may be empty
};

/// The selection of consecutive queries and consecutive keys of all batch items and heads.
struct PairRange {
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;
};

/// The location of a part in the tensors of the whole problem.
struct PartSpan {
  static constexpr std::int64_t kAll = -1;  ///< for item, batch, head and kv_head
  std::int64_t item = 0;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0, queries = 0;  ///< in the tensors, where sequences may be packed
  std::int64_t first_key = 0, keys = 0;
  std::int64_t skipped_keys = 0;  ///< keys of the item before the part

  bool all_items() const { return item == kAll; }
};

/// Returns the mask of the part: query i of the part, which has batch item 0 and head 0 unless the
/// span has all of them, sees key j of the part exactly if `mask` lets it. The caller shifts the
/// alignment.
Mask part_of(const Mask& mask, const PartSpan& part);

/// Returns the part of a tensor that broadcasts to [batch, q_heads, q_len, kv_len]. The result
/// broadcasts to [queries, keys], or to [batch, q_heads, queries, keys] for all items and heads; it
/// is undefined if `tensor` is undefined. The result is a view of `tensor`, which must outlive the
/// view.
TensorRef part_of(const TensorRef& tensor, const PartSpan& part);

/// Returns the options of a range of pairs as a problem of its own, [batch, q_heads, queries,
/// keys], with the execution options of the whole. Its results are those of the whole problem if no
/// other key were visible. `options` must be valid for `shape`; the tensors that they refer to must
/// outlive the result.
///
/// Errors   throws InvalidArgument if the range is outside the problem, or if sequences are packed.
FOVEA_API AttentionOptions part_of(const AttentionOptions& options, const ProblemShape& shape,
                                   const PairRange& range);

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
