// SPDX-License-Identifier: Apache-2.0
//
// Comparison of lens results with the reference (lens_check.h).

#include "bench/attention/lens_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "problem/cells.h"
#include "reference/lenses.h"

namespace fovea::cli {
namespace {

/// The largest relative error of all numbers added.
class Worst {
 public:
  /// The divisor is at least `scale`, for numbers that may be small by chance.
  void add(double found, double expected, double scale = 0.0) {
    double off = std::abs(found - expected) / std::max(std::abs(expected), scale);
    if (found == expected || (std::isnan(found) && std::isnan(expected))) off = 0.0;
    worst_ = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(worst_, off);
  }
  double share() const { return worst_; }

 private:
  double worst_ = 0.0;
};

void add_row(const Lenses& lenses, const reference::Row& row, std::span<const double> weights,
             const ScorePosition& place, Worst& worst) {
  const Index at{row.batch, row.head, row.query};
  if (lenses.rows.entropy.defined()) {
    const reference::RowNumbers expected = reference::row_numbers(weights, place);
    const double spread = std::sqrt(expected.distance_variance);
    worst.add(lenses.rows.entropy.value(at), expected.entropy, 1.0);
    worst.add(lenses.rows.maximum.value(at), expected.maximum);
    worst.add(lenses.rows.first_key.value(at), expected.first_key, 1e-30);
    worst.add(lenses.rows.mean_distance.value(at), expected.mean_distance, spread);
    worst.add(lenses.rows.distance_variance.value(at), expected.distance_variance);
  }
  if (!lenses.top.weights.defined()) return;
  const std::int64_t k = lenses.top.weights.extent(3);
  const auto expected = reference::top_keys(weights, k);
  for (std::int64_t n = 0; n < k; ++n) {
    const Index place_of{row.batch, row.head, row.query, n};
    const std::int64_t key = lenses.top.keys.at<std::int64_t>(place_of);
    const double weight = lenses.top.weights.value(place_of);
    worst.add(weight, expected[static_cast<std::size_t>(n)].second);
    if (key >= 0) worst.add(weight, weights[static_cast<std::size_t>(key)]);
  }
}

void add_map_row(const BenchTensors& tensors, const reference::Inputs& inputs, std::int64_t batch,
                 std::int64_t head, std::int64_t map_row, Worst& worst) {
  const std::int64_t q_len = tensors.query.extent(2);
  std::vector<reference::Row> rows;
  for (std::int64_t q = cell_begin(map_row, q_len, tensors.watched.cells.extent(2));
       q < cell_begin(map_row + 1, q_len, tensors.watched.cells.extent(2)); ++q) {
    rows.push_back({batch, head, q});
  }
  const reference::Rows oracle = reference::attention_rows(inputs, tensors.options, rows);
  const auto kv_len = static_cast<std::size_t>(oracle.weights.extent(1));
  const CellDivision columns(oracle.weights.extent(1), tensors.watched.cells.extent(3), 0);
  reference::MapRow expected(columns, tensors.lenses.map.pool);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    expected.add(oracle.weights.span<double>().subspan(r * kv_len, kv_len));
  }
  for (std::size_t c = 0; c < expected.cells().size(); ++c) {
    const Index at{batch, head, map_row, static_cast<std::int64_t>(c)};
    worst.add(tensors.watched.cells.value(at), expected.cells()[c], 1e-30);
  }
}

/// Checks that the weights received by all keys of a head add up to the number of nonempty rows.
void add_received(const BenchTensors& tensors, Worst& worst) {
  const Tensor& received = tensors.received;
  for (std::int64_t batch = 0; batch < received.extent(0); ++batch) {
    for (std::int64_t head = 0; head < received.extent(1); ++head) {
      double sum = 0.0;
      double rows = 0.0;
      for (std::int64_t key = 0; key < received.extent(2); ++key) {
        sum += received.value({batch, head, key});
      }
      for (std::int64_t query = 0; query < tensors.lse.extent(2); ++query) {
        rows += std::isinf(tensors.lse.value({batch, head, query})) ? 0.0 : 1.0;
      }
      worst.add(sum, rows);
    }
  }
}

}  // namespace

double lens_error(const BenchTensors& tensors, std::span<const reference::Row> rows,
                  const reference::Rows& oracle) {
  Worst worst;
  const auto kv_len = static_cast<std::size_t>(oracle.weights.extent(1));
  std::set<std::pair<std::int64_t, std::int64_t>> heads;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    heads.emplace(rows[r].batch, rows[r].head);
    add_row(tensors.lenses, rows[r], oracle.weights.span<double>().subspan(r * kv_len, kv_len),
            oracle.places[r], worst);
  }
  if (tensors.received.defined()) add_received(tensors, worst);
  if (!tensors.watched.cells.defined()) return worst.share();
  const reference::Inputs inputs = {tensors.query, tensors.key, tensors.value};
  for (const auto& [batch, head] : heads) {
    for (const std::int64_t row : {std::int64_t{0}, tensors.watched.cells.extent(2) - 1}) {
      add_map_row(tensors, inputs, batch, head, row, worst);
    }
  }
  return worst.share();
}

}  // namespace fovea::cli
