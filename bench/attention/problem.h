// SPDX-License-Identifier: Apache-2.0
//
// One attention problem for `fovea-bench` to measure: its random inputs, its useful work, and its
// notation on the command line and in tables.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/lens_buffers.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/paged_key_value.h"
#include "fovea/tensor.h"

namespace fovea::cli {

/// Modifications of the scores.
struct BenchScore {
  double softcap = 0.0;   ///< 0: none
  bool alibi = false;     ///< with the paper's slopes
  bool bias = false;      ///< random numbers [q_len, kv_len], the same for all heads
  bool relative = false;  ///< random numbers for T5's 32 buckets, per head
  bool functor = false;   ///< the custom score of functor.h
};

/// Lenses to compute in the same call.
struct BenchLenses {
  bool statistics = false;
  std::int64_t top = 0;       ///< keys per row; 0: none
  std::int64_t map_rows = 0;  ///< cells; 0: no map
  std::int64_t map_columns = 0;
  bool received = false;   ///< weight received by each key, in a separate pass
  bool relevance = false;  ///< of each key, in the backward pass

  bool any() const { return statistics || top > 0 || map_rows > 0 || received || relevance; }
};

struct BenchProblem {
  std::int64_t batch = 1;
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  Mask mask = {};
  BenchScore score = {};
  /// The type of all tensors except lse.
  DType dtype = DType::kFloat32;
  /// Tokens per block of keys and values, with blocks in random order; 0: contiguous.
  std::int64_t block_size = 0;
  BenchLenses lenses = {};
  /// Whether scores rise from key to key in every row, so that each key enters the list of top keys
  /// when it is processed.
  bool rising = false;

  ProblemShape shape() const {
    return {
        .batch = batch, .q_heads = q_heads, .kv_heads = kv_heads, .q_len = q_len, .kv_len = kv_len};
  }
};

/// Parses "causal", "window:LEFT,RIGHT" or "prefix:N". Throws InvalidArgument for anything else.
Mask parse_mask(std::string_view text);

/// Parses "softcap:CAP", "alibi", "bias", "relative" or "functor" into `score`. Throws
/// InvalidArgument for anything else.
void parse_score(std::string_view text, BenchScore& score);

/// Parses "statistics", "top:K", "map:ROWS,COLUMNS", "received" or "relevance" into `lenses`.
/// Throws InvalidArgument for anything else, and for relevance combined with another lens, because
/// only relevance needs the backward pass.
void parse_lens(std::string_view text, BenchLenses& lenses);

/// Returns a description for a table row, such as "N 4096, D 64, 8 heads, causal()".
std::string describe(const BenchProblem& problem);

/// Returns the flop of a call without redundant work: 2 (head_dim + value_dim) for each pair of a
/// query and a visible key.
double useful_flop(const BenchProblem& problem);

/// Returns the same for attention_backward: 2 (3 head_dim + 2 value_dim) for each pair.
double useful_backward_flop(const BenchProblem& problem);

/// Returns the size of all keys and values in bytes.
double key_value_bytes(const BenchProblem& problem);

/// The input and output tensors of a problem.
struct BenchTensors {
  Tensor query;
  Tensor key;
  Tensor value;
  /// A copy of keys and values in blocks, if the problem has a block size.
  Tensor key_blocks;
  Tensor value_blocks;
  Tensor block_table;
  Tensor lengths;
  AttentionOptions options;
  Tensor context;
  Tensor lse;
  /// Lens results, and the views that the engine writes them to.
  LensBuffers watched;
  Tensor received, relevance, magnitude;
  Lenses lenses;
  /// Only for the backward pass.
  Tensor grad_context, grad_query, grad_key, grad_value;

  PagedKeyValue paged() const { return {key_blocks, value_blocks, block_table, lengths}; }
};

/// Returns tensors whose inputs are normally distributed and the same at every call. If `backward`,
/// includes those of the backward pass. Throws InvalidArgument if the options do not fit the
/// problem.
BenchTensors make_tensors(const BenchProblem& problem, bool backward);

}  // namespace fovea::cli
