// SPDX-License-Identifier: Apache-2.0
//
// Validation of keys and values in blocks (fovea/paged_key_value.h), so that readers can rely on
// every entry of the block table.

#include "fovea/paged_key_value.h"

#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/fail.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

/// Returns the type and shape of a tensor for a message; "nothing" if undefined.
std::string what_came(const TensorView& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{} {}", dtype_name(tensor.dtype()), to_string(tensor.shape()));
}

void validate_pool(const TensorView& pool, std::string_view name, std::string_view dim) {
  if (!pool.defined() || pool.rank() != 4 || !is_float(pool.dtype())) {
    fail_argument(name, "expected floats [blocks, kv_heads, block_size, {}], got {}", dim,
                  what_came(pool));
  }
  if (pool.extent(3) > 1 && pool.strides()[3] != 1) {
    fail_argument(name, "expected a contiguous last dimension (stride 1), got strides {}",
                  to_string(pool.strides()));
  }
  memory_of(pool, name);
}

void validate_item(const PagedKeyValue& paged, std::int64_t item) {
  const std::int64_t blocks = paged.key.extent(0);
  const std::int64_t block_size = paged.key.extent(2);
  const std::int64_t most_blocks = paged.block_table.extent(1);
  const std::int64_t length = paged.lengths.at<std::int64_t>({item});
  const std::int64_t needed = length / block_size + (length % block_size != 0 ? 1 : 0);
  if (length < 0 || needed > most_blocks) {
    std::int64_t most = 0;
    if (__builtin_mul_overflow(most_blocks, block_size, &most)) {
      most = std::numeric_limits<std::int64_t>::max();
    }
    fail_argument("lengths",
                  "expected 0 to {} tokens (most_blocks * block_size), got {} for item {}", most,
                  length, item);
  }
  for (std::int64_t i = 0; i < needed; ++i) {
    const std::int64_t block = paged.block_table.at<std::int64_t>({item, i});
    if (block < 0 || block >= blocks) {
      fail_argument("block_table", "expected the number of one of {} blocks, got {} at [{}, {}]",
                    blocks, block, item, i);
    }
  }
}

}  // namespace

void validate(const PagedKeyValue& paged) {
  validate_pool(paged.key, "key", "head_dim");
  validate_pool(paged.value, "value", "value_dim");
  const Shape& key = paged.key.shape();
  const Shape& value = paged.value.shape();
  if (value[0] != key[0] || value[1] != key[1] || value[2] != key[2]) {
    fail_argument(
        "value",
        "expected [{}, {}, {}, value_dim], with the blocks, kv_heads and block_size of key,"
        " got {}",
        key[0], key[1], key[2], to_string(value));
  }
  if (key[2] < 1)
    fail_argument("key", "expected a block_size of 1 or more, got {}", to_string(key));
  const TensorView& table = paged.block_table;
  if (!table.defined() || table.rank() != 2 || table.dtype() != DType::kInt64) {
    fail_argument("block_table", "expected int64 [batch, most_blocks], got {}", what_came(table));
  }
  memory_of(table, "block_table");
  const TensorView& lengths = paged.lengths;
  if (!lengths.defined() || lengths.dtype() != DType::kInt64 ||
      lengths.shape() != Shape{table.extent(0)}) {
    fail_argument("lengths", "expected int64 [{}], one for each row of block_table, got {}",
                  table.extent(0), what_came(lengths));
  }
  memory_of(lengths, "lengths");
  for (std::int64_t item = 0; item < table.extent(0); ++item) validate_item(paged, item);
}

}  // namespace fovea
