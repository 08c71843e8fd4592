// SPDX-License-Identifier: Apache-2.0
//
// Measurement of calls and ceilings (measure.h).

#include "bench/attention/measure.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "bench/attention/run.h"
#include "ceilings/ceilings.h"

namespace fovea::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the ceiling of the row's speed: GFLOP/s of the fastest arithmetic for its dtype, or
/// GB/s of reading as many bytes as decoding reads.
double ceiling(const BenchRow& row, const BenchRun& run, const BenchEffort& effort,
               kernels::ReadCeiling& reading) {
  const kernels::CeilingOptions options = {.threads = row.threads,
                                           .seconds = effort.seconds_per_ceiling};
  if (row.call == BenchCall::kDecode) return reading.gb_per_s(options, run.read_bytes());
  return kernels::product_ceiling_gflops(row.problem.dtype, options);
}

/// Returns the useful flop, or for decoding the bytes of all keys and values.
double work_of(const BenchRow& row) {
  switch (row.call) {
    case BenchCall::kBackward:
      return useful_backward_flop(row.problem);
    case BenchCall::kDecode:
      return key_value_bytes(row.problem);
    case BenchCall::kForward:
    case BenchCall::kLenses:
      break;
  }
  return useful_flop(row.problem);
}

/// A row's call, and the call to compare it with, if any.
struct RowRuns {
  BenchRun own;
  std::optional<BenchRun> against;
};

RowRuns runs_of(const BenchRow& row) {
  RowRuns runs = {BenchRun(row.call, row.problem, row.threads), std::nullopt};
  BenchProblem other = row.problem;
  if (row.against == BenchAgainst::kFloat32) other.dtype = DType::kFloat32;
  if (row.against == BenchAgainst::kPlain) other.lenses = {};
  if (row.against != BenchAgainst::kCeiling) {
    const int threads = row.against == BenchAgainst::kOneThread ? 1 : row.threads;
    runs.against.emplace(row.call, other, threads);
  }
  return runs;
}

BenchRound measure_round(const BenchRow& row, RowRuns& runs, const BenchEffort& effort,
                         kernels::ReadCeiling& reading) {
  BenchRound round;
  round.ceiling_before = ceiling(row, runs.own, effort, reading);
  runs.own.run();  // warm up the caches
  const auto repeat = [&](const auto& timed_call) {
    double total = 0.0;
    do {
      total += timed_call();
    } while (total < effort.seconds_per_round);
  };
  const auto own = [&] { return round.seconds.emplace_back(runs.own.timed_run()); };
  const auto against = [&] {
    return round.against_seconds.emplace_back(runs.against->timed_run());
  };
  if (row.against == BenchAgainst::kOneThread) {
    // Not in turns: the other threads would fall asleep during calls of one thread, and
    // bench/threads measures how long waking them takes.
    repeat(own);
    repeat(against);
  } else {
    repeat([&] {
      const double seconds = own();
      if (runs.against) against();
      return seconds;
    });
  }
  round.ceiling_after = ceiling(row, runs.own, effort, reading);
  return round;
}

/// Returns the peak resident memory of this process in bytes, if the system reports it.
std::optional<double> peak_memory() {
  constexpr std::string_view kLabel = "VmHWM:";
  constexpr double kKilobyte = 1024.0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kLabel)) return std::stod(line.substr(kLabel.size())) * kKilobyte;
  }
  return std::nullopt;
}

/// Resets the peak to the current resident memory. Returns false if the system does not support it.
bool forget_peak_memory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  return static_cast<bool>(file.flush());
}

std::vector<double> all_seconds(const RowResult& result) {
  std::vector<double> all;
  for (const BenchRound& round : result.rounds) {
    all.insert(all.end(), round.seconds.begin(), round.seconds.end());
  }
  return all;
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2.0;
}

double RowResult::median_seconds() const { return median(all_seconds(*this)); }

double RowResult::best_seconds() const { return std::ranges::min(all_seconds(*this)); }

double RowResult::rate() const { return work / median_seconds() * 1e-9; }

double RowResult::share() const {
  std::vector<double> shares;
  for (const BenchRound& round : rounds) {
    // Disturbances can only lower a measured ceiling, so the higher one is closer to the truth.
    const double ceiling = std::max(round.ceiling_before, round.ceiling_after);
    shares.push_back(work / median(round.seconds) * 1e-9 / ceiling);
  }
  return median(shares);
}

double RowResult::speedup() const {
  std::vector<double> ratios;
  for (const BenchRound& round : rounds) {
    ratios.push_back(median(round.against_seconds) / median(round.seconds));
  }
  return median(ratios);
}

double TinyResult::median_seconds() const { return median(seconds); }

double TinyResult::best_seconds() const { return std::ranges::min(seconds); }

CeilingResult measure_ceilings(int threads, const BenchEffort& effort) {
  const kernels::CeilingOptions options = {.threads = threads,
                                           .seconds = effort.seconds_per_own_ceiling};
  return {.threads = threads,
          .fma_gflops = kernels::fma_ceiling_gflops(options),
          .bf16_gflops = kernels::bf16_ceiling_gflops(options),
          .read_gb_per_s = kernels::ReadCeiling().gb_per_s(options)};
}

std::vector<RowResult> measure_rows(const std::vector<BenchRow>& rows, const BenchEffort& effort,
                                    Progress& progress) {
  std::vector<RowRuns> runs;
  std::vector<RowResult> results;
  for (const BenchRow& row : rows) {
    progress.show(fmt::format("checking {} of {}: {}", results.size() + 1, rows.size(),
                              describe(row.problem)));
    runs.push_back(runs_of(row));
    if (runs.back().against) runs.back().against->check();
    const BenchErrors errors = runs.back().own.check();
    results.push_back({.row = row,
                       .work = work_of(row),
                       .error = errors.error,
                       .allowed_error = errors.allowed,
                       .rounds = {}});
  }
  // Rounds are the outer loop, so that a disturbance of a second affects one round of a few rows
  // rather than all rounds of one row.
  kernels::ReadCeiling reading;
  for (int round = 0; round < effort.rounds; ++round) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      progress.show(fmt::format("round {} of {}, row {} of {}: {}", round + 1, effort.rounds, i + 1,
                                rows.size(), describe(rows[i].problem)));
      results[i].rounds.push_back(measure_round(rows[i], runs[i], effort, reading));
    }
  }
  return results;
}

TinyResult measure_tiny(const BenchEffort& effort) {
  constexpr int kSamplesPerRound = 8;
  BenchRun run(BenchCall::kForward, {.q_len = 4, .kv_len = 4, .head_dim = 3, .value_dim = 3}, 0);
  run.check();
  TinyResult result = {.calls_per_sample = 2000, .seconds = {}};
  for (int sample = 0; sample < kSamplesPerRound * effort.rounds; ++sample) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < result.calls_per_sample; ++i) run.run();
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    result.seconds.push_back(elapsed.count() / static_cast<double>(result.calls_per_sample));
  }
  return result;
}

std::optional<MemoryResult> measure_memory(const BenchProblem& problem, int threads) {
  BenchRun run(BenchCall::kForward, problem, threads);
  if (!forget_peak_memory()) return std::nullopt;
  run.run();
  const std::optional<double> peak = peak_memory();
  if (!peak) return std::nullopt;
  run.check();
  return MemoryResult{.problem = problem, .bytes = *peak - run.bytes()};
}

}  // namespace fovea::cli
