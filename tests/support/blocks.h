// SPDX-License-Identifier: Apache-2.0
//
// A paged cache of keys and values for tests.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "fovea/paged_key_value.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

#include "support/random_problem.h"

namespace fovea::test {

/// Tensors [batch, kv_heads, kv_len, dim] copied into cache blocks in random order.
struct Blocks {
  Tensor key, value, table, lengths;

  Blocks(const RandomProblem& p, std::int64_t block_size,
         const std::vector<std::int64_t>& lengths_of, DType dtype) {
    const std::int64_t batch = p.key.extent(0), heads = p.key.extent(1);
    const std::int64_t per_item = (p.key.extent(2) + block_size - 1) / block_size + 1;
    const std::int64_t blocks = batch * per_item + 3;
    // Unwritten tokens are NaN, so that reading them shows in the results.
    key = of_nan(dtype, {blocks, heads, block_size, p.key.extent(3)});
    value = of_nan(dtype, {blocks, heads, block_size, p.value.extent(3)});
    table = Tensor(DType::kInt64, {batch, per_item});
    lengths = Tensor::from<std::int64_t>({batch}, lengths_of);
    std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    RandomState random(7);
    for (std::size_t i = order.size() - 1; i > 0; --i) {
      std::swap(
          order[i],
          order[static_cast<std::size_t>(random.randint(0, static_cast<std::int64_t>(i) + 1))]);
    }
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < per_item; ++i) {
        table.at<std::int64_t>({b, i}) = order[static_cast<std::size_t>(b * per_item + i)];
      }
      const std::int64_t length = lengths_of[static_cast<std::size_t>(b)];
      for (std::int64_t i = (length + block_size - 1) / block_size; i < per_item; ++i) {
        // Entries past the length must not be read; their block number is far out of range.
        table.at<std::int64_t>({b, i}) = std::numeric_limits<std::int64_t>::max();
      }
      write(p.key, key, b, length);
      write(p.value, value, b, length);
    }
  }
  PagedKeyValue view() const { return {key, value, table, lengths}; }

 private:
  static Tensor of_nan(DType dtype, const Shape& shape) {
    Tensor tensor(DType::kFloat32, shape);
    std::ranges::fill(tensor.span<float>(), std::nanf(""));
    return convert(tensor, dtype);
  }
  void write(const Tensor& from, Tensor& to, std::int64_t item, std::int64_t length) {
    const std::int64_t size = to.extent(2);
    for_each_index({from.extent(1), length, from.extent(3)}, [&](const Index& at) {
      const std::int64_t block = table.at<std::int64_t>({item, at[1] / size});
      set_value(to, {block, at[0], at[1] % size, at[2]}, from.value({item, at[0], at[1], at[2]}));
    });
  }
};

}  // namespace fovea::test
