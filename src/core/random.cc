// SPDX-License-Identifier: Apache-2.0
//
// NumPy's legacy random stream (fovea/random.h). To reproduce NumPy's numbers, every function here
// draws exactly as many words as its NumPy counterpart, in the same order.

#include "fovea/random.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/fail.h"

namespace fovea {
namespace {

// The parameters of MT19937, named as in the 1998 paper.
constexpr std::size_t kM = 397;
constexpr std::uint32_t kMatrixA = 0x9908b0dfU;
constexpr std::uint32_t kUpperMask = 0x80000000U;
constexpr std::uint32_t kLowerMask = 0x7fffffffU;

constexpr std::uint64_t kMaxWord = std::numeric_limits<std::uint32_t>::max();

// Returns high - low - 1, the largest offset from `low`. Unsigned, because the range may exceed 63
// bits.
std::uint64_t checked_range(std::int64_t low, std::int64_t high) {
  if (low >= high) {
    fail("randint: expected low < high, got low = {}, high = {}", low, high);
  }
  return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) - 1;
}

// Returns low + offset, computed without signed overflow.
std::int64_t add_offset(std::int64_t low, std::uint64_t offset) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

// Returns a uniform random offset in 0 .. range, both inclusive.
std::uint64_t draw_offset(RandomState& random, std::uint64_t range) {
  if (range == 0) return 0;
  // The mask covers all bits up to the highest set bit of `range`. No word is ever rejected for
  // range = 2^32 - 1.
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(range);
  while (true) {
    std::uint64_t bits = random.next_word();
    if (range > kMaxWord) bits = bits << 32 | random.next_word();
    bits &= mask;
    if (bits <= range) return bits;
  }
}

}  // namespace

RandomState::RandomState(std::uint64_t seed) { this->seed(seed); }

void RandomState::seed(std::uint64_t seed) {
  if (seed > kMaxWord) {
    fail("seed: expected 0 .. {}, got {}", kMaxWord, seed);
  }
  auto word = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 0; i < kStateWords; ++i) {
    state_[i] = word;
    word = 1812433253U * (word ^ (word >> 30)) + static_cast<std::uint32_t>(i) + 1U;
  }
  position_ = kStateWords;
  has_spare_normal_ = false;
}

void RandomState::refill() {
  const auto renew = [this](std::size_t i, std::size_t next, std::size_t middle) {
    const std::uint32_t y = (state_[i] & kUpperMask) | (state_[next] & kLowerMask);
    state_[i] = state_[middle] ^ (y >> 1) ^ (-(y & 1U) & kMatrixA);
  };
  // Indices without remainders, so that the compiler uses SIMD.
  for (std::size_t i = 0; i < kStateWords - kM; ++i) renew(i, i + 1, i + kM);
  for (std::size_t i = kStateWords - kM; i + 1 < kStateWords; ++i) {
    renew(i, i + 1, i + kM - kStateWords);
  }
  renew(kStateWords - 1, 0, kM - 1);
  position_ = 0;
}

std::uint32_t RandomState::next_word() {
  if (position_ == kStateWords) refill();
  std::uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

std::int64_t RandomState::randint(std::int64_t low, std::int64_t high) {
  return add_offset(low, draw_offset(*this, checked_range(low, high)));
}

Tensor RandomState::randint(std::int64_t low, std::int64_t high, const Shape& shape) {
  const std::uint64_t range = checked_range(low, high);
  Tensor result(DType::kInt64, shape);
  for (std::int64_t& x : result.span<std::int64_t>())
    x = add_offset(low, draw_offset(*this, range));
  return result;
}

double RandomState::rand() {
  // 53 bits in total: 27 bits of the first word, followed by 26 bits of the second. The two draws
  // are separate statements because their order matters.
  const double high = next_word() >> 5;
  const double low = next_word() >> 6;
  return (high * 0x1p26 + low) / 0x1p53;
}

Tensor RandomState::rand(const Shape& shape) {
  Tensor result(DType::kFloat64, shape);
  for (double& x : result.span<double>()) x = rand();
  return result;
}

double RandomState::randn() {
  if (has_spare_normal_) {
    has_spare_normal_ = false;
    return spare_normal_;
  }
  // Marsaglia's polar method: draw a point in the open unit disc, excluding its centre. Like NumPy,
  // return the second coordinate first.
  double x = 0.0;
  double y = 0.0;
  double square = 0.0;
  do {
    x = 2.0 * rand() - 1.0;
    y = 2.0 * rand() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double scale = std::sqrt(-2.0 * std::log(square) / square);
  spare_normal_ = scale * x;
  has_spare_normal_ = true;
  return scale * y;
}

Tensor RandomState::randn(const Shape& shape) {
  Tensor result(DType::kFloat64, shape);
  for (double& x : result.span<double>()) x = randn();
  return result;
}

}  // namespace fovea
