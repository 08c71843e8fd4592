// SPDX-License-Identifier: Apache-2.0
//
// Pooling over heads (over_heads.h).

#include "engine/weights/over_heads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/fail.h"

namespace fovea::engine {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

bool NumbersOfHeads::is_larger(double number, std::size_t i) const {
  if (heads_.empty() || heads_[i] == 0) return true;
  return !std::isnan(all_[i]) && !(number <= all_[i]);
}

void NumbersOfHeads::add(const Tensor& numbers, const std::vector<char>& has) {
  if (heads_.empty()) {
    shape_ = numbers.shape();
    all_.resize(has.size());
    heads_.resize(has.size());
  }
  const auto add_all = [&](const auto& of_head) {
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (has[i] == 0) continue;
      const auto number = static_cast<double>(of_head[i]);
      if (how_ == Pool::kMean) {
        all_[i] += number;
      } else if (is_larger(number, i)) {
        all_[i] = number;
      }
      ++heads_[i];
    }
  };
  if (numbers.dtype() == DType::kFloat64) {
    add_all(numbers.span<double>());
  } else {
    add_all(numbers.span<float>());
  }
}

Tensor NumbersOfHeads::result() const {
  Tensor result(DType::kFloat64, shape_);
  const std::span<double> numbers = result.span<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double heads = how_ == Pool::kMean ? static_cast<double>(heads_[i]) : 1.0;
    numbers[i] = heads_[i] == 0 ? none_ : all_[i] / heads;
  }
  return result;
}

MapOfHeads::MapOfHeads(Pool how)
    : how_(how),
      cells_(how, kNan),
      entropy_(how, 0.0),
      maximum_(how, 0.0),
      mean_distance_(how, kNan),
      distance_variance_(how, kNan),
      first_key_(how, 0.0) {}

void MapOfHeads::add(const AttentionMap& head) {
  const std::span<const std::int64_t> pairs = head.map.pairs.span<std::int64_t>();
  if (!pairs_.defined()) pairs_ = Tensor(DType::kInt64, head.map.pairs.shape());
  const std::span<std::int64_t> all = pairs_.span<std::int64_t>();
  // If cells are sums or maxima, a cell without visible pairs is 0 and is pooled like any other.
  // If cells are means, a cell without visible pairs has no value and is skipped.
  std::vector<char> has(pairs.size(), 1);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    all[i] += pairs[i];
    if (head.map.pool == Pool::kMean) has[i] = pairs[i] > 0 ? 1 : 0;
  }
  cells_.add(head.map.cells, has);
  if (head.statistics.entropy.defined()) add_rows(head.statistics);
}

void MapOfHeads::add_rows(const LensBuffers& rows) {
  const std::span<const std::int64_t> keys = rows.maximum_key.span<std::int64_t>();
  if (!maximum_key_.defined()) {
    maximum_key_ = Tensor(DType::kInt64, rows.maximum_key.shape());
    std::ranges::fill(maximum_key_.span<std::int64_t>(), -1);
  }
  std::vector<char> sees(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double maximum = rows.maximum.value({0, 0, static_cast<std::int64_t>(i)});
    // A NaN row has no maximum key either, but it must be included so that NaN propagates.
    sees[i] = keys[i] >= 0 || std::isnan(maximum) ? 1 : 0;
    if (how_ == Pool::kMax && sees[i] != 0 && maximum_.is_larger(maximum, i)) {
      maximum_key_.span<std::int64_t>()[i] = keys[i];
    }
  }
  entropy_.add(rows.entropy, sees);
  maximum_.add(rows.maximum, sees);
  mean_distance_.add(rows.mean_distance, sees);
  distance_variance_.add(rows.distance_variance, sees);
  first_key_.add(rows.first_key, sees);
}

AttentionMap MapOfHeads::result(const MapRequest& request) && {
  AttentionMap result;
  result.map = {.queries = request.queries,
                .keys = request.keys,
                .pool = request.pool,
                .cells = cells_.result(),
                .pairs = std::move(pairs_)};
  if (!maximum_key_.defined()) return result;
  LensBuffers& rows = result.statistics;
  rows.entropy = entropy_.result();
  rows.maximum = maximum_.result();
  rows.maximum_key = std::move(maximum_key_);
  rows.mean_distance = mean_distance_.result();
  rows.distance_variance = distance_variance_.result();
  rows.first_key = first_key_.result();
  return result;
}

}  // namespace fovea::engine

namespace fovea {

Tensor pool_heads(const TensorView& cells, const TensorView& pairs, Pool how) {
  if (how == Pool::kSum) fail_argument("how", "expected mean or max, got sum");
  if (!cells.defined() || cells.rank() != 3 || !is_float(cells.dtype()) || cells.extent(0) == 0) {
    fail_argument("cells", "expected floats [heads, rows, columns] of at least one head, got {}",
                  cells.defined() ? to_string(cells.shape()) : "nothing");
  }
  if (pairs.defined() && (pairs.shape() != cells.shape() || pairs.dtype() != DType::kInt64)) {
    fail_argument("pairs", "expected int64 {} as cells have, got {} {}", to_string(cells.shape()),
                  dtype_name(pairs.dtype()), to_string(pairs.shape()));
  }
  engine::NumbersOfHeads all(how, std::numeric_limits<double>::quiet_NaN());
  std::vector<char> has(static_cast<std::size_t>(cells.extent(1) * cells.extent(2)), 1);
  for (std::int64_t head = 0; head < cells.extent(0); ++head) {
    if (pairs.defined()) {
      const Tensor seen(pairs[head]);
      std::ranges::transform(seen.span<std::int64_t>(), has.begin(),
                             [](std::int64_t count) { return count > 0 ? 1 : 0; });
    }
    all.add(convert(cells[head], DType::kFloat64), has);
  }
  return all.result();
}

}  // namespace fovea
