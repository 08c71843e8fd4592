// SPDX-License-Identifier: Apache-2.0
//
// Measurement of recomputed weights (looks.h).

#include "bench/attention/looks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <span>

#include <fmt/format.h>

#include "fovea/attention.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/weights.h"

#include "bench/attention/lens_check.h"
#include "bench/attention/table.h"
#include "problem/cells.h"
#include "reference/comparison.h"

namespace fovea::cli {
namespace {

/// A recomputation of weights, and its tensors.
class LookRun {
 public:
  LookRun(const BenchLook& look, int threads)
      : look_(look),
        tile_{.first_query = (look.length - look.queries) / 2,
              .queries = look.queries,
              .first_key = (look.length - look.keys) / 2,
              .keys = look.keys},
        lse_(DType::kFloat32, {1, 1, look.length}),
        found_(DType::kFloat32, look.cells > 0  ? Shape{look.cells, look.cells}
                                : look.is_row() ? Shape{look.keys}
                                                : Shape{look.queries, look.keys}) {
    constexpr std::uint64_t kSeed = 42;
    RandomState random(kSeed);
    tokens_ = convert(random.randn({1, 1, look.length, look.head_dim}), DType::kFloat32);
    options_.execution.threads = threads;
    // Compute lse only for the queries of the tile. A pass over all queries would give the same
    // values.
    const TensorView queries(&tokens_.at<float>({0, 0, tile_.first_query, 0}),
                             Shape{1, 1, look.queries, look.head_dim});
    const MutableTensorView lse(&lse_.at<float>({0, 0, tile_.first_query}),
                                Shape{1, 1, look.queries});
    attention_forward(queries, tokens_, tokens_, options_, {.lse = lse});
  }

  double timed_run() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    const WeightInputs inputs{tokens_, tokens_, lse_};
    if (look_.cells > 0) {
      attention_weights(inputs, tile_, options_, PooledMap{.cells = found_});
    } else if (look_.is_row()) {
      attention_row(inputs, {.head = 0, .query = tile_.first_query}, options_, found_);
    } else {
      attention_weights(inputs, tile_, options_, found_);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Returns the largest relative error in the first and the last row of the result.
  double error() {
    timed_run();
    const std::int64_t rows = look_.cells > 0 ? look_.cells : look_.queries;
    double worst = 0.0;
    for (const std::int64_t row : std::set<std::int64_t>{0, rows - 1}) {
      const std::vector<double> expected = expected_row(row, rows);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const double found = found_.value(look_.is_row() ? Index{at} : Index{row, at});
        worst = std::max(worst, std::abs(found - expected[i]) / expected[i]);
      }
    }
    return worst;
  }

 private:
  std::vector<double> expected_row(std::int64_t row, std::int64_t rows) const {
    const std::int64_t columns = look_.cells > 0 ? look_.cells : look_.keys;
    std::vector<double> expected(static_cast<std::size_t>(columns));
    const Tensor no_values(DType::kFloat32, {1, 1, look_.length, 0});
    for (std::int64_t query = cell_begin(row, look_.queries, rows);
         query < cell_begin(row + 1, look_.queries, rows); ++query) {
      const reference::Row one{0, 0, tile_.first_query + query};
      const reference::Rows exact =
          reference::attention_rows({tokens_, tokens_, no_values}, options_, std::span(&one, 1));
      for (std::int64_t key = 0; key < look_.keys; ++key) {
        expected[static_cast<std::size_t>(cell_of(key, look_.keys, columns))] +=
            exact.weights.at<double>({0, tile_.first_key + key});
      }
    }
    return expected;
  }

  BenchLook look_;
  WeightTile tile_;
  Tensor tokens_;  // queries and keys
  Tensor lse_;
  Tensor found_;
  AttentionOptions options_;
};

}  // namespace

double LookResult::median_seconds() const { return median(seconds); }

double LookResult::best_seconds() const { return std::ranges::min(seconds); }

std::string describe(const BenchLook& look) {
  const std::string of = fmt::format("of N {}, D {}", look.length, look.head_dim);
  if (look.is_row()) return "a row " + of;
  if (look.cells == 0) return fmt::format("{} x {} {}", look.queries, look.keys, of);
  return fmt::format("{0} x {0} cells of {1} x {1} {2}", look.cells, look.queries / look.cells, of);
}

std::vector<BenchLook> standard_looks(bool quick) {
  const std::int64_t million = std::int64_t{1} << (quick ? 13 : 20);
  const std::int64_t cells = quick ? 16 : 256;
  return {{.length = million, .queries = 512, .keys = 512, .seconds = 1.5e-3},
          {.length = std::int64_t{1} << (quick ? 13 : 16),
           .queries = 16 * cells,
           .keys = 16 * cells,
           .cells = cells,
           .seconds = 60e-3},
          {.length = million, .queries = 1, .keys = million, .seconds = 20e-3}};
}

std::optional<double> look_limit(const BenchLook& look, CpuKind cpu, const std::string& target) {
  return row_limit({.problem = {}, .floors = {.seconds = look.seconds}}, cpu, target);
}

std::vector<LookResult> measure_looks(const std::vector<BenchLook>& looks, int threads,
                                      const BenchEffort& effort, Progress& progress) {
  std::vector<LookRun> runs;
  std::vector<LookResult> results;
  for (const BenchLook& look : looks) {
    progress.show(fmt::format("checking {}", describe(look)));
    runs.emplace_back(look, threads);
    const double error = runs.back().error();
    if (!(error <= kLensErrorAllowed)) {
      throw WrongResult(
          fmt::format("wrong result, so nothing was timed: {}: off by a share of {:.3g}, "
                      "where {:.3g} is allowed",
                      describe(look), error, kLensErrorAllowed));
    }
    results.push_back({.look = look, .seconds = {}, .error = error});
  }
  for (int round = 0; round < effort.rounds; ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      progress.show(
          fmt::format("round {} of {}: {}", round + 1, effort.rounds, describe(looks[i])));
      runs[i].timed_run();  // warm up the caches
      double total = 0.0;
      do {
        results[i].seconds.push_back(runs[i].timed_run());
        total += results[i].seconds.back();
      } while (total < effort.seconds_per_round);
    }
  }
  return results;
}

}  // namespace fovea::cli
