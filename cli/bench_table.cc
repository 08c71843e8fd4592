// SPDX-License-Identifier: Apache-2.0
//
// The standard table (bench_table.h).

#include "bench_table.h"

namespace fovea::cli {
namespace {

BenchProblem square(std::int64_t heads, std::int64_t length, std::int64_t dim) {
  return {.q_heads = heads,
          .kv_heads = heads,
          .q_len = length,
          .kv_len = length,
          .head_dim = dim,
          .value_dim = dim};
}

BenchProblem masked(BenchProblem problem, const Mask& mask) {
  problem.mask = mask;
  return problem;
}

BenchProblem scored(BenchProblem problem, const BenchScore& score) {
  problem.score = score;
  return problem;
}

BenchProblem with_value_dim(BenchProblem problem, std::int64_t value_dim) {
  problem.value_dim = value_dim;
  return problem;
}

/// AVX3, with dot products of bfloat16 or without: they change nothing for float32.
bool is_avx3(const std::string& target) { return target == "AVX3" || target == "AVX3_BF16"; }

bool known(CpuKind cpu, const std::string& target) {
  return cpu != CpuKind::kOther && (is_avx3(target) || target == "AVX2");
}

}  // namespace

std::vector<BenchRow> standard_table(int threads, int cpus) {
  constexpr BenchFloors kShort = {.avx3 = 0.84};
  constexpr BenchFloors kCausal = {.avx3 = 0.85};
  constexpr BenchFloors kShortCausal = {.avx3 = 0.75};
  constexpr BenchFloors kWindow = {.avx3 = 0.75};
  constexpr BenchFloors kOddDim = {.avx3 = 0.65};
  constexpr BenchFloors kPrimeDim = {.avx3 = 0.55};
  constexpr BenchFloors kMixedDims = {.avx3 = 0.80};
  constexpr BenchFloors kScore = {.avx3 = 0.70};
  std::vector<BenchRow> rows;
  const auto add = [&](const BenchProblem& problem, const BenchFloors& floors) {
    rows.push_back({.problem = problem, .threads = threads, .floors = floors});
  };
  add(square(2, 4096, 64), {.avx3 = 0.88, .avx2 = 0.80});
  add(square(2, 4096, 128), {.avx3 = 0.91, .avx2 = 0.80});
  for (const std::int64_t length : {512, 1024}) {
    for (const std::int64_t dim : {64, 128}) add(square(8, length, dim), kShort);
  }
  for (const std::int64_t dim : {64, 128}) add(masked(square(2, 4096, dim), causal()), kCausal);
  for (const std::int64_t dim : {64, 128}) add(masked(square(8, 512, dim), causal()), kShortCausal);
  add(masked(square(1, 16384, 64), window(1023, 0)), kWindow);
  for (const std::int64_t dim : {40, 59, 80, 96, 256}) {
    add(square(2, 2048, dim), dim == 59 ? kPrimeDim : kOddDim);
  }
  add(with_value_dim(square(2, 2048, 128), 64), kMixedDims);
  add(with_value_dim(square(2, 2048, 64), 128), kMixedDims);
  for (const BenchScore& score :
       {BenchScore{.softcap = 30.0}, BenchScore{.alibi = true}, BenchScore{.bias = true}}) {
    add(scored(square(2, 4096, 64), score), kScore);
  }
  if (cpus < 2) return rows;
  for (const BenchProblem& problem : {square(1, 4096, 64), square(8, 512, 64)}) {
    rows.push_back({.problem = problem,
                    .threads = 2,
                    .against_one_thread = true,
                    .floors = {.two_threads = 1.92}});
  }
  return rows;
}

std::optional<double> share_floor(const BenchRow& row, CpuKind cpu, const std::string& target) {
  // Zen 5's multiply-adds are twice as fast, its loads and the rest of the work are not.
  constexpr double kZen5Allowance = 0.09;
  const double floor = is_avx3(target) ? row.floors.avx3 : row.floors.avx2;
  if (!known(cpu, target) || row.threads != 1 || floor == 0.0) return std::nullopt;
  return cpu == CpuKind::kZen5 ? floor - kZen5Allowance : floor;
}

std::optional<double> speedup_floor(const BenchRow& row, CpuKind cpu, const std::string& target) {
  const bool judged = known(cpu, target) && row.threads == 2 && row.floors.two_threads > 0.0;
  return judged ? std::optional(row.floors.two_threads) : std::nullopt;
}

std::optional<double> tiny_limit(CpuKind cpu, const std::string& target) {
  return known(cpu, target) ? std::optional(1e-6) : std::nullopt;
}

}  // namespace fovea::cli
