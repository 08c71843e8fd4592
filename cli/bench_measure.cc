// SPDX-License-Identifier: Apache-2.0
//
// Measuring (bench_measure.h).

#include "bench_measure.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <span>

#include <fmt/format.h>

#include "fovea/attention.h"
#include "fovea/reference.h"

#include "kernels/ceilings.h"
#include "row_check.h"

namespace fovea::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Of an even number the mean of the two in the middle: with few rounds neither may win by luck.
double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2.0;
}

void call(BenchTensors& tensors, int threads) {
  tensors.options.execution.threads = threads;
  attention_forward(tensors.query, tensors.key, tensors.value, tensors.options,
                    {.context = tensors.context, .lse = tensors.lse});
}

double time_call(BenchTensors& tensors, int threads) {
  const Clock::time_point start = Clock::now();
  call(tensors, threads);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first, the middle and the last query, of the first, the middle and the last head of the first
// and the last batch item.
std::vector<reference::Row> rows_to_check(const BenchProblem& problem) {
  std::vector<reference::Row> rows;
  for (const std::int64_t batch : std::set<std::int64_t>{0, problem.batch - 1}) {
    for (const std::int64_t head :
         std::set<std::int64_t>{0, problem.q_heads / 2, problem.q_heads - 1}) {
      for (const std::int64_t query :
           std::set<std::int64_t>{0, problem.q_len / 2, problem.q_len - 1}) {
        rows.push_back({.batch = batch, .head = head, .query = query});
      }
    }
  }
  return rows;
}

struct Errors {
  double error = 0.0;
  double allowed = 0.0;
};

/// The engine may be as far off as the naive computation in float32, and some roundings more: what
/// one row hits by luck, another order of sums need not.
Errors compare(const TensorView& engine, const TensorView& naive, const TensorView& oracle) {
  constexpr double kRoundings = 16.0 * std::numeric_limits<float>::epsilon();
  Deviations deviations;
  deviations.add(engine, naive, oracle);
  return {.error = deviations.result,
          .allowed = deviations.naive + kRoundings * largest_finite(oracle)};
}

void require_right(const Errors& errors, const BenchProblem& problem, const char* what) {
  if (errors.error <= errors.allowed) return;
  throw WrongResult(
      fmt::format("wrong result, so nothing was timed: {}: the {} is off by {:.3g}, where the "
                  "reference allows {:.3g}",
                  describe(problem), what, errors.error, errors.allowed));
}

/// Computes with `threads` and compares with the reference. Returns the context's errors.
Errors check(const BenchProblem& problem, BenchTensors& tensors, int threads) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  // What the engine does not write stays wrong.
  std::ranges::fill(tensors.context.span<float>(), static_cast<float>(kNan));
  std::ranges::fill(tensors.lse.span<float>(), static_cast<float>(kNan));
  call(tensors, threads);

  const std::vector<reference::Row> rows = rows_to_check(problem);
  const reference::Inputs inputs = {tensors.query, tensors.key, tensors.value};
  const auto oracle = reference::attention_rows(inputs, tensors.options, rows);
  const auto naive =
      reference::attention_rows(inputs, tensors.options, rows, {.arithmetic = DType::kFloat32});
  Tensor context(DType::kFloat32, oracle.context.shape());
  Tensor lse(DType::kFloat32, oracle.lse.shape());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [batch, head, query] = rows[i];
    const auto row = static_cast<std::int64_t>(i);
    lse.at<float>({row}) = tensors.lse.at<float>({batch, head, query});
    for (std::int64_t dim = 0; dim < problem.value_dim; ++dim) {
      context.at<float>({row, dim}) = tensors.context.at<float>({batch, head, query, dim});
    }
  }
  require_right(compare(lse, naive.lse, oracle.lse), problem, "lse");
  const Errors errors = compare(context, naive.context, oracle.context);
  require_right(errors, problem, "context");
  return errors;
}

double ceiling(int threads, const BenchEffort& effort) {
  return kernels::fma_ceiling_gflops({.threads = threads, .seconds = effort.seconds_per_ceiling});
}

BenchRound measure_round(const BenchRow& row, BenchTensors& tensors, const BenchEffort& effort) {
  BenchRound round;
  round.ceiling_before = ceiling(row.threads, effort);
  call(tensors, row.threads);  // its inputs come back into the caches
  double total = 0.0;
  do {
    round.seconds.push_back(time_call(tensors, row.threads));
    total += round.seconds.back();
    if (row.against_one_thread) round.one_thread_seconds.push_back(time_call(tensors, 1));
  } while (total < effort.seconds_per_round);
  round.ceiling_after = ceiling(row.threads, effort);
  return round;
}

std::vector<double> all_seconds(const RowResult& result) {
  std::vector<double> all;
  for (const BenchRound& round : result.rounds) {
    all.insert(all.end(), round.seconds.begin(), round.seconds.end());
  }
  return all;
}

}  // namespace

double RowResult::median_seconds() const { return median(all_seconds(*this)); }

double RowResult::best_seconds() const { return std::ranges::min(all_seconds(*this)); }

double RowResult::gflops() const { return flop / median_seconds() * 1e-9; }

double RowResult::share() const {
  std::vector<double> shares;
  for (const BenchRound& round : rounds) {
    // What disturbs a measurement makes it lower, never higher.
    const double ceiling = std::max(round.ceiling_before, round.ceiling_after);
    shares.push_back(flop / median(round.seconds) * 1e-9 / ceiling);
  }
  return median(shares);
}

double RowResult::speedup() const {
  std::vector<double> ratios;
  for (const BenchRound& round : rounds) {
    ratios.push_back(median(round.one_thread_seconds) / median(round.seconds));
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
          .read_gb_per_s = kernels::read_ceiling_gb_per_s(options)};
}

std::vector<RowResult> measure_rows(const std::vector<BenchRow>& rows, const BenchEffort& effort,
                                    Progress& progress) {
  std::vector<BenchTensors> tensors;
  std::vector<RowResult> results;
  for (const BenchRow& row : rows) {
    progress.show(fmt::format("checking {} of {}: {}", results.size() + 1, rows.size(),
                              describe(row.problem)));
    tensors.push_back(make_tensors(row.problem));
    if (row.against_one_thread) check(row.problem, tensors.back(), 1);
    const Errors errors = check(row.problem, tensors.back(), row.threads);
    results.push_back({.row = row,
                       .flop = useful_flop(row.problem),
                       .error = errors.error,
                       .allowed_error = errors.allowed,
                       .rounds = {}});
  }
  // Round by round through all rows, so that a machine that is disturbed for a second spoils one
  // round of some of them and not one row altogether.
  for (int round = 0; round < effort.rounds; ++round) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      progress.show(fmt::format("round {} of {}, row {} of {}: {}", round + 1, effort.rounds, i + 1,
                                rows.size(), describe(rows[i].problem)));
      results[i].rounds.push_back(measure_round(rows[i], tensors[i], effort));
    }
  }
  return results;
}

TinyResult measure_tiny(const BenchEffort& effort) {
  const BenchProblem problem = {.q_len = 4, .kv_len = 4, .head_dim = 3, .value_dim = 3};
  constexpr int kThreads = 0;  // as in a call that says nothing about them
  constexpr int kSamplesPerRound = 8;
  BenchTensors tensors = make_tensors(problem);
  check(problem, tensors, kThreads);
  TinyResult result = {.calls_per_sample = 2000, .seconds = {}};
  for (int sample = 0; sample < kSamplesPerRound * effort.rounds; ++sample) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < result.calls_per_sample; ++i) call(tensors, kThreads);
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    result.seconds.push_back(elapsed.count() / static_cast<double>(result.calls_per_sample));
  }
  return result;
}

}  // namespace fovea::cli
