// SPDX-License-Identifier: Apache-2.0
//
// Random problems with random options and random shardings. All processes draw the same ones.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fovea/mpi.h"
#include "fovea/random.h"

#include "support/random_problem.h"

namespace fovea::test {

struct ShardedProblem {
  InputKind kind = InputKind::kNormal;
  RandomProblem whole;
  AttentionOptions options;
  mpi::Sharding queries, keys;
  DType context = DType::kFloat32;
};

inline std::string description(const ShardedProblem& p) {
  return p.queries.to_string() + " x " + p.keys.to_string() + ", " +
         std::string(dtype_name(p.whole.query.dtype())) + " to " +
         std::string(dtype_name(p.context)) + ", " + to_string(p.whole.query.shape()) + " x " +
         to_string(p.whole.value.shape()) + ", " + p.options.mask.to_string();
}

class ProblemMaker {
 public:
  ProblemMaker(std::uint64_t seed, int ranks) : random_(seed), ranks_(ranks) {}

  ShardedProblem next() {
    ShardedProblem p;
    ProblemShape shape;
    shape.batch = number(1, 2);
    shape.kv_heads = number(1, 2);
    shape.q_heads = shape.kv_heads * number(1, 3);
    shape.q_len = length();
    shape.kv_len = one_in(2) ? shape.q_len : length();
    const std::int64_t dim = number(1, 12), value_dim = one_in(2) ? dim : number(0, 12);
    p.kind = one_in(3) ? InputKind::kLargeLogits
                       : (one_in(3) ? InputKind::kHeavyTailed : InputKind::kNormal);
    p.whole = stored_problem(shape, dim, value_dim, p.kind, seed());
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kFloat64};
    const DType type = kTypes[one_in(8) ? 3 : number(0, 2)];
    for (Tensor* tensor : {&p.whole.query, &p.whole.key, &p.whole.value}) {
      *tensor = convert(*tensor, type);
    }
    p.context = type == DType::kFloat64 || !one_in(4) ? type : kTypes[number(0, 2)];
    p.queries = sharding(shape.q_len);
    p.keys = shape.kv_len == shape.q_len && !one_in(4) ? p.queries : sharding(shape.kv_len);
    p.options.mask = mask(shape, 0);
    set_score(p.options.score, shape);
    if (one_in(5)) {
      p.options.dropout = {
          .probability = 0.3, .seed = seed(), .call = 7, .first_key = number(0, 5)};
    }
    if (one_in(3)) p.options.alignment = Alignment::offset(number(-20, 40));
    if (one_in(4)) {
      std::vector<std::int64_t> offsets;
      for (std::int64_t b = 0; b < shape.batch; ++b) offsets.push_back(number(-9, 9));
      p.options.alignment = Alignment::offsets(std::move(offsets));
    }
    p.options.execution.threads = 1;
    return p;
  }

 private:
  std::int64_t number(std::int64_t least, std::int64_t most) {
    return random_.randint(least, most + 1);
  }
  bool one_in(std::int64_t count) { return number(1, count) == 1; }
  std::uint64_t seed() { return static_cast<std::uint64_t>(number(1, 1'000'000)); }
  std::int64_t length() { return one_in(5) ? number(0, 9) : number(1, 70); }

  mpi::Sharding sharding(std::int64_t length) {
    switch (number(0, 2)) {
      case 0:
        return mpi::Sharding::contiguous(length, ranks_);
      case 1:
        return mpi::Sharding::zigzag(length, ranks_);
      default:
        break;
    }
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks_));
    for (std::int64_t left = length; left > 0;) {
      const std::int64_t some = number(1, left);
      lengths[static_cast<std::size_t>(number(0, ranks_ - 1))] += some;
      left -= some;
    }
    return mpi::Sharding::lengths(lengths);
  }

  Mask mask(const ProblemShape& shape, int depth) {
    if (depth < 2 && one_in(3)) {
      const Mask a = mask(shape, depth + 1), b = mask(shape, depth + 1);
      return one_in(2) ? a & b : a | b;
    }
    switch (number(0, 7)) {
      case 0:
        return {};
      case 1:
        return window(number(-1, 20), number(-1, 5));
      case 2:
        return prefix(number(0, shape.kv_len));
      case 3:
        return key_lengths({number(0, shape.kv_len)});
      case 4: {
        std::vector<std::int64_t> lengths;
        for (std::int64_t b = 0; b < shape.batch; ++b) lengths.push_back(number(0, shape.kv_len));
        return key_lengths(std::move(lengths));
      }
      case 5:
        return documents(ids(shape, shape.q_len), ids(shape, shape.kv_len));
      case 6:
        return dense(convert(random_.randint(0, 2, broadcast(shape)), DType::kBool));
      default:
        return causal();
    }
  }

  Tensor ids(const ProblemShape& shape, std::int64_t length) {
    Tensor ids =
        one_in(2) ? random_.randint(0, 4, {length}) : random_.randint(0, 4, {shape.batch, length});
    if (one_in(2)) {  // sorted, as documents usually are
      const std::int64_t rows = length == 0 ? 0 : ids.size() / length;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto begin = ids.span<std::int64_t>().begin() + row * length;
        std::sort(begin, begin + length);
      }
    }
    return ids;
  }

  /// Returns a shape that broadcasts to the scores.
  Shape broadcast(const ProblemShape& shape) {
    Shape result;
    for (const std::int64_t extent : {shape.batch, shape.q_heads, shape.q_len, shape.kv_len}) {
      result.push_back(one_in(3) ? 1 : extent);
    }
    return result;
  }

  void set_score(ScoreOptions& score, const ProblemShape& shape) {
    if (one_in(4)) score.scale = 0.3;
    if (one_in(4)) score.softcap = 4.0;
    if (one_in(4)) score.bias = convert(random_.randn(broadcast(shape)), DType::kFloat32);
    if (one_in(4)) score.alibi = Alibi{};
    if (one_in(5)) {
      score.relative = RelativeTable{random_.randn({8, shape.q_heads}), one_in(2), 20};
    }
    if (!one_in(4)) return;
    for (std::int64_t h = 0; h < shape.q_heads; ++h) {
      score.sinks.push_back(one_in(6) ? -HUGE_VAL : random_.randn());
    }
  }

  RandomState random_;
  const int ranks_;
};

}  // namespace fovea::test
