// SPDX-License-Identifier: Apache-2.0
//
// Small random problems for tests, drawn from the seeded generator.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/storage.h"

namespace fovea::test {

/// The numbers of RandomState(seed).randn(). Those of the thread's last seed are kept: most
/// problems have the same seed, and drawing the numbers took a tenth of the time of the accuracy
/// tests. A thread must not use two objects at the same time.
class NormalNumbers {
 public:
  explicit NormalNumbers(std::uint64_t seed) {
    if (kept().seed != seed) kept() = {seed, RandomState(seed), {}};
  }

  Tensor next(const Shape& shape) {
    Tensor tensor(DType::kFloat64, shape);
    std::vector<double>& numbers = kept().numbers;
    const std::size_t begin = std::exchange(position_, position_ + tensor.span<double>().size());
    while (numbers.size() < position_) numbers.push_back(kept().random.randn());
    std::copy(numbers.data() + begin, numbers.data() + position_, tensor.span<double>().data());
    return tensor;
  }

 private:
  struct Kept {
    std::uint64_t seed = 1;
    RandomState random{1};
    std::vector<double> numbers;
  };
  static Kept& kept() {
    thread_local Kept kept;
    return kept;
  }
  std::size_t position_ = 0;
};

/// Query, key and value with standard normal elements.
struct RandomProblem {
  Tensor query, key, value;

  RandomProblem() = default;
  RandomProblem(const ProblemShape& shape, std::int64_t head_dim, std::int64_t value_dim,
                std::uint64_t seed = 1) {
    NormalNumbers numbers(seed);
    query = numbers.next({shape.batch, shape.q_heads, shape.q_len, head_dim});
    key = numbers.next({shape.batch, shape.kv_heads, shape.kv_len, head_dim});
    value = numbers.next({shape.batch, shape.kv_heads, shape.kv_len, value_dim});
  }

  reference::Inputs inputs() const { return {query, key, value}; }
};

/// The distribution of the inputs.
enum class InputKind : std::uint8_t {
  kNormal,
  /// Queries times 30, so that one weight of a row is close to 1.
  kLargeLogits,
  /// Student's t with two degrees of freedom, which has infinite variance.
  kHeavyTailed,
};
inline constexpr InputKind kInputKinds[] = {InputKind::kNormal, InputKind::kLargeLogits,
                                            InputKind::kHeavyTailed};

inline const char* name_of(InputKind kind) {
  constexpr const char* kNames[] = {"normal", "large logits", "heavy tails"};
  return kNames[static_cast<int>(kind)];
}

/// Returns a problem of the given kind, rounded to the tested storage type. The engine, the oracle
/// and the naive computation all read these values.
inline RandomProblem stored_problem(const ProblemShape& shape, std::int64_t head_dim,
                                    std::int64_t value_dim, InputKind kind = InputKind::kNormal,
                                    std::uint64_t seed = 1) {
  RandomProblem p(shape, head_dim, value_dim, seed);
  if (kind == InputKind::kLargeLogits) {
    for (double& x : p.query.span<double>()) x *= 30.0;
  }
  if (kind == InputKind::kHeavyTailed) {
    RandomState random(seed + 1'000'000);
    for (Tensor* tensor : {&p.query, &p.key, &p.value}) {
      // A normal number divided by the root of an exponential one has this distribution.
      for (double& x : tensor->span<double>()) x /= std::sqrt(-std::log(1.0 - random.rand()));
    }
  }
  for (Tensor* tensor : {&p.query, &p.key, &p.value}) *tensor = stored(*tensor);
  return p;
}

/// Returns the largest difference of two tensors; equal infinities and NaNs differ by 0. Returns
/// NaN, which fails every comparison, if the shapes differ or exactly one of two elements is
/// finite.
inline double max_difference(const TensorView& a, const TensorView& b) {
  if (a.shape() != b.shape()) return std::nan("");
  double worst = 0.0;
  for_each_index(a.shape(), [&](const Index& at) {
    const double x = a.value(at);
    const double y = b.value(at);
    if (x == y || (std::isnan(x) && std::isnan(y))) return;
    const double difference = std::abs(x - y);
    if (!std::isfinite(difference)) worst = std::nan("");
    if (!(difference <= worst) && !std::isnan(worst)) worst = difference;
  });
  return worst;
}

}  // namespace fovea::test
