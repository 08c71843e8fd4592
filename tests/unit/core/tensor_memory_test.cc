// SPDX-License-Identifier: Apache-2.0

#include "core/tensor_memory.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "fovea/tensor.h"

namespace fovea {
namespace {

std::int64_t bytes_of(const Memory& memory) { return memory.end - memory.begin; }

TEST(TensorMemory, OfRowMajorElementsIsOneRun) {
  const Tensor tensor(DType::kFloat32, {3, 5});
  const Memory memory = memory_of(tensor.view(), "x");
  EXPECT_TRUE(memory.row_major);
  EXPECT_EQ(bytes_of(memory), 60);
  EXPECT_EQ(memory.run, 60);
  EXPECT_EQ(memory.period, 0);
}

TEST(TensorMemory, OfColumnsHasARunPerRow) {
  const Tensor tensor(DType::kFloat32, {3, 5});
  const TensorView columns(&tensor.at<float>({0, 1}), DType::kFloat32, {3, 2}, Strides{5, 1});
  const Memory memory = memory_of(columns, "x");
  EXPECT_FALSE(memory.row_major);
  EXPECT_EQ(bytes_of(memory), 2 * 20 + 2 * 4);
  EXPECT_EQ(memory.run, 8);
  EXPECT_EQ(memory.period, 20);
}

TEST(TensorMemory, OfARepeatedElementIsThatElement) {
  // 2^62 elements: their size does not fit into 64 bits.
  const float value = 1;
  const std::int64_t extent = std::int64_t{1} << 31;
  const TensorView repeated(&value, DType::kFloat32, {extent, extent}, Strides{0, 0});
  const Memory memory = memory_of(repeated, "x");
  EXPECT_FALSE(memory.row_major);
  EXPECT_EQ(bytes_of(memory), 4);
}

}  // namespace
}  // namespace fovea
