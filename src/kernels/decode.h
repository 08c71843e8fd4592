// SPDX-License-Identifier: Apache-2.0
//
// Decoding as the engine sees it: a few queries against a long cache, in plain structures. The
// kernel itself (decode-inl.h) is compiled once per SIMD target.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "fovea/attention_options.h"

#include "kernels/forward.h"

namespace fovea::kernels {

/// The keys or values of one head, in runs of rows: one run, or blocks in the order of a table.
struct CacheRows {
  InputRows rows;                        // of the first run, or of block 0
  const std::int64_t* blocks = nullptr;  // null: one run
  std::int64_t table_stride = 0;         // from one entry of the table to the next
  std::int64_t block_size = 0;           // rows
  std::int64_t block_stride = 0;         // elements from one block to the next

  /// Calls visit(rows, first, count) for each run of the rows, of `dim` numbers, from `begin` to
  /// before `end`: `rows` begins with number `first`. Before each, the beginning of the next one is
  /// asked for: the processor's own prefetchers know what follows within a block, not which block
  /// is next.
  template <class Visit>
  void for_each_run(std::int64_t begin, std::int64_t end, std::int64_t dim,
                    const Visit& visit) const {
    if (blocks == nullptr) {
      visit(InputRows{rows.row(begin), rows.stride, rows.dtype}, begin, end - begin);
      return;
    }
    while (begin < end) {
      const std::int64_t count = rows_in_block(begin, end);
      if (begin + count < end) fetch(begin + count, end, dim);
      visit(run_from(begin), begin, count);
      begin += count;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kBytesAhead = 8 << 10;

  /// Asks for the rows of a block from `begin` to before `end`, as far as they take no more than
  /// kBytesAhead, to be in the second cache soon. All at once: a few lines at a time between the
  /// rows at work make these wait.
  void fetch(std::int64_t begin, std::int64_t end, std::int64_t dim) const {
    const InputRows run = run_from(begin);
    const std::int64_t count = rows_in_block(begin, end);
    const std::int64_t row_bytes = dim * static_cast<std::int64_t>(dtype_size(rows.dtype));
    for (std::int64_t r = 0, left = kBytesAhead; r < count && left > 0; ++r, left -= row_bytes) {
      for (std::int64_t at = 0; at < row_bytes; at += kLine) {
        __builtin_prefetch(run.row(r) + at, 0, 2);
      }
    }
  }

  /// How many rows from `begin` to before `end` are in the block that `begin` lies in.
  std::int64_t rows_in_block(std::int64_t begin, std::int64_t end) const {
    return std::min(block_size - begin % block_size, end - begin);
  }

  /// The rows of the block that row `begin` lies in, from that one on.
  InputRows run_from(std::int64_t begin) const {
    const InputRows elements{rows.data, 1, rows.dtype};
    const std::int64_t block = blocks[begin / block_size * table_stride];
    return {elements.row(block * block_stride + begin % block_size * rows.stride), rows.stride,
            rows.dtype};
  }
};

/// Rows of queries that go through a chunk of keys together.
constexpr std::int64_t kDecodeRowsTogether = 8;

/// What all items of a call have in common.
struct DecodeSetup {
  const AttentionOptions* options = nullptr;
  StorageTypes types;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  // 0 where no context is asked for
  std::int64_t q_heads = 0;
  std::int64_t group = 0;  // query heads that share a head of keys
  std::int64_t most_queries = 0;
  bool cached = false;          // all keys of the call fit half of a second cache
  std::int64_t chunk_keys = 0;  // that are scored, weighed and summed up at a time
  double scale = 1.0;

  /// Rows of an item at most: each query of each head of a group is one.
  std::int64_t most_rows() const { return group * most_queries; }
};

/// Some of the keys of one head of keys, and queries that look at it. Row r is query
/// origin.query + r % q_len of head origin.head + r / q_len.
struct DecodeItem {
  ScorePosition origin;  // batch, first head and query, offset and starts; the key is 0
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  InputRows query;                     // of the first head, from the first query on
  std::int64_t query_head_stride = 0;  // elements
  CacheRows key, value;
  std::int64_t key_begin = 0;  // a multiple of chunk_keys
  std::int64_t key_end = 0;
  BiasRows bias;  // of the first head and query

  std::int64_t rows(std::int64_t group) const { return group * q_len; }
  ScorePosition place(std::int64_t row, std::int64_t key_number) const {
    ScorePosition at = origin;
    at.head += row / q_len;
    at.query += row % q_len;
    at.key = key_number;
    return at;
  }
};

/// The part of a row's softmax that an item's keys are: weights are 2^(score log2(e) - maximum).
/// `context` is their sum times the values, `value_dim` floats.
struct DecodePart {
  float* maximum;  // [rows]; the lowest float where no key is visible
  float* sum;      // [rows]
  float* context;  // [rows][value_dim]
};

/// The weights of an item's rows, 2^(score log2(e) - log2_sum), 0 where the key is hidden; or their
/// logarithms to base 2.
struct DecodeWeights {
  const float* log2_sum;    // [rows], lse log2(e)
  float* weights;           // of row 0 and the item's first key
  std::int64_t stride = 0;  // from row to row
  bool logarithms = false;
};

/// The bytes of scratch that one thread needs, a multiple of 64.
std::size_t decode_scratch_bytes(const DecodeSetup& setup);

/// Computes an item's part. `scratch` is aligned to 64 bytes. Returns early, with the part
/// unspecified, when `stop` asks.
void decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                 std::byte* scratch, const std::stop_token& stop);

/// Finds the weights of an item's rows again; its values are not looked at. As decode_item.
void decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                         const DecodeWeights& weights, std::byte* scratch,
                         const std::stop_token& stop);

}  // namespace fovea::kernels
