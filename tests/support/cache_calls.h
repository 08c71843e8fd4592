// SPDX-License-Identifier: Apache-2.0
//
// Helpers shared by the tests of caches: random tokens, and the message of CacheFull.

#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

namespace fovea::test {

/// Returns the message of the CacheFull thrown by `call`, or "no error".
std::string full_message_of(const auto& call) {
  try {
    call();
  } catch (const CacheFull& full) {
    return full.what();
  }
  return "no error";
}

/// Returns a view of zeros, at most 8,000 bytes. All such views share their memory.
inline TensorView zeros(DType dtype, const Shape& shape) {
  static std::vector<double> memory(1000);
  return {memory.data(), dtype, shape};
}

/// Returns standard normal tokens.
inline Tensor random_tokens(RandomState& random, DType dtype, const Shape& shape) {
  return convert(random.randn(shape), dtype);
}

/// Returns a random integer in [0, `end`).
inline std::int64_t random_below(RandomState& random, std::int64_t end) {
  return static_cast<std::int64_t>(random.rand() * static_cast<double>(end));
}

/// Returns a random dtype among those that tokens may have.
inline DType random_float(RandomState& random) {
  constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
  return kFloats[random_below(random, 4)];
}

inline void expect_equal(const TensorView& got, const TensorView& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  ASSERT_EQ(got.dtype(), expected.dtype());
  for_each_index(got.shape(), [&](const Index& at) {
    ASSERT_EQ(got.value(at), expected.value(at)) << to_string(at);
  });
}

}  // namespace fovea::test
