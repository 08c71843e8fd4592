// SPDX-License-Identifier: Apache-2.0
//
// Collection of row statistics and top keys (row_lenses.h).

#include "distributed/row_lenses.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/element_type.h"
#include "engine/call/parallel.h"
#include "problem/pair_score.h"

namespace fovea::distributed {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Copies a row of any float type.
void read_row(const TensorView& tensor, const Index& at, std::vector<double>& row) {
  const void* const from = tensor.address(at);
  with_element(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = static_cast<double>(static_cast<const T*>(from)[c]);
    }
  });
}

/// Returns the logarithm of the sum of two numbers of which the logarithms are given.
double log_sum(double a, double b) {
  const double most = std::max(a, b), least = std::min(a, b);
  return std::isinf(most) ? most : most + std::log1p(std::exp(least - most));
}

/// Returns the entropy that keys of this entropy add if their weights are multiplied by
/// exp(log_share).
double entropy_of_share(double entropy, double log_share) {
  const double share = std::exp(log_share);
  return share == 0.0 ? 0.0 : share * (entropy - log_share);
}

void write(const MutableTensorView& tensor, const Index& at, double number) {
  if (tensor.defined()) set_value(tensor, at, number);
}

}  // namespace

RowLenses::RowLenses(const Lenses& lenses, const Shape& rows, std::int64_t head_dim)
    : lenses_(lenses), rows_(rows), head_dim_(head_dim) {
  const RowStatistics& to = lenses.rows;
  const bool maximum = to.maximum.defined() || to.maximum_key.defined() || to.mean_offset.defined();
  statistics_ = to.entropy.defined() || maximum || to.mean_distance.defined() ||
                to.distance_variance.defined() || to.first_key.defined() ||
                to.mean_offset.defined();
  for (const MutableTensorView* top : {&lenses.top.keys, &lenses.top.weights}) {
    if (top->defined()) wanted_top_ = top->extent(3);
  }
  top_ = std::max<std::int64_t>(wanted_top_, maximum ? 1 : 0);
  if (!any()) return;
  const auto count = static_cast<std::size_t>(element_count(rows));
  seen_.resize(count);
  tops_.resize(count * static_cast<std::size_t>(top_));
}

RowLenses::Results RowLenses::results_for(ProblemShape block, DType type) const {
  Results results;
  static_cast<LensBuffers&>(results) =
      LensBuffers(block, type, {.statistics = statistics_, .top = std::min(top_, block.kv_len)});
  if (statistics_) results.mean_offset = Tensor(type, results.entropy.shape());
  return results;
}

Lenses RowLenses::Results::lenses() {
  Lenses lenses = LensBuffers::lenses();
  // Differences of distances lose digits far away.
  lenses.rows.mean_distance = {};
  lenses.rows.mean_offset = mean_offset.view();
  return lenses;
}

void RowLenses::insert(std::size_t row, const Top& candidate) {
  Top* const list = tops_.data() + row * static_cast<std::size_t>(top_);
  const auto precedes = [](const Top& a, const Top& b) {
    return a.score > b.score || (a.score == b.score && a.key < b.key);
  };
  std::int64_t n = top_ - 1;
  if (list[n].key >= 0 && !precedes(candidate, list[n])) return;
  for (; n > 0 && (list[n - 1].key < 0 || precedes(candidate, list[n - 1])); --n) {
    list[n] = list[n - 1];
  }
  list[n] = candidate;
}

void RowLenses::add_row(const BlockLenses& block, const Results& results,
                        const ScorePosition& place) {
  const Index at{place.batch, place.head, place.query};
  const std::size_t number = row_number({at[0], at[1], block.first + at[2]});
  Row& row = seen_[number];
  const double lse = block.lse.value(at);
  const auto spoils = [&](const Tensor& tensor, const Index& index) {
    return tensor.defined() && std::isnan(tensor.value(index));
  };
  if (spoils(results.entropy, at) ||
      (results.top_weights.defined() && spoils(results.top_weights, {at[0], at[1], at[2], 0}))) {
    row.spoilt = true;
  }
  if (row.spoilt || lse == kEmpty) return;
  const double both = log_sum(row.lse, lse);
  if (statistics_) {
    const double before = std::exp(row.lse - both), added = std::exp(lse - both);
    const std::int64_t first_key = block.range.first_key;
    row.position = static_cast<double>(place.query + place.offset + first_key);
    const double mean_added =
        static_cast<double>(first_key + results.maximum_key.at<std::int64_t>(at)) +
        results.mean_offset.value(at);
    const double mean = before * row.mean_key + added * mean_added;
    const auto variance = [&](double share, double own, double own_mean) {
      return share == 0.0 ? 0.0 : share * (own + (own_mean - mean) * (own_mean - mean));
    };
    row.variance = variance(before, row.variance, row.mean_key) +
                   variance(added, results.distance_variance.value(at), mean_added);
    row.mean_key = mean;
    row.entropy = entropy_of_share(row.entropy, row.lse - both) +
                  entropy_of_share(results.entropy.value(at), lse - both);
    const double first = first_key == 0 ? results.first_key.value(at) : 0.0;
    row.first_key = before * row.first_key + added * first;
  }
  row.lse = both;
}

void RowLenses::add(const BlockLenses& block, const Results& results) {
  const ProblemShape shape = {rows_[0], rows_[1], block.key.extent(1), block.range.queries,
                              block.range.keys};
  const PairScore score(block.options.score, shape, head_dim_);
  const std::int64_t group = shape.q_heads / std::max<std::int64_t>(1, shape.kv_heads);
  const Execution silent{.threads = block.options.execution.threads};
  const std::int64_t heads = rows_[0] * rows_[1];
  engine::for_each_item(
      silent, engine::thread_count(silent, heads), heads, [&](std::int64_t head, int) {
        std::vector<double> query(static_cast<std::size_t>(head_dim_)), key(query.size());
        ScorePosition place{.batch = head / rows_[1], .head = head % rows_[1]};
        place.offset = query_offset(block.options, shape, place.batch);
        for (std::int64_t i = 0; i < block.range.queries; ++i) {
          const Index at{place.batch, place.head, i};
          place.query = i;
          add_row(block, results, place);
          if (!results.top_keys.defined()) continue;
          const std::size_t number = row_number({at[0], at[1], block.first + i});
          read_row(block.query, {at[0], at[1], i, 0}, query);
          for (std::int64_t n = 0; n < results.top_keys.extent(3); ++n) {
            place.key = results.top_keys.at<std::int64_t>({at[0], at[1], i, n});
            if (place.key < 0) break;
            read_row(block.key, {at[0], at[1] / group, place.key, 0}, key);
            double product = 0.0;
            for (std::size_t c = 0; c < key.size(); ++c) product += query[c] * key[c];
            insert(number, {score(product, place), block.range.first_key + place.key});
          }
        }
      });
}

void RowLenses::finish_row(const Index& at, double sink) {
  const std::size_t number = row_number(at);
  const Row& row = seen_[number];
  const Top* const list = tops_.data() + number * static_cast<std::size_t>(top_);
  const double lse = log_sum(row.lse, sink);
  const double log_share = row.lse - lse;
  const bool none = row.lse == kEmpty;
  const auto told = [&](double value, double empty) {
    return row.spoilt ? kNan : none ? empty : value;
  };
  const auto weight_of = [&](const Top& top) { return std::exp(top.score - lse); };
  const RowStatistics& to = lenses_.rows;
  if (statistics_) {
    write(to.entropy, at, told(std::max(entropy_of_share(row.entropy, log_share), 0.0), 0.0));
    write(to.mean_distance, at, told(row.position - row.mean_key, kNan));
    write(to.distance_variance, at, told(row.variance, kNan));
    write(to.first_key, at, told(row.first_key * std::exp(log_share), 0.0));
    if (to.mean_offset.defined()) {
      write(to.mean_offset, at, told(row.mean_key - static_cast<double>(list[0].key), kNan));
    }
    if (to.maximum.defined()) write(to.maximum, at, told(weight_of(list[0]), 0.0));
    if (to.maximum_key.defined()) {
      to.maximum_key.at<std::int64_t>(at) = row.spoilt ? -1 : list[0].key;
    }
  }
  for (std::int64_t n = 0; n < wanted_top_; ++n) {
    const Index place{at[0], at[1], at[2], n};
    const bool there = !row.spoilt && list[n].key >= 0;
    if (lenses_.top.keys.defined()) {
      lenses_.top.keys.at<std::int64_t>(place) = there ? list[n].key : -1;
    }
    write(lenses_.top.weights, place, told(there ? weight_of(list[n]) : 0.0, 0.0));
  }
}

void RowLenses::finish(const std::vector<double>& sinks) {
  if (!any()) return;
  for_each_index(rows_, [&](const Index& at) {
    finish_row(at, sinks.empty() ? kEmpty : sinks[static_cast<std::size_t>(at[1])]);
  });
}

}  // namespace fovea::distributed
