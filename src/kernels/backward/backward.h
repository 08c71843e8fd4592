// SPDX-License-Identifier: Apache-2.0
//
// Interface of the fused backward pass for the engine: plain structs, no vector types. The kernel
// itself (backward-inl.h) is compiled once per SIMD target.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// Parameters shared by all heads of a call.
struct BackwardSetup {
  /// Parameters of the recomputed forward pass.
  ForwardSetup forward;
  DType grad_context = DType::kFloat32;
  std::int64_t most_queries = 0;      // q_len of the longest sequence
  std::int64_t queries_together = 0;  // BackwardSizes::queries
  std::int64_t buckets = 0;           // of the relative table; 0 if its gradient is not requested
  // Requested outputs.
  bool grad_query = false, grad_key = false, grad_value = false, grad_bias = false;
  bool relevance = false;

  /// Returns whether all inputs and the gradient of the context have this type.
  bool all_are(DType type) const { return forward.types.all(type) && grad_context == type; }
  /// Returns whether a requested output depends on score gradients; grad_value does not.
  bool of_scores() const { return grad_query || grad_key || grad_bias || buckets > 0 || relevance; }
};

/// Sizes that depend on the arithmetic.
struct BackwardSizes {
  std::int64_t queries = 0;        // that are processed together
  std::int64_t keys_multiple = 0;  // BackwardSetup::forward.block_keys is a multiple of it
};

/// Range [begin, end) that contains all keys visible to the rows that are processed together.
struct KeyBounds {
  std::int64_t begin = 0, end = 0;
};

/// One query head of one sequence.
struct BackwardHead {
  ForwardHead forward;  // its query, key, value, bias and positions
  std::int64_t q_len = 0;
  InputRows grad_context;
  // Computed by prepare_rows() for each query: log2(e) * lse, and the delta subtracted from dP.
  const float* log2_sum = nullptr;
  const float* delta = nullptr;
  const KeyBounds* bounds = nullptr;  // for each BackwardSetup::queries_together queries
  /// Accumulated into; null if not requested.
  float* grad_query = nullptr;
  std::int64_t grad_query_stride = 0;
  /// [buckets]; all elements are overwritten.
  float* grad_relative = nullptr;
  /// The gradients are added to it. Broadcast along queries or keys if the bias is broadcast.
  float* grad_bias = nullptr;
  BiasRows grad_bias_place;
  /// Outputs of BackwardLenses for this head, [kv_len]; null if not requested.
  float* relevance = nullptr;
  float* magnitude = nullptr;
};

/// The first rows that an item reads.
struct BackwardInputRows {
  InputRows key, value, query, grad_context;
  std::int64_t keys = 0, queries = 0;
};

/// A block of keys and values, with all queries of the heads that share them.
struct BackwardItem {
  std::int64_t first_key = 0;
  std::int64_t group = 0;
  /// Returns query head i of the group.
  BackwardHead (*head)(const void* of, std::int64_t i) = nullptr;
  const void* heads_of = nullptr;
  // Null if not requested.
  OutputRows grad_key, grad_value;
  /// Counters for Turn. `progress` has one counter per item that adds to the same query gradients;
  /// `turn` is this item's index. If items share bias gradients, `bias_progress` has one counter
  /// per item.
  std::atomic<std::int64_t>* progress = nullptr;
  std::int64_t turn = 0;
  std::atomic<std::int64_t>* bias_progress = nullptr;
  std::int64_t bias_turn = 0;
  /// The rows to prefetch: those of the item that the same thread will probably compute next. May
  /// be empty.
  BackwardInputRows next;
};

/// A range of queries of a head, a multiple of those processed together, that is prepared before
/// any item is computed.
struct BackwardRows {
  BackwardHead head;
  InputRows context, lse, grad_lse;  // grad_lse may be null
  std::int64_t first_query = 0, last_query = 0;
  // Outputs for the head, as in BackwardHead.
  float* log2_sum = nullptr;
  float* delta = nullptr;
  KeyBounds* bounds = nullptr;
};

/// Returns the sizes for the types of a setup.
BackwardSizes backward_sizes(const BackwardSetup& setup);

/// Returns the scratch bytes that one thread needs, a multiple of 64.
std::size_t backward_scratch_bytes(const BackwardSetup& setup);

/// Returns whether bfloat16 is multiplied without converting it.
bool multiplies_bf16(const BackwardSetup& setup);

/// Writes log2_sum, delta and bounds of a range of queries, and zeros their grad_query.
void prepare_rows(const BackwardSetup& setup, const BackwardRows& rows);

/// Computes an item. `scratch` is aligned to 64 bytes. If a stop is requested, returns early and
/// leaves the results unspecified.
void backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                   const std::stop_token& stop);

}  // namespace fovea::kernels
