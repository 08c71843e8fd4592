// SPDX-License-Identifier: Apache-2.0
//
// The standard tables (table.h).

#include "bench/attention/table.h"

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

BenchProblem stored(BenchProblem problem, DType dtype) {
  problem.dtype = dtype;
  return problem;
}

BenchProblem in_blocks(BenchProblem problem, std::int64_t block_size) {
  problem.block_size = block_size;
  return problem;
}

/// Returns a decoding problem: one query per head against a cache of `keys` keys.
BenchProblem cached(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t keys,
                    std::int64_t dim, DType dtype) {
  return {.q_heads = q_heads,
          .kv_heads = kv_heads,
          .q_len = 1,
          .kv_len = keys,
          .head_dim = dim,
          .value_dim = dim,
          .dtype = dtype};
}

/// Returns whether the target is AVX3, with or without bfloat16 dot products, which do not affect
/// float32.
bool is_avx3(const std::string& target) { return target == "AVX3" || target == "AVX3_BF16"; }

bool known(CpuKind cpu, const std::string& target) {
  return cpu != CpuKind::kOther && (is_avx3(target) || target == "AVX2");
}

class Table {
 public:
  Table(BenchCall call, int threads) : call_(call), threads_(threads) {}

  void add(const BenchProblem& problem, BenchFloors floors,
           BenchAgainst against = BenchAgainst::kCeiling) {
    add(problem, floors, against, call_);
  }
  void add(const BenchProblem& problem, BenchFloors floors, BenchAgainst against, BenchCall call) {
    if (threads_ != 1) floors = {};
    rows_.push_back({problem, call, threads_, against, floors});
  }
  void add_for_two_threads(const BenchProblem& problem, const BenchFloors& floors,
                           BenchAgainst against) {
    if (threads_ != 1) return;
    rows_.push_back({problem, call_, 2, against, floors});
  }
  const std::vector<BenchRow>& rows() const { return rows_; }

 private:
  BenchCall call_;
  int threads_;
  std::vector<BenchRow> rows_;
};

BenchFloors share(double avx3, double avx2 = 0.0) {
  return {.avx3 = avx3, .avx2 = avx2, .zen5_allowance = 0.09};
}

BenchFloors bf16_share(double avx3, double zen5_allowance = 0.11) {
  return {.avx3 = avx3, .zen5_allowance = zen5_allowance};
}

BenchFloors multiple(double least) { return {.avx3 = least, .avx2 = least}; }

void add_forward_rows(Table& table, int cpus, bool bf16_dots) {
  table.add(square(2, 4096, 64), share(0.88, 0.80));
  table.add(square(2, 4096, 128), share(0.91, 0.80));
  for (const std::int64_t length : {512, 1024}) {
    for (const std::int64_t dim : {64, 128}) table.add(square(8, length, dim), share(0.84));
  }
  for (const std::int64_t dim : {64, 128}) {
    table.add(masked(square(2, 4096, dim), causal()), share(0.85));
  }
  for (const std::int64_t dim : {64, 128}) {
    table.add(masked(square(8, 512, dim), causal()), share(0.75));
  }
  table.add(masked(square(1, 16384, 64), window(1023, 0)), share(0.75));
  for (const std::int64_t dim : {40, 59, 80, 96, 256}) {
    table.add(square(2, 2048, dim), share(dim == 59 ? 0.55 : 0.65));
  }
  table.add(with_value_dim(square(2, 2048, 128), 64), share(0.80));
  table.add(with_value_dim(square(2, 2048, 64), 128), share(0.80));
  for (const BenchScore& score :
       {BenchScore{.softcap = 30.0}, BenchScore{.alibi = true}, BenchScore{.bias = true}}) {
    table.add(scored(square(2, 4096, 64), score), share(0.70));
  }
  table.add(scored(square(2, 4096, 64), {.functor = true}), share(0.65, 0.65));
  if (bf16_dots) {
    table.add(stored(square(2, 4096, 64), DType::kBFloat16), bf16_share(0.80));
    table.add(stored(square(2, 4096, 128), DType::kBFloat16), bf16_share(0.84));
    table.add(stored(masked(square(2, 4096, 128), causal()), DType::kBFloat16), bf16_share(0.76));
    for (const std::int64_t dim : {64, 128}) {
      table.add(stored(square(8, 512, dim), DType::kBFloat16), bf16_share(0.70));
    }
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    if (dtype == DType::kBFloat16 && bf16_dots) continue;
    for (const std::int64_t dim : {64, 128}) {
      table.add(stored(square(2, 4096, dim), dtype), multiple(0.95), BenchAgainst::kFloat32);
    }
  }
  if (cpus < 2) return;
  for (const BenchProblem& problem : {square(1, 4096, 64), square(8, 512, 64)}) {
    table.add_for_two_threads(problem, multiple(1.92), BenchAgainst::kOneThread);
  }
}

void add_backward_rows(Table& table, int cpus, bool bf16_dots) {
  for (const std::int64_t dim : {64, 128}) table.add(square(2, 2048, dim), share(0.88));
  for (const std::int64_t dim : {64, 128}) {
    table.add(masked(square(2, 2048, dim), causal()), share(0.80));
  }
  table.add(square(8, 512, 64), share(0.84));
  table.add(scored(square(2, 2048, 64), {.softcap = 30.0}), {});
  table.add(scored(square(2, 2048, 64), {.bias = true}), {});
  table.add(scored(square(2, 2048, 64), {.functor = true}), {});
  if (bf16_dots) {
    for (const std::int64_t dim : {64, 128}) {
      table.add(stored(square(2, 2048, dim), DType::kBFloat16), bf16_share(0.80, 0.15));
    }
  }
  if (cpus < 2) return;
  for (const BenchProblem& problem : {square(1, 2048, 64), square(8, 512, 64)}) {
    table.add_for_two_threads(problem, multiple(1.9), BenchAgainst::kOneThread);
  }
}

void add_decode_rows(Table& table, int cpus, bool bf16_dots) {
  constexpr std::int64_t kKeys = 16384;
  constexpr std::int64_t kDim = 128;
  // There are no floors for AVX2. A memory-bound AVX2 run would meet these as well.
  const BenchFloors whole = {.avx3 = 0.90};
  const BenchProblem f32 = cached(8, 8, kKeys, kDim, DType::kFloat32);
  const BenchProblem bf16 = cached(8, 8, kKeys, kDim, DType::kBFloat16);
  const BenchProblem f32_group = cached(32, 8, kKeys, kDim, DType::kFloat32);
  table.add(f32, whole);
  table.add(bf16, whole);
  table.add(f32_group, whole);
  table.add(cached(32, 8, kKeys, kDim, DType::kBFloat16), {.avx3 = bf16_dots ? 0.80 : 0.0});
  for (const BenchProblem& problem : {f32, bf16}) {
    table.add(in_blocks(problem, 16), {.avx3 = 0.75});
    table.add(in_blocks(problem, 128), {.avx3 = 0.85});
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    table.add(cached(8, 8, 256, 64, dtype), {.seconds = 10e-6});
  }
  if (cpus < 2) return;
  for (const BenchProblem& problem : {f32, bf16, f32_group}) {
    table.add_for_two_threads(problem, whole, BenchAgainst::kCeiling);
  }
}

BenchProblem watched(BenchProblem problem, const BenchLenses& lenses) {
  problem.lenses = lenses;
  return problem;
}

void add_lens_rows(Table& table, bool bf16_dots) {
  const auto at_most = [](double cost) { return BenchFloors{.cost = cost}; };
  const BenchLenses map{.map_rows = 256, .map_columns = 256};
  const BenchLenses all{.statistics = true, .top = 8, .map_rows = 256, .map_columns = 256};
  for (const std::int64_t dim : {64, 128}) {
    const BenchProblem plain = square(2, 4096, dim);
    table.add(watched(plain, map), at_most(1.03), BenchAgainst::kPlain);
    table.add(watched(plain, {.statistics = true}), at_most(1.06), BenchAgainst::kPlain);
    table.add(watched(plain, {.top = 8}), at_most(1.09), BenchAgainst::kPlain);
    table.add(watched(plain, {.received = true}), at_most(1.65), BenchAgainst::kPlain);
    BenchProblem rising = watched(plain, {.top = 8});
    rising.rising = true;
    table.add(rising, {}, BenchAgainst::kPlain);
    table.add(watched(plain, all), at_most(1.14), BenchAgainst::kPlain);
    table.add(watched(square(2, 2048, dim), {.relevance = true}), {}, BenchAgainst::kPlain,
              BenchCall::kBackward);
    if (!bf16_dots) continue;
    const BenchLenses two{.statistics = true, .map_rows = 256, .map_columns = 256};
    table.add(stored(watched(plain, two), DType::kBFloat16), at_most(1.15), BenchAgainst::kPlain);
  }
}

}  // namespace

std::vector<BenchRow> standard_table(BenchCall call, int threads, int cpus, bool bf16_dots) {
  Table table(call, threads);
  switch (call) {
    case BenchCall::kForward:
      add_forward_rows(table, cpus, bf16_dots);
      break;
    case BenchCall::kBackward:
      add_backward_rows(table, cpus, bf16_dots);
      break;
    case BenchCall::kDecode:
      add_decode_rows(table, cpus, bf16_dots);
      break;
    case BenchCall::kLenses:
      add_lens_rows(table, bf16_dots);
      break;
  }
  return table.rows();
}

std::optional<double> row_floor(const BenchRow& row, CpuKind cpu, const std::string& target) {
  const double floor = is_avx3(target) ? row.floors.avx3 : row.floors.avx2;
  if (!known(cpu, target) || floor == 0.0) return std::nullopt;
  return cpu == CpuKind::kZen5 ? floor - row.floors.zen5_allowance : floor;
}

std::optional<double> row_limit(const BenchRow& row, CpuKind cpu, const std::string& target) {
  if (!known(cpu, target) || row.floors.seconds == 0.0) return std::nullopt;
  return row.floors.seconds;
}

std::optional<double> row_cost(const BenchRow& row, CpuKind cpu, const std::string& target) {
  if (!known(cpu, target) || row.floors.cost == 0.0) return std::nullopt;
  return row.floors.cost;
}

std::optional<double> tiny_limit(CpuKind cpu, const std::string& target) {
  return known(cpu, target) ? std::optional(1e-6) : std::nullopt;
}

BenchProblem memory_problem(bool quick) {
  return masked(square(1, quick ? 16384 : 262144, 64), window(1023, 0));
}

}  // namespace fovea::cli
