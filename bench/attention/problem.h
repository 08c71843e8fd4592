// SPDX-License-Identifier: Apache-2.0
//
// What `fovea-bench` measures: one attention problem, its random inputs, the work it is, and how it
// is written on the command line and in a table.

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

/// What is added to plain scores.
struct BenchScore {
  double softcap = 0.0;   ///< 0: none
  bool alibi = false;     ///< with the paper's slopes
  bool bias = false;      ///< random numbers [q_len, kv_len], alike for all heads
  bool relative = false;  ///< random numbers in T5's 32 buckets, for each head
  bool functor = false;   ///< a functor of one's own (functor.h)
};

/// What is watched in the same pass.
struct BenchLenses {
  bool statistics = false;
  std::int64_t top = 0;       ///< keys per row; 0: none
  std::int64_t map_rows = 0;  ///< cells; 0: no map
  std::int64_t map_columns = 0;
  bool received = false;   ///< by each key, in a pass of its own
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
  /// What all tensors but the lse are stored in.
  DType dtype = DType::kFloat32;
  /// Tokens in a block of keys and values, which then lie in random order; 0: all in one piece.
  std::int64_t block_size = 0;
  BenchLenses lenses = {};
  /// Whether scores rise from each key to the next, in every row: all of them are once among the
  /// largest.
  bool rising = false;

  ProblemShape shape() const {
    return {
        .batch = batch, .q_heads = q_heads, .kv_heads = kv_heads, .q_len = q_len, .kv_len = kv_len};
  }
};

/// "causal", "window:LEFT,RIGHT" or "prefix:N". Throws InvalidArgument for anything else.
Mask parse_mask(std::string_view text);

/// Puts "softcap:CAP", "alibi", "bias", "relative" or "functor" into `score`. Throws
/// InvalidArgument for anything else.
void parse_score(std::string_view text, BenchScore& score);

/// Puts "statistics", "top:K", "map:ROWS,COLUMNS", "received" or "relevance" into `lenses`. Throws
/// InvalidArgument for anything else, and where relevance, which is the backward pass's, is not
/// alone.
void parse_lens(std::string_view text, BenchLenses& lenses);

/// As a line of a table: "N 4096, D 64, 8 heads, causal()".
std::string describe(const BenchProblem& problem);

/// The flop of a call that leaves nothing out and does nothing twice: for each pair of a query and
/// a key that it sees, a product of head_dim and one of value_dim numbers, two flop a number.
double useful_flop(const BenchProblem& problem);

/// The same for a call of attention_backward: three products of head_dim numbers, two of value_dim.
double useful_backward_flop(const BenchProblem& problem);

/// The bytes of all keys and values.
double key_value_bytes(const BenchProblem& problem);

/// The tensors of a problem and where its results go.
struct BenchTensors {
  Tensor query;
  Tensor key;
  Tensor value;
  /// Keys and values once more, where the problem has them in blocks.
  Tensor key_blocks;
  Tensor value_blocks;
  Tensor block_table;
  Tensor lengths;
  AttentionOptions options;
  Tensor context;
  Tensor lse;
  /// Where lenses write, and these.
  LensBuffers watched;
  Tensor received, relevance, magnitude;
  Lenses lenses;
  /// Of the backward pass alone.
  Tensor grad_context, grad_query, grad_key, grad_value;

  PagedKeyValue paged() const { return {key_blocks, value_blocks, block_table, lengths}; }
};

/// Normal numbers, the same at every call, with those of the backward pass or without. Throws
/// InvalidArgument when the options do not fit the problem.
BenchTensors make_tensors(const BenchProblem& problem, bool backward);

}  // namespace fovea::cli
