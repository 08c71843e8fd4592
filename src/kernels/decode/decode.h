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

#include "kernels/decode/next_run.h"
#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// The keys or values of neighbouring heads, in runs of rows: one run for each head, or blocks in
/// the order of a table.
struct CacheRows {
  InputRows rows;                        // of the first head: of its run, or of block 0
  std::int64_t head_stride = 0;          // elements from one head to the next
  const std::int64_t* blocks = nullptr;  // null: one run
  std::int64_t table_stride = 0;         // from one entry of the table to the next
  std::int64_t block_size = 0;           // rows
  std::int64_t block_stride = 0;         // elements from one block to the next

  /// Calls visit(run, next, first, count) for each run of the rows, numbers of type T, from `begin`
  /// to before `end`: `run` is where row `first` of the first head begins, those of `heads` heads
  /// follow at head_stride. Blocks are gone through one by one, all heads of one before the next,
  /// as they lie in memory.
  template <class T, class Visit>
  void for_each_run(std::int64_t heads, std::int64_t begin, std::int64_t end, std::int64_t dim,
                    const Visit& visit) const {
    const T* const data = rows.row_as<T>(0);
    if (blocks == nullptr) {
      visit(data + begin * rows.stride, NextRun(), begin, end - begin);
      return;
    }
    const auto block_rows = [&](std::int64_t number) {
      return data + blocks[number * table_stride] * block_stride;
    };
    const bool dense = (heads - 1) * head_stride + (block_size - 1) * rows.stride + dim ==
                       heads * block_size * dim;
    for (std::int64_t number = begin / block_size; begin < end; ++number) {
      const std::int64_t within = begin - number * block_size;
      const std::int64_t count = std::min(block_size - within, end - begin);
      NextRun next;
      if (dense && begin + count < end) {
        next = NextRun(block_rows(number + 1), heads, block_size * dim);
      }
      visit(block_rows(number) + within * rows.stride, next, begin, count);
      begin += count;
    }
  }

  /// The rows from head number `head` on.
  CacheRows of_head(std::int64_t head) const {
    CacheRows from = *this;
    from.rows.data = InputRows{rows.data, head_stride, rows.dtype}.row(head);
    return from;
  }
};

/// Rows of queries that go through a chunk of a head's keys together.
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
  std::int64_t most_heads = 1;  // of keys, in an item
  bool cached = false;          // all keys of the call fit half of a second cache
  std::int64_t chunk_keys = 0;  // of each head, that are scored, weighed and summed up at a time
  double scale = 1.0;

  /// Rows that look at one head of keys, at most: each query of each head of a group is one.
  std::int64_t most_rows_of_head() const { return group * most_queries; }
  /// Rows of an item at most.
  std::int64_t most_rows() const { return most_heads * most_rows_of_head(); }
};

/// Some of the keys of neighbouring heads of keys, and the queries that look at them. Row r is
/// query origin.query + r % q_len of head origin.head + r / q_len.
struct DecodeItem {
  ScorePosition origin;    // batch, first head and query, offset and starts; the key is 0
  std::int64_t heads = 1;  // of keys
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  InputRows query;                     // of the first head, from the first query on
  std::int64_t query_head_stride = 0;  // elements
  CacheRows key, value;
  std::int64_t key_begin = 0;  // a multiple of chunk_keys
  std::int64_t key_end = 0;
  BiasRows bias;  // of the first head and query

  std::int64_t rows_of_head(std::int64_t group) const { return group * q_len; }
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
