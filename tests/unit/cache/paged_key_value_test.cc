// SPDX-License-Identifier: Apache-2.0
//
// Tests of validate() for paged keys and values: all errors, and unusual but valid input.

#include "fovea/paged_key_value.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "support/bad_value.h"
#include "support/limits.h"
#include "support/message_of.h"

namespace fovea::test {
namespace {

/// 8 blocks of 4 tokens, 2 heads, dims 5 and 3; items of 9, 0 and 12 tokens.
struct Pages {
  Pages() {
    paged.key = key;
    paged.value = value;
    paged.block_table = block_table;
    paged.lengths = lengths;
  }
  void set_entry(std::int64_t item, std::int64_t i, std::int64_t block) {
    block_table.at<std::int64_t>({item, i}) = block;
  }
  void set_length(std::int64_t item, std::int64_t length) {
    lengths.at<std::int64_t>({item}) = length;
  }

  Tensor key{DType::kFloat32, {8, 2, 4, 5}};
  Tensor value{DType::kBFloat16, {8, 2, 4, 3}};
  Tensor block_table =
      Tensor::from<std::int64_t>({3, 3}, std::vector<std::int64_t>{7, 0, 2, -1, 99, -1, 2, 2, 5});
  Tensor lengths = Tensor::from<std::int64_t>({3}, std::vector<std::int64_t>{9, 0, 12});
  PagedKeyValue paged;
};

TensorView with_shape(const TensorView& view, const Shape& shape) {
  return {view.data(), view.dtype(), shape};
}
TensorView with_strides(const TensorView& view, const Strides& strides) {
  return {view.data(), view.dtype(), view.shape(), strides};
}
TensorView with_dtype(const TensorView& view, DType dtype) {
  return {view.data(), dtype, view.shape(), view.strides()};
}
TensorView without_data(const TensorView& view) {
  return {nullptr, view.dtype(), view.shape(), view.strides()};
}

const std::vector<Bad<Pages>> kBadPages{
    {"no key", [](Pages& p) { p.paged.key = {}; },
     "key: expected floats [blocks, kv_heads, block_size, head_dim], got nothing"},
    {"no value", [](Pages& p) { p.paged.value = {}; },
     "value: expected floats [blocks, kv_heads, block_size, value_dim], got nothing"},
    {"key of rank 3", [](Pages& p) { p.paged.key = p.paged.key[0]; },
     "key: expected floats [blocks, kv_heads, block_size, head_dim], got float32 [2, 4, 5]"},
    {"value of int64", [](Pages& p) { p.paged.value = with_dtype(p.value, DType::kInt64); },
     "value: expected floats [blocks, kv_heads, block_size, value_dim], got int64 [8, 2, 4, 3]"},
    {"strided key",
     [](Pages& p) {
       p.paged.key = with_strides(p.key, {10, 5, 0, 2});
     },
     "key: expected a contiguous last dimension (stride 1), got strides [10, 5, 0, 2]"},
    {"key without data", [](Pages& p) { p.paged.key = without_data(p.key); },
     "key: expected data for shape [8, 2, 4, 5], got a null pointer"},
    {"value beyond memory",
     [](Pages& p) {
       p.paged.value = with_strides(p.value, {kMaxInt, 12, 3, 1});
     },
     "value: expected strides that stay within memory, got [9223372036854775807, 12, 3, 1] for "
     "shape [8, 2, 4, 3]"},
    {"key beyond memory",
     [](Pages& p) {
       p.paged.key =
           TensorView(p.key.view().data(), DType::kFloat32, {0, 2, kMaxInt, 5}, {0, 0, 0, 1});
     },
     "key: expected extents up to 281474976710656, got [0, 2, 9223372036854775807, 5]"},
    {"blocks of value",
     [](Pages& p) {
       p.paged.value = with_shape(p.value, {7, 2, 4, 3});
     },
     "value: expected [8, 2, 4, value_dim], with the blocks, kv_heads and block_size of key, got "
     "[7, 2, 4, 3]"},
    {"heads of value",
     [](Pages& p) {
       p.paged.value = with_shape(p.value, {8, 1, 4, 3});
     },
     "value: expected [8, 2, 4, value_dim], with the blocks, kv_heads and block_size of key, got "
     "[8, 1, 4, 3]"},
    {"tokens of value's blocks",
     [](Pages& p) {
       p.paged.value = with_shape(p.value, {8, 2, 3, 3});
     },
     "value: expected [8, 2, 4, value_dim], with the blocks, kv_heads and block_size of key, got "
     "[8, 2, 3, 3]"},
    {"blocks of no tokens",
     [](Pages& p) {
       p.paged.key = with_shape(p.key, {8, 2, 0, 5});
       p.paged.value = with_shape(p.value, {8, 2, 0, 3});
     },
     "key: expected a block_size of 1 or more, got [8, 2, 0, 5]"},
    {"no table", [](Pages& p) { p.paged.block_table = {}; },
     "block_table: expected int64 [batch, most_blocks], got nothing"},
    {"table of rank 1", [](Pages& p) { p.paged.block_table = p.paged.block_table[0]; },
     "block_table: expected int64 [batch, most_blocks], got int64 [3]"},
    {"table of floats",
     [](Pages& p) { p.paged.block_table = with_dtype(p.block_table, DType::kFloat64); },
     "block_table: expected int64 [batch, most_blocks], got float64 [3, 3]"},
    {"table without data", [](Pages& p) { p.paged.block_table = without_data(p.block_table); },
     "block_table: expected data for shape [3, 3], got a null pointer"},
    {"no lengths", [](Pages& p) { p.paged.lengths = {}; },
     "lengths: expected int64 [3], one for each row of block_table, got nothing"},
    {"lengths of floats",
     [](Pages& p) { p.paged.lengths = with_dtype(p.lengths, DType::kFloat64); },
     "lengths: expected int64 [3], one for each row of block_table, got float64 [3]"},
    {"two lengths", [](Pages& p) { p.paged.lengths = with_shape(p.lengths, {2}); },
     "lengths: expected int64 [3], one for each row of block_table, got int64 [2]"},
    {"lengths without data", [](Pages& p) { p.paged.lengths = without_data(p.lengths); },
     "lengths: expected data for shape [3], got a null pointer"},
    {"negative length", [](Pages& p) { p.set_length(1, -1); },
     "lengths: expected 0 to 12 tokens (most_blocks * block_size), got -1 for item 1"},
    {"length beyond the table", [](Pages& p) { p.set_length(2, 13); },
     "lengths: expected 0 to 12 tokens (most_blocks * block_size), got 13 for item 2"},
    {"the longest length", [](Pages& p) { p.set_length(0, kMaxInt); },
     "lengths: expected 0 to 12 tokens (most_blocks * block_size), got 9223372036854775807 for "
     "item 0"},
    {"the most negative length", [](Pages& p) { p.set_length(0, -kMaxInt - 1); },
     "lengths: expected 0 to 12 tokens (most_blocks * block_size), got -9223372036854775808 for "
     "item 0"},
    {"negative block", [](Pages& p) { p.set_entry(0, 2, -1); },
     "block_table: expected the number of one of 8 blocks, got -1 at [0, 2]"},
    {"block behind the last", [](Pages& p) { p.set_entry(2, 0, 8); },
     "block_table: expected the number of one of 8 blocks, got 8 at [2, 0]"},
    {"block of an item that has become longer", [](Pages& p) { p.set_length(1, 5); },
     "block_table: expected the number of one of 8 blocks, got -1 at [1, 0]"},
    {"a pool of no blocks",
     [](Pages& p) {
       p.paged.key = with_shape(p.key, {0, 2, 4, 5});
       p.paged.value = with_shape(p.value, {0, 2, 4, 3});
     },
     "block_table: expected the number of one of 0 blocks, got 7 at [0, 0]"},
};

class PagedKeyValueErrors : public testing::TestWithParam<Bad<Pages>> {};

TEST_P(PagedKeyValueErrors, Message) {
  Pages pages;
  GetParam().spoil(pages);
  EXPECT_EQ(message_of([&] { validate(pages.paged); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(All, PagedKeyValueErrors, testing::ValuesIn(kBadPages),
                         name_of_bad<Pages>);

TEST(PagedKeyValue, IgnoresEntriesBeyondALength) {
  Pages pages;  // the item with no tokens has invalid entries
  EXPECT_EQ(message_of([&] { validate(pages.paged); }), "no error");
  pages.set_length(0, 8);
  pages.set_entry(0, 2, kMaxInt);
  EXPECT_EQ(message_of([&] { validate(pages.paged); }), "no error");
}

TEST(PagedKeyValue, AcceptsOtherLayouts) {
  Pages pages;
  // The layout of vLLM: [blocks, block_size, kv_heads, dim].
  pages.paged.key = with_shape(pages.key, {8, 4, 2, 5}).transposed(1, 2);
  pages.paged.value = with_shape(pages.value, {8, 4, 2, 3}).transposed(1, 2);
  pages.paged.block_table = TensorView(pages.block_table).transposed(0, 1);
  pages.set_entry(1, 0, 3);
  pages.set_entry(2, 1, 3);
  // Transposed: 7, 3, 2 for item 0 and 2, -1, 5 for item 2.
  pages.set_length(2, 4);
  EXPECT_EQ(message_of([&] { validate(pages.paged); }), "no error");
  pages.set_length(2, 8);
  EXPECT_EQ(message_of([&] { validate(pages.paged); }),
            "block_table: expected the number of one of 8 blocks, got -1 at [2, 1]");
}

TEST(PagedKeyValue, AcceptsEmptyTensors) {
  const auto of = [](const Shape& key, const Shape& value, const Shape& table) {
    const Tensor keys(DType::kFloat16, key);
    const Tensor values(DType::kFloat64, value);
    const Tensor blocks(DType::kInt64, table);
    const Tensor lengths(DType::kInt64, {table[0]});
    return message_of([&] { validate({keys, values, blocks, lengths}); });
  };
  EXPECT_EQ(of({0, 2, 4, 5}, {0, 2, 4, 3}, {0, 0}), "no error");
  EXPECT_EQ(of({0, 2, 4, 5}, {0, 2, 4, 3}, {3, 0}), "no error");
  EXPECT_EQ(of({8, 0, 4, 0}, {8, 0, 4, 0}, {3, 2}), "no error");
}

}  // namespace
}  // namespace fovea::test
