// SPDX-License-Identifier: Apache-2.0
//
// The lenses in float64, computed by their definitions (lenses.h).

#include "reference/lenses.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

namespace fovea::reference {

RowNumbers row_numbers(std::span<const double> weights, const ScorePosition& place) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  RowNumbers row;
  double sum = 0.0;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const double weight = weights[j];
    if (std::isnan(weight)) return {kNan, kNan, -1, kNan, kNan, kNan, kNan};
    sum += weight;
    if (weight > 0.0) row.entropy -= weight * std::log(weight);
    if (weight > row.maximum) {
      row.maximum = weight;
      row.maximum_key = static_cast<std::int64_t>(j);
    }
  }
  const auto first = static_cast<std::size_t>(place.key_start);
  if (first < weights.size()) row.first_key = weights[first];
  if (row.maximum_key < 0) {
    row.mean_distance = row.distance_variance = row.mean_offset = kNan;
    return row;
  }
  // Distances use key positions relative to the first key of the sequence.
  const auto distance = [&](std::size_t j) {
    return static_cast<double>(place.query + place.offset -
                               (static_cast<std::int64_t>(j) - place.key_start));
  };
  for (std::size_t j = 0; j < weights.size(); ++j) row.mean_distance += weights[j] * distance(j);
  row.mean_distance /= sum;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const double off = distance(j) - row.mean_distance;
    row.distance_variance += weights[j] * off * off;
  }
  row.distance_variance /= sum;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    row.mean_offset +=
        weights[j] * static_cast<double>(static_cast<std::int64_t>(j) - row.maximum_key);
  }
  row.mean_offset /= sum;
  return row;
}

std::vector<std::pair<std::int64_t, double>> top_keys(std::span<const double> weights,
                                                      std::int64_t k) {
  std::vector<std::pair<std::int64_t, double>> top;
  const bool spoilt =
      std::any_of(weights.begin(), weights.end(), [](double w) { return std::isnan(w); });
  for (std::size_t j = 0; j < weights.size() && !spoilt; ++j) {
    if (weights[j] > 0.0) top.emplace_back(static_cast<std::int64_t>(j), weights[j]);
  }
  const auto count = std::min<std::ptrdiff_t>(k, std::ssize(top));
  std::partial_sort(top.begin(), top.begin() + count, top.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  top.resize(static_cast<std::size_t>(k),
             {-1, spoilt ? std::numeric_limits<double>::quiet_NaN() : 0.0});
  return top;
}

void write_lenses(const Lenses& lenses, const Row& row, const Rows& rows, std::int64_t number) {
  const std::int64_t kv_len = rows.weights.extent(1);
  const std::span<const double> weights = rows.weights.span<double>().subspan(
      static_cast<std::size_t>(number * kv_len), static_cast<std::size_t>(kv_len));
  const Index at{row.batch, row.head, row.query};
  const RowStatistics& to = lenses.rows;
  const RowNumbers found = row_numbers(weights, rows.places[static_cast<std::size_t>(number)]);
  const auto write = [&](const MutableTensorView& tensor, double value) {
    if (tensor.defined()) tensor.at<double>(at) = value;
  };
  write(to.entropy, found.entropy);
  write(to.maximum, found.maximum);
  write(to.mean_distance, found.mean_distance);
  write(to.distance_variance, found.distance_variance);
  write(to.first_key, found.first_key);
  write(to.mean_offset, found.mean_offset);
  if (to.maximum_key.defined()) to.maximum_key.at<std::int64_t>(at) = found.maximum_key;

  const TopKeys& top = lenses.top;
  if (!top.keys.defined() && !top.weights.defined()) return;
  const std::int64_t k = (top.keys.defined() ? top.keys : top.weights).extent(3);
  const auto largest = top_keys(weights, k);
  for (std::int64_t n = 0; n < k; ++n) {
    const auto& [key, weight] = largest[static_cast<std::size_t>(n)];
    const Index place{row.batch, row.head, row.query, n};
    if (top.keys.defined()) top.keys.at<std::int64_t>(place) = key;
    if (top.weights.defined()) top.weights.at<double>(place) = weight;
  }
}

void MapRow::add(std::span<const double> weights) {
  for (std::int64_t c = 0; c < columns_.cells(); ++c) {
    double& cell = cells_[static_cast<std::size_t>(c)];
    for (std::int64_t j = columns_.begin(c); j < columns_.begin(c + 1); ++j) {
      const double weight = weights[static_cast<std::size_t>(j)];
      if (pool_ != Pool::kMax) {
        cell += weight;
      } else if (!(weight <= cell)) {
        cell = std::isnan(cell) ? cell : weight;
      }
    }
  }
}

}  // namespace fovea::reference
