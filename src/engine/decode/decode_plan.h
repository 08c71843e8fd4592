// SPDX-License-Identifier: Apache-2.0
//
// How decoding is cut into items: parts of the keys of one head or, in blocks, a few, with the
// queries that look at them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <numbers>

#include "fovea/paged_key_value.h"
#include "fovea/tensor.h"

#include "engine/call/problem.h"
#include "kernels/decode/decode.h"
#include "problem/problem_shape.h"

namespace fovea::engine {

/// Where the keys and values of one batch item or sequence lie.
class Cache {
 public:
  Cache(const TensorView& key, const TensorView& value) : key_(key), value_(value) {}
  explicit Cache(const PagedKeyValue& paged)
      : key_(paged.key), value_(paged.value), table_(paged.block_table) {}

  kernels::CacheRows key(const SequenceSpan& span, std::int64_t head) const {
    return rows(key_, span, head);
  }
  kernels::CacheRows value(const SequenceSpan& span, std::int64_t head) const {
    return rows(value_, span, head);
  }
  bool paged() const { return table_.defined(); }

 private:
  kernels::CacheRows rows(const TensorView& tensor, const SequenceSpan& span,
                          std::int64_t head) const;

  const TensorView& key_;
  const TensorView& value_;
  TensorView table_;  // absent: not paged
};

/// What decode_weights_item() takes of a row's lse: the logarithm of its sum to base 2.
inline float log2_sum(const TensorView& lse, const Index& row) {
  return static_cast<float>(lse.value(row) * std::numbers::log2e_v<double>);
}

/// How much there is to do.
struct DecodeSize {
  std::int64_t sequences = 1;     // or batch items
  std::int64_t kv_heads = 0;      // of each
  std::int64_t group = 0;         // query heads of each that take part
  std::int64_t most_queries = 0;  // of each of these
  std::int64_t most_keys = 0;
  std::int64_t value_dim = 0;   // 0 where values are not looked at
  bool heads_together = false;  // whether an item may have several heads of keys

  /// Of all queries and keys.
  static DecodeSize of(const Problem& problem, bool context);
};

/// Items are numbered by the sequence, then by heads of keys, then by the part.
class DecodePlan {
 public:
  DecodePlan(const Problem& problem, const DecodeSize& size);

  const kernels::DecodeSetup& setup() const { return setup_; }
  std::int64_t items() const { return items_; }
  std::int64_t parts() const { return parts_; }
  /// Of a sequence: items that differ in their heads.
  std::int64_t items_of_heads() const { return items_of_heads_; }
  int threads() const { return threads_; }

  /// A part of the keys of a head, or of as many as items have, with `queries` queries of the heads
  /// from `head` on.
  kernels::DecodeItem item(const Problem& problem, const Cache& cache, std::int64_t item_number,
                           std::int64_t head, std::int64_t first_query, std::int64_t queries,
                           std::int64_t part) const;

  std::size_t workspace_bytes() const {
    return static_cast<std::size_t>(items_) * part_bytes_ +
           static_cast<std::size_t>(threads_) * scratch_bytes_;
  }
  kernels::DecodePart part(std::byte* workspace, std::int64_t item) const {
    auto* const maximum =
        reinterpret_cast<float*>(workspace + static_cast<std::size_t>(item) * part_bytes_);
    const std::int64_t rows = setup_.most_rows();
    return {maximum, maximum + rows, maximum + 2 * rows};
  }
  std::byte* scratch(std::byte* workspace, int thread) const {
    return workspace + static_cast<std::size_t>(items_) * part_bytes_ +
           static_cast<std::size_t>(thread) * scratch_bytes_;
  }

 private:
  std::int64_t heads_together(std::int64_t items, std::int64_t kv_heads) const;

  kernels::DecodeSetup setup_;
  std::int64_t keys_per_part_ = 0;
  std::int64_t parts_ = 1;  // of the longest sequence
  std::int64_t items_of_heads_ = 0;
  std::int64_t items_ = 0;
  std::size_t scratch_bytes_ = 0, part_bytes_ = 0;
  int threads_ = 1;
};

}  // namespace fovea::engine
