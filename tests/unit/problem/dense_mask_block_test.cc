// SPDX-License-Identifier: Apache-2.0
//
// Dense masks of every broadcast and memory layout: blocks, key ranges and runs, compared with the
// elements.

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

#include "support/masks.h"

namespace fovea {
namespace {

using test::at;

/// A copy of a tensor in another memory layout; `view` points into `memory`.
struct Layout {
  std::vector<std::uint8_t> memory;
  TensorView view;

  /// `order` lists the dimensions from the largest stride to the smallest. `step` is the stride of
  /// the last one; if it is negative, the elements are stored backwards.
  Layout(const Tensor& tensor, const std::vector<int>& order, std::int64_t step) {
    Strides strides = tensor.shape();
    std::int64_t stride = step;
    for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
      strides[*dim] = stride;
      stride *= tensor.extent(*dim);
    }
    const std::int64_t size = stride < 0 ? -stride : stride;
    memory.assign(at(size + 1), 7);  // gaps between elements hold neither 0 nor 1
    std::uint8_t* const first = memory.data() + (stride < 0 ? size : 0);
    for_each_index(tensor.shape(), [&](const Index& index) {
      std::int64_t offset = 0;
      for (int dim = 0; dim < tensor.rank(); ++dim) offset += index[dim] * strides[dim];
      first[offset] = tensor.at<bool>(index) ? 1 : 0;
    });
    view = TensorView(first, DType::kBool, tensor.shape(), strides);
  }
};

TEST(MaskBlocks, DenseMasksOfEveryBroadcastAndLayout) {
  const Shape full{2, 3, 4, 21};  // rows of more than two groups of eight elements
  RandomState random(12);
  std::array<int, 3> found{};
  for (int pattern = 0; pattern < 16; ++pattern) {
    for (int rank = 0; rank <= 4; ++rank) {
      Shape shape;
      for (int dim = 4 - rank; dim < 4; ++dim) {
        shape.push_back((pattern >> dim & 1) != 0 ? 1 : full[dim]);
      }
      for (std::int64_t content = 0; content < 4; ++content) {
        Tensor open(DType::kBool, shape);
        for (bool& one : open.span<bool>()) one = content % 2 == 0;
        if (content >= 2) {  // one element differs
          bool& one = open.span<bool>()[at(random.randint(0, open.size()))];
          one = !one;
        }
        std::vector<int> rows, columns;
        for (int dim = 0; dim < rank; ++dim) rows.push_back(dim);
        columns = rows;
        if (rank >= 2) std::swap(columns[at(rank - 1)], columns[at(rank - 2)]);
        for (const Layout& layout : {Layout(open, rows, 1), Layout(open, rows, 2),
                                     Layout(open, columns, 1), Layout(open, rows, -1)}) {
          const Mask mask = dense(layout.view);
          for (int n = 0; n < 12; ++n) {
            ScoreBlock block;
            block.first.batch = random.randint(0, full[0]);
            block.first.head = random.randint(0, full[1]);
            block.first.query_start = random.randint(0, 2);
            block.first.key_start = random.randint(0, 4);
            block.first.query = random.randint(0, full[2] - block.first.query_start);
            block.first.key = random.randint(0, full[3] - block.first.key_start);
            const std::int64_t q = block.first.query_start + block.first.query;
            const std::int64_t k = block.first.key_start + block.first.key;
            block.queries = n % 3 == 0 ? full[2] - q : random.randint(1, full[2] - q + 1);
            block.keys = n % 2 == 0 ? full[3] - k : random.randint(1, full[3] - k + 1);
            // Reads one element by the tensor's own indices, with broadcasting.
            const auto element = [&](std::int64_t i, std::int64_t j) {
              const Shape place{block.first.batch, block.first.head, q + i, k + j};
              Index index = shape;
              for (int dim = 0; dim < rank; ++dim) {
                index[dim] = shape[dim] == 1 ? 0 : place[dim + 4 - rank];
              }
              return open.at<bool>(index);
            };
            std::int64_t seen = 0;
            for (std::int64_t i = 0; i < block.queries; ++i) {
              std::vector<std::uint8_t> run(at(block.keys));
              ScorePosition row = block.first;
              row.query += i;
              mask.fill(row, block.keys, run.data());
              for (std::int64_t j = 0; j < block.keys; ++j) {
                const std::uint8_t expected = element(i, j) ? 1 : 0;
                seen += expected;
                ASSERT_EQ(run[at(j)], expected);
                ScorePosition one = row;
                one.key += j;
                ASSERT_EQ(mask.visible(one), expected != 0);
              }
            }
            Visibility expected = Visibility::kSome;
            if (seen == 0) expected = Visibility::kNone;
            if (seen == block.queries * block.keys) expected = Visibility::kAll;
            ASSERT_EQ(mask.classify(block), expected) << to_string(shape);
            ++found[static_cast<std::size_t>(expected)];
            const bool repeats = rank == 0 || shape[rank - 1] == 1;
            const std::int64_t first_key = block.first.key, end_key = first_key + block.keys;
            KeyRange tight{end_key, first_key, true};
            for (std::int64_t j = 0; j < block.keys; ++j) {
              if (!element(0, j)) continue;
              tight.begin = std::min(tight.begin, first_key + j);
              tight.end = first_key + j + 1;
            }
            if (tight.begin >= tight.end) tight = KeyRange{};
            for (std::int64_t j = tight.begin; j < tight.end; ++j) {
              tight.exact = tight.exact && element(0, j - first_key);
            }
            const bool reads = repeats || layout.view.strides()[rank - 1] == 1;
            ASSERT_EQ(mask.key_range(block.first, block.keys),
                      (reads ? tight : KeyRange{first_key, end_key, false}));
          }
        }
      }
    }
  }
  for (const int count : found) EXPECT_GT(count, 400);
}

TEST(MaskBlocks, DenseRowsHaveTheRangeOfTheirVisibleKeys) {
  // Rows are searched in steps of 64 elements; this length needs three.
  const std::int64_t length = 150;
  RandomState random(14);
  int exact = 0;
  for (int n = 0; n < 20'000; ++n) {
    Tensor open(DType::kBool, {length});
    const std::int64_t begin = random.randint(0, length), end = random.randint(begin, length + 1);
    const std::int64_t gap = n % 2 == 0 ? -1 : random.randint(begin, end + 1);
    const auto is_open = [&](std::int64_t j) { return begin <= j && j < end && j != gap; };
    for (std::int64_t j = 0; j < length; ++j) open.at<bool>({j}) = is_open(j);
    const std::int64_t first = random.randint(0, length);
    const std::int64_t count = random.randint(0, length - first + 1);
    KeyRange expected{length, 0, true};
    std::int64_t seen = 0;
    for (std::int64_t j = first; j < first + count; ++j) {
      if (!is_open(j)) continue;
      expected.begin = std::min(expected.begin, j);
      expected.end = j + 1;
      ++seen;
    }
    expected.exact = seen == expected.end - expected.begin;
    if (seen == 0) expected = KeyRange{};
    ASSERT_EQ(dense(open).key_range({0, 0, 0, first}, count), expected) << first << ", " << count;
    exact += expected.exact ? 1 : 0;
  }
  EXPECT_GT(exact, 12'000);
  EXPECT_LT(exact, 18'000);
}

TEST(MaskBlocks, DenseRowsDetectOneOddElementAnywhere) {
  const std::int64_t length = 41;
  for (const bool common : {false, true}) {
    for (std::int64_t odd = 0; odd < length; ++odd) {
      Tensor open(DType::kBool, {length});
      for (bool& one : open.span<bool>()) one = common;
      open.at<bool>({odd}) = !common;
      const Mask mask = dense(open);
      for (std::int64_t first = 0; first < length; ++first) {
        for (std::int64_t keys = 1; first + keys <= length; ++keys) {
          const bool inside = first <= odd && odd < first + keys;
          const bool only = inside && keys == 1;
          const Visibility expected = inside && !only  ? Visibility::kSome
                                      : common != only ? Visibility::kAll
                                                       : Visibility::kNone;
          ASSERT_EQ(mask.classify({{0, 0, 0, first}, 3, keys}), expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea
