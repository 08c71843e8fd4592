// SPDX-License-Identifier: Apache-2.0
//
// A part of a problem, some neighbouring queries of one head with all keys that they may see, as a
// problem of its own: tensors are looked into where they lie, masks and positions are shifted.

#pragma once

#include <cstdint>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// Which part.
struct PartPlace {
  std::int64_t item = 0;                      ///< a batch item or packed sequence
  std::int64_t head = 0;                      ///< of the queries
  std::int64_t first_query = 0, queries = 0;  ///< of the item; may be none
};

/// Where a part lies in the tensors of the whole problem.
struct PartSpan {
  std::int64_t item = 0;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0, queries = 0;  ///< along the tensors: packed sequences included
  std::int64_t first_key = 0, keys = 0;
};

/// The same rules for the part: what it lets query i and key j of batch item 0 and head 0 see is
/// what `mask` lets the part's see. The alignment is left to the caller.
Mask part_of(const Mask& mask, const PartSpan& part);

/// What a tensor that broadcasts to [batch, q_heads, q_len, kv_len] holds for the part: one that
/// broadcasts to [queries, keys]. Absent stays absent. Looks into `tensor`, which must outlive it.
TensorRef part_of(const TensorRef& tensor, const PartSpan& part);

/// A key as a value without numbers, for calls that ask for weights alone.
TensorView no_value(const TensorView& key);

/// A part as a problem of one batch item and one head, whose results have the bits of those of the
/// reference for the same rows of the whole.
class ProblemPart {
 public:
  /// `options` must be valid for `shape`, and what they look into must outlive the part. Throws
  /// InvalidArgument for a place that the problem does not have, and for dropout, whose numbers
  /// follow from places in the whole problem.
  ProblemPart(const AttentionOptions& options, const ProblemShape& shape, const PartPlace& place);

  /// [1, 1, queries, keys].
  ProblemShape shape() const;
  /// Mask, scores and alignment of the part, and how calls run. ALiBi's slope is there even where
  /// the paper's are meant. A custom score function is told places in the whole problem.
  const AttentionOptions& options() const { return options_; }
  const PartSpan& span() const { return span_; }

  /// The part's rows of a tensor [batch, q_heads, q_len, dim]: [1, 1, queries, dim].
  TensorView queries_of(const TensorView& tensor) const;
  /// The part's rows of a tensor [batch, kv_heads, kv_len, dim]: [1, 1, keys, dim].
  TensorView keys_of(const TensorView& tensor) const;
  /// The part's numbers in a tensor [batch, q_heads, q_len]: [1, 1, queries].
  TensorView numbers_of(const TensorView& tensor) const;

 private:
  PartSpan span_;
  AttentionOptions options_;
};

}  // namespace fovea
