// SPDX-License-Identifier: Apache-2.0
//
// Interface of the decoding kernel for the engine: a few queries against a long cache, in plain
// structs. The kernel itself (decode-inl.h) is compiled once per SIMD target.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "fovea/attention_options.h"

#include "kernels/decode/next_run.h"
#include "kernels/tile/setup.h"

namespace fovea::kernels {

/// Keys or values of adjacent heads, stored in runs of rows: one run per head, or the blocks listed
/// in a table.
struct CacheRows {
  InputRows rows;                        // rows of the first head, in its run or in block 0
  std::int64_t head_stride = 0;          // in elements
  const std::int64_t* blocks = nullptr;  // block table; null: one run
  std::int64_t table_stride = 0;         // stride of the block table
  std::int64_t block_size = 0;           // rows per block
  std::int64_t block_stride = 0;         // in elements

  /// Calls visit(run, next, first, count) for each run of rows in [begin, end), with elements of
  /// type T. `run` points to row `first` of the first head; the rows of all `heads` heads are
  /// head_stride apart. Blocks are visited one by one, all heads of a block before the next block,
  /// in memory order.
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

  /// Returns the rows of head `head` and of all later heads.
  CacheRows of_head(std::int64_t head) const {
    CacheRows from = *this;
    from.rows.data = InputRows{rows.data, head_stride, rows.dtype}.row(head);
    return from;
  }
};

/// Query rows that are processed together for each chunk of a head's keys.
constexpr std::int64_t kDecodeRowsTogether = 8;

/// Parameters shared by all items of a call.
struct DecodeSetup {
  const AttentionOptions* options = nullptr;
  StorageTypes types;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  // 0 if no context is requested
  std::int64_t q_heads = 0;
  std::int64_t group = 0;  // query heads per key head
  std::int64_t most_queries = 0;
  std::int64_t most_heads = 1;  // maximum number of key heads per item
  std::int64_t chunk_keys = 0;  // keys of each head that are processed at a time
  double scale = 1.0;
  /// With AVX-512: whether three or four rows are processed at a time, and keys and values are
  /// prefetched some way ahead. Does not change any result.
  bool four_rows = false;

  /// Returns the maximum number of rows per key head. Each query of each head of a group is a row.
  std::int64_t most_rows_of_head() const { return group * most_queries; }
  /// Returns the maximum number of rows per item.
  std::int64_t most_rows() const { return most_heads * most_rows_of_head(); }
};

/// A range of keys of adjacent key heads, with the queries that attend to them. Row r is query
/// origin.query + r % q_len of head origin.head + r / q_len.
struct DecodeItem {
  ScorePosition origin;    // batch, first head, first query, offset and sequence starts; key is 0
  std::int64_t heads = 1;  // key heads
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  InputRows query;                     // of the first head, from the first query on
  std::int64_t query_head_stride = 0;  // in elements
  CacheRows key, value;
  std::int64_t key_begin = 0;  // a multiple of chunk_keys
  std::int64_t key_end = 0;
  bool cached = false;  // all keys of the packed sequence, or of the batch, fit in half an L2 cache
  BiasRows bias;        // starts at the first head and query

  std::int64_t rows_of_head(std::int64_t group) const { return group * q_len; }
  ScorePosition place(std::int64_t row, std::int64_t key_number) const {
    ScorePosition at = origin;
    at.head += row / q_len;
    at.query += row % q_len;
    at.key = key_number;
    return at;
  }
};

/// Partial softmax of each row over the keys of an item, with weights 2^(score log2(e) - maximum).
/// `context` is the sum of weights times values, `value_dim` floats per row.
struct DecodePart {
  float* maximum;  // [rows]; the lowest float if no key is visible
  float* sum;      // [rows]
  float* context;  // [rows][value_dim]
};

/// Output weights of an item's rows: 2^(score log2(e) - log2_sum), 0 for hidden keys; or their
/// base-2 logarithms.
struct DecodeWeights {
  const float* log2_sum;    // [rows], lse * log2(e)
  float* weights;           // starts at row 0 and the item's first key
  std::int64_t stride = 0;  // between rows
  bool logarithms = false;
};

/// Returns the scratch bytes that one thread needs, a multiple of 64.
std::size_t decode_scratch_bytes(const DecodeSetup& setup);

/// Computes the partial softmax of an item. `scratch` is aligned to 64 bytes. If a stop is
/// requested, returns early and leaves `part` unspecified.
void decode_item(const DecodeSetup& setup, const DecodeItem& item, const DecodePart& part,
                 std::byte* scratch, const std::stop_token& stop);

/// Recomputes the weights of an item's rows, without reading its values. `scratch` and `stop` are
/// the same as for decode_item.
void decode_weights_item(const DecodeSetup& setup, const DecodeItem& item,
                         const DecodeWeights& weights, std::byte* scratch,
                         const std::stop_token& stop);

}  // namespace fovea::kernels
