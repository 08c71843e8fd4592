// SPDX-License-Identifier: Apache-2.0
//
// The fused backward pass as the engine sees it: plain structures, no vector types. The kernel
// itself (backward-inl.h) is compiled once per SIMD target.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// What all heads of a call have in common.
struct BackwardSetup {
  /// As for the forward pass, one panel at a time.
  ForwardSetup forward;
  DType grad_context = DType::kFloat32;
  std::int64_t most_queries = 0;  // q_len, of the longest sequence
  std::int64_t buckets = 0;       // of the relative table; 0 where its gradient is not asked for
  // What is asked for.
  bool grad_query = false, grad_key = false, grad_value = false, grad_bias = false;
  bool relevance = false;

  /// Whether there are gradients of scores to be found, or only those of values.
  bool of_scores() const { return grad_query || grad_key || grad_bias || buckets > 0 || relevance; }
};

/// The keys that a panel's rows see lie from begin to before end.
struct KeyBounds {
  std::int64_t begin = 0, end = 0;
};

/// One query head of one sequence.
struct BackwardHead {
  ForwardHead forward;  // its query, key, value, bias and places
  std::int64_t q_len = 0;
  InputRows grad_context;
  // What prepare_rows() finds, for each query: log2(e) * lse, and what dP is compared with.
  const float* log2_sum = nullptr;
  const float* delta = nullptr;
  const KeyBounds* bounds = nullptr;  // for each panel
  /// To be added to; null where it is not asked for.
  float* grad_query = nullptr;
  std::int64_t grad_query_stride = 0;
  /// [buckets], all of it to be written.
  float* grad_relative = nullptr;
  /// To be added to. Where the bias repeats along queries or keys, so does this.
  float* grad_bias = nullptr;
  BiasRows grad_bias_place;
  /// What BackwardLenses has of the head, [kv_len]; null where it is not asked for.
  float* relevance = nullptr;
  float* magnitude = nullptr;
};

/// A block of keys and values, with all queries of the heads that share them.
struct BackwardItem {
  std::int64_t first_key = 0;
  std::int64_t group = 0;
  /// The query head number i of the group.
  BackwardHead (*head)(const void* of, std::int64_t i) = nullptr;
  const void* heads_of = nullptr;
  // Null where they are not asked for.
  OutputRows grad_key, grad_value;
  /// For Turn: of the items that add to the same gradients of queries, of which this is number
  /// `turn`; and, where items share gradients of the bias, of all items.
  std::atomic<std::int64_t>* progress = nullptr;
  std::int64_t turn = 0;
  std::atomic<std::int64_t>* bias_progress = nullptr;
  std::int64_t bias_turn = 0;
};

/// Some queries of a head, to be looked at before any item is: whole panels.
struct BackwardRows {
  BackwardHead head;
  InputRows context, lse, grad_lse;  // the last one null where there is none
  std::int64_t first_query = 0, last_query = 0;
  // Of the head, as in BackwardHead.
  float* log2_sum = nullptr;
  float* delta = nullptr;
  KeyBounds* bounds = nullptr;
};

/// The bytes of scratch that one thread needs, a multiple of 64.
std::size_t backward_scratch_bytes(const BackwardSetup& setup);

/// Whether products are of pairs of bfloat16.
bool has_bf16_backward(const BackwardSetup& setup);

/// Writes log2_sum, delta and bounds of some queries and clears their grad_query.
void prepare_rows(const BackwardSetup& setup, const BackwardRows& rows);

/// Computes an item. `scratch` is aligned to 64 bytes. Returns early, with results unspecified,
/// when `stop` asks.
void backward_item(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch,
                   const std::stop_token& stop);

/// Writes `count` numbers in another type, rounded.
void write_row(const float* from, std::int64_t count, DType dtype, void* to);

}  // namespace fovea::kernels
