// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of functions of one float: arguments that cover a whole range, padding to whole
// vectors, and bitwise comparison.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace fovea::test {

/// Returns every 509th float32 from 0 to `last`, in order of bit patterns.
inline std::vector<float> numbers_to(float last) {
  constexpr std::uint32_t kStep = 509;
  std::vector<float> numbers;
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(last); bits += kStep) {
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

/// Applies `function`, which works in place on multiples of 16 numbers, to a vector of any length.
template <class Function>
std::vector<float> results_of(const Function& function, std::vector<float> numbers) {
  const std::size_t count = numbers.size();
  numbers.resize((count + 15) / 16 * 16);
  function(numbers);
  numbers.resize(count);
  return numbers;
}

/// Checks that the first elements of `found` are bitwise equal to `expected`; -0 differs from 0.
inline void expect_bits(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_GE(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << i << ": " << found[i];
  }
}

}  // namespace fovea::test
