// SPDX-License-Identifier: Apache-2.0
//
// Problems to measure (problem.h).

#include "bench/attention/problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/random.h"

#include "bench/attention/functor.h"
#include "cli/shell/number_list.h"
#include "core/fail.h"
#include "problem/mask_rules.h"
#include "text/nearest.h"

namespace fovea::cli {
namespace {

// A parsed option: "window:3,0" is the rule "window" with the numbers 3 and 0.
struct Rule {
  std::string_view name;
  std::vector<double> numbers;
};

/// Splits `text`. If a number cannot be parsed, returns an empty rule, which matches nothing.
Rule split_rule(std::string_view text) {
  const std::size_t colon = text.find(':');
  Rule rule = {.name = text.substr(0, colon), .numbers = {}};
  if (colon == std::string_view::npos) return rule;
  const auto numbers = parse_numbers<double>(text.substr(colon + 1));
  if (!numbers) return {.name = {}, .numbers = {}};
  rule.numbers = *numbers;
  return rule;
}

bool is(const Rule& rule, std::string_view name, std::size_t numbers) {
  return rule.name == name && rule.numbers.size() == numbers;
}

bool is_whole(double number) {
  constexpr double kFar = 1e15;  // doubles represent every integer up to this size
  return number >= -kFar && number <= kFar &&
         number == static_cast<double>(static_cast<std::int64_t>(number));
}

std::int64_t whole(double number) { return static_cast<std::int64_t>(number); }

/// Returns the number of visible (query, key) pairs per head of a batch item.
std::int64_t visible_pairs(const BenchProblem& problem) {
  std::int64_t pairs = 0;
  std::vector<std::uint8_t> visible;
  for (std::int64_t query = 0; query < problem.q_len; ++query) {
    const ScorePosition row = {.query = query, .offset = problem.kv_len - problem.q_len};
    pairs += count_visible(problem.mask, row, problem.kv_len, visible);
  }
  return pairs;
}

/// Returns the flop count of all visible pairs, for `numbers` multiply-adds per pair.
double flop_of_numbers(const BenchProblem& problem, std::int64_t numbers) {
  return 2.0 * static_cast<double>(numbers) * static_cast<double>(problem.batch * problem.q_heads) *
         static_cast<double>(visible_pairs(problem));
}

Tensor random_numbers(RandomState& random, const Shape& shape, DType dtype) {
  return convert(random.randn(shape), dtype);
}

/// Makes all elements of queries and keys non-negative and all keys of a head multiples of its last
/// one, growing with the position, so that scores rise from key to key.
void let_scores_rise(BenchTensors& tensors) {
  for_each_index(tensors.query.shape(), [&](const Index& at) {
    set_value(tensors.query, at, std::abs(tensors.query.value(at)));
  });
  const auto kv_len = static_cast<double>(tensors.key.extent(2));
  for_each_index(tensors.key.shape(), [&](const Index& at) {
    const double last =
        std::abs(tensors.key.value({at[0], at[1], tensors.key.extent(2) - 1, at[3]}));
    set_value(tensors.key, at, last * static_cast<double>(at[2] + 1) / kv_len);
  });
}

void make_lenses(const BenchProblem& problem, BenchTensors& tensors) {
  tensors.watched = LensBuffers(problem.shape(), problem.dtype,
                                {.statistics = problem.lenses.statistics,
                                 .top = problem.lenses.top,
                                 .map_rows = problem.lenses.map_rows,
                                 .map_columns = problem.lenses.map_columns,
                                 .pairs = false});
  if (problem.lenses.received) {
    tensors.received = Tensor(DType::kFloat32, {problem.batch, problem.q_heads, problem.kv_len});
  }
  if (problem.lenses.relevance) {
    tensors.relevance = Tensor(DType::kFloat32, {problem.batch, problem.q_heads, problem.kv_len});
    tensors.magnitude = Tensor(DType::kFloat32, tensors.relevance.shape());
  }
  tensors.lenses = tensors.watched.lenses();
}

/// Copies `tensor` [batch, kv_heads, kv_len, dim] into blocks according to the block table.
Tensor cut_into_blocks(const Tensor& tensor, const Tensor& table, std::int64_t block_size) {
  const std::int64_t heads = tensor.extent(1);
  Tensor blocks(tensor.dtype(), {table.size(), heads, block_size, tensor.extent(3)});
  const TensorView from = tensor.view();
  const MutableTensorView to = blocks.view();
  const auto row_bytes = static_cast<std::size_t>(tensor.extent(3)) * dtype_size(tensor.dtype());
  for_each_index({tensor.extent(0), heads, tensor.extent(2)}, [&](const Index& at) {
    const std::int64_t block = table.at<std::int64_t>({at[0], at[2] / block_size});
    std::memcpy(to.address({block, at[1], at[2] % block_size, 0}),
                from.address({at[0], at[1], at[2], 0}), row_bytes);
  });
  return blocks;
}

/// Copies keys and values into blocks in random order, as in a cache after many sequences have
/// been added and evicted.
void put_into_blocks(const BenchProblem& problem, RandomState& random, BenchTensors& tensors) {
  const std::int64_t each = (problem.kv_len + problem.block_size - 1) / problem.block_size;
  tensors.block_table = Tensor(DType::kInt64, {problem.batch, each});
  const auto blocks = tensors.block_table.span<std::int64_t>();
  std::iota(blocks.begin(), blocks.end(), 0);
  for (std::size_t i = blocks.size(); i > 1; --i) {
    const double place = random.rand({}).value({}) * static_cast<double>(i);
    std::swap(blocks[i - 1], blocks[std::min(static_cast<std::size_t>(place), i - 1)]);
  }
  tensors.lengths = Tensor(DType::kInt64, {problem.batch});
  std::ranges::fill(tensors.lengths.span<std::int64_t>(), problem.kv_len);
  tensors.key_blocks = cut_into_blocks(tensors.key, tensors.block_table, problem.block_size);
  tensors.value_blocks = cut_into_blocks(tensors.value, tensors.block_table, problem.block_size);
}

}  // namespace

Mask parse_mask(std::string_view text) {
  const Rule rule = split_rule(text);
  bool all_whole = true;
  for (const double number : rule.numbers) all_whole = all_whole && is_whole(number);
  if (is(rule, "causal", 0)) return causal();
  if (is(rule, "window", 2) && all_whole)
    return window(whole(rule.numbers[0]), whole(rule.numbers[1]));
  if (is(rule, "prefix", 1) && all_whole) return prefix(whole(rule.numbers[0]));
  fail("--mask: expected causal, window:LEFT,RIGHT or prefix:N, got \"{}\"{}", text,
       did_you_mean(text, {"causal", "window:", "prefix:"}));
}

void parse_score(std::string_view text, BenchScore& score) {
  const Rule rule = split_rule(text);
  if (is(rule, "softcap", 1) && rule.numbers[0] > 0.0) {
    score.softcap = rule.numbers[0];
  } else if (is(rule, "alibi", 0)) {
    score.alibi = true;
  } else if (is(rule, "bias", 0)) {
    score.bias = true;
  } else if (is(rule, "relative", 0)) {
    score.relative = true;
  } else if (is(rule, "functor", 0)) {
    score.functor = true;
  } else {
    fail(
        "--score: expected alibi, bias, functor, relative or softcap:CAP, CAP above 0, "
        "got \"{}\"{}",
        text, did_you_mean(text, {"alibi", "bias", "functor", "relative", "softcap:"}));
  }
}

void parse_lens(std::string_view text, BenchLenses& lenses) {
  const Rule rule = split_rule(text);
  const auto count = [&](std::size_t number) {
    const double value = rule.numbers[number];
    return is_whole(value) && value >= 1 ? whole(value) : 0;
  };
  if (is(rule, "statistics", 0)) {
    lenses.statistics = true;
  } else if (is(rule, "top", 1) && count(0) > 0) {
    lenses.top = count(0);
  } else if (is(rule, "map", 2) && count(0) > 0 && count(1) > 0) {
    lenses.map_rows = count(0);
    lenses.map_columns = count(1);
  } else if (is(rule, "received", 0)) {
    lenses.received = true;
  } else if (is(rule, "relevance", 0)) {
    lenses.relevance = true;
  } else {
    fail(
        "--lens: expected statistics, top:K, map:ROWS,COLUMNS, received or relevance, got \"{}\"{}",
        text, did_you_mean(text, {"statistics", "top:", "map:", "received", "relevance"}));
  }
  BenchLenses others = lenses;
  others.relevance = false;
  if (lenses.relevance && others.any()) {
    throw InvalidArgument(
        "--lens: expected relevance, which is the backward pass's, alone, got others beside it");
  }
}

std::string describe(const BenchProblem& problem) {
  std::string text = fmt::format("N {}", problem.q_len);
  if (problem.kv_len != problem.q_len) text += fmt::format(" x {}", problem.kv_len);
  text += fmt::format(", D {}", problem.head_dim);
  if (problem.value_dim != problem.head_dim) text += fmt::format("/{}", problem.value_dim);
  if (problem.kv_heads != problem.q_heads) {
    text += fmt::format(", {}/{} heads", problem.q_heads, problem.kv_heads);
  } else if (problem.q_heads != 1) {
    text += fmt::format(", {} heads", problem.q_heads);
  }
  if (problem.batch != 1) text += fmt::format(", batch {}", problem.batch);
  if (!problem.mask.allows_all()) text += ", " + problem.mask.to_string();
  if (problem.score.softcap > 0.0) text += fmt::format(", softcap {}", problem.score.softcap);
  if (problem.score.alibi) text += ", ALiBi";
  if (problem.score.bias) text += ", bias";
  if (problem.score.relative) text += ", relative table";
  if (problem.score.functor) text += ", functor";
  if (problem.dtype != DType::kFloat32) text += fmt::format(", {}", dtype_name(problem.dtype));
  if (problem.lenses.map_rows > 0) {
    text += fmt::format(", map {} x {}", problem.lenses.map_rows, problem.lenses.map_columns);
  }
  if (problem.lenses.statistics) text += ", statistics";
  if (problem.lenses.top > 0) text += fmt::format(", top {}", problem.lenses.top);
  if (problem.lenses.received) text += ", received";
  if (problem.lenses.relevance) text += ", gradients, relevance";
  if (problem.rising) text += ", rising scores";
  if (problem.block_size > 0) text += fmt::format(", blocks of {}", problem.block_size);
  return text;
}

double useful_flop(const BenchProblem& problem) {
  return flop_of_numbers(problem, problem.head_dim + problem.value_dim);
}

double useful_backward_flop(const BenchProblem& problem) {
  return flop_of_numbers(problem, 3 * problem.head_dim + 2 * problem.value_dim);
}

double key_value_bytes(const BenchProblem& problem) {
  return static_cast<double>(dtype_size(problem.dtype)) *
         static_cast<double>(problem.head_dim + problem.value_dim) *
         static_cast<double>(problem.batch * problem.kv_heads * problem.kv_len);
}

BenchTensors make_tensors(const BenchProblem& problem, bool backward) {
  constexpr std::uint64_t kSeed = 42;
  constexpr std::int64_t kBuckets = 32;  // as in T5
  constexpr double kCap = 30.0;
  const auto& [batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim, mask, score, dtype,
               block_size, lenses, rising] = problem;
  RandomState random(kSeed);
  BenchTensors tensors;
  tensors.query = random_numbers(random, {batch, q_heads, q_len, head_dim}, dtype);
  tensors.key = random_numbers(random, {batch, kv_heads, kv_len, head_dim}, dtype);
  tensors.value = random_numbers(random, {batch, kv_heads, kv_len, value_dim}, dtype);
  tensors.options.mask = mask;
  tensors.options.score.softcap = score.softcap;
  if (score.alibi) tensors.options.score.alibi = Alibi{};
  if (score.bias) {
    tensors.options.score.bias = random_numbers(random, {q_len, kv_len}, DType::kFloat32);
  }
  if (score.relative) {
    tensors.options.score.relative =
        RelativeTable{random_numbers(random, {kBuckets, q_heads}, DType::kFloat32)};
  }
  if (score.functor) tensors.options.score.custom = make_cap({.cap = kCap});
  validate(tensors.options, problem.shape());
  tensors.context = Tensor(dtype, {batch, q_heads, q_len, value_dim});
  tensors.lse = Tensor(DType::kFloat32, {batch, q_heads, q_len});
  if (rising) let_scores_rise(tensors);
  if (lenses.any()) make_lenses(problem, tensors);
  if (block_size > 0) put_into_blocks(problem, random, tensors);
  if (backward) {
    tensors.grad_context = random_numbers(random, tensors.context.shape(), dtype);
    tensors.grad_query = Tensor(dtype, tensors.query.shape());
    tensors.grad_key = Tensor(dtype, tensors.key.shape());
    tensors.grad_value = Tensor(dtype, tensors.value.shape());
  }
  return tensors;
}

}  // namespace fovea::cli
