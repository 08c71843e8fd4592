// SPDX-License-Identifier: Apache-2.0
//
// The standard tables of `fovea-bench forward`, `backward`, `decode` and `lenses`, and the speed
// below which no row may fall.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention/machine.h"
#include "bench/attention/problem.h"

namespace fovea::cli {

/// What is measured: attention_forward or attention_backward, beside what the arithmetic units can
/// do, attention_decode, beside how fast memory can be read, or attention_forward with lenses,
/// beside itself without.
enum class BenchCall : std::uint8_t { kForward, kBackward, kDecode, kLenses };

/// What a row's time is compared with.
enum class BenchAgainst : std::uint8_t {
  kCeiling,
  kOneThread,  ///< the same on one thread, measured in alternation
  kFloat32,    ///< the same with tensors in float32, measured in alternation
  kPlain,      ///< the same without lenses, measured in alternation
};

/// Floors on Zen 4; 0 where none was set.
struct BenchFloors {
  /// Of the share of the ceiling, or of the speed as a multiple of what it is compared with.
  double avx3 = 0.0;
  double avx2 = 0.0;
  /// How much lower they are on Zen 5, whose multiply-adds are twice as fast, its loads and the
  /// rest of the work not.
  double zen5_allowance = 0.0;
  /// What a call takes at most.
  double seconds = 0.0;
  /// What it takes at most as a multiple of what it is compared with: of lenses.
  double cost = 0.0;
};

struct BenchRow {
  BenchProblem problem;
  BenchCall call = BenchCall::kForward;
  int threads = 1;
  BenchAgainst against = BenchAgainst::kCeiling;
  BenchFloors floors = {};
};

/// All rows of a call, with `threads`. For one thread they have floors, and on more than one CPU
/// some rows for two follow. `bf16_dots`: whether the target in use
/// multiplies bfloat16.
std::vector<BenchRow> standard_table(BenchCall call, int threads, int cpus, bool bf16_dots);

/// The floor of a row's share or multiple on this machine with this SIMD target, if there is one.
std::optional<double> row_floor(const BenchRow& row, CpuKind cpu, const std::string& target);

/// What a call of the row takes at most, if that was set.
std::optional<double> row_limit(const BenchRow& row, CpuKind cpu, const std::string& target);

/// The multiple of its time without lenses that a row takes at most, if that was set.
std::optional<double> row_cost(const BenchRow& row, CpuKind cpu, const std::string& target);

/// The problem whose memory is measured, and the bytes beyond inputs and outputs that it takes at
/// most. `quick` makes it short.
BenchProblem memory_problem(bool quick);
inline constexpr double kMemoryLimit = 96e6;

/// A call on 4 x 4 x 3 numbers takes at most this many seconds.
std::optional<double> tiny_limit(CpuKind cpu, const std::string& target);

}  // namespace fovea::cli
