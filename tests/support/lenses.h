// SPDX-License-Identifier: Apache-2.0
//
// Runs attention with all lenses, and checks the results against the oracle's weights.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/lens_buffers.h"
#include "fovea/lenses.h"
#include "fovea/reference.h"

#include "problem/cells.h"
#include "reference/lenses.h"
#include "support/exactness.h"
#include "support/forward.h"
#include "support/option_sets.h"
#include "support/random_problem.h"
#include "support/storage.h"
#include "support/visible.h"

namespace fovea::test {

/// The sizes of the lenses' results.
struct LensSizes {
  std::int64_t top = 8;
  std::int64_t rows = 0, columns = 0;  // of the map; no map if 0
  Pool pool = Pool::kSum;
  // PooledMap's; `rows` and `columns` must fit.
  std::int64_t cell_queries = 0, cell_keys = 0;

  CellDivision row_division(const ProblemShape& shape) const {
    return {shape.q_len, rows, cell_queries};
  }
  CellDivision column_division(const ProblemShape& shape) const {
    return {shape.kv_len, columns, cell_keys};
  }
};

/// The results of all lenses, with the outputs of the same call.
struct Seen : LensBuffers {
  Tensor context, lse, mean_offset;

  Lenses lenses() {
    Lenses lenses = LensBuffers::lenses();
    lenses.rows.mean_offset = mean_offset.view();
    return lenses;
  }

  /// Returns all defined tensors of `seen`.
  static auto all(auto& seen) {
    std::vector tensors{&seen.context,           &seen.lse,         &seen.entropy,
                        &seen.maximum,           &seen.maximum_key, &seen.mean_distance,
                        &seen.distance_variance, &seen.first_key,   &seen.top_keys,
                        &seen.top_weights,       &seen.cells,       &seen.pairs,
                        &seen.mean_offset};
    std::erase_if(tensors, [](const Tensor* tensor) { return !tensor->defined(); });
    return tensors;
  }
};

/// Returns buffers for all results, filled with a value that no lens produces.
inline Seen room_for(const reference::Inputs& in, const LensSizes& sizes) {
  const ProblemShape shape = shape_of(in);
  const DType type = in.query.dtype();
  Seen seen;
  static_cast<LensBuffers&>(seen) = LensBuffers(shape, type,
                                                {.statistics = true,
                                                 .top = sizes.top,
                                                 .map_rows = sizes.rows,
                                                 .map_columns = sizes.columns,
                                                 .pool = sizes.pool});
  seen.context = Tensor(type, {shape.batch, shape.q_heads, shape.q_len, in.value.extent(3)});
  seen.lse = Tensor(lse_type(type), {shape.batch, shape.q_heads, shape.q_len});
  seen.mean_offset = Tensor(lse_type(type), seen.lse.shape());
  for (Tensor* const tensor : Seen::all(seen)) fill(*tensor, -77.0);
  return seen;
}

/// Runs `call`, a function with the signature of attention_forward, with all lenses.
template <class Call>
Seen look_through(const Call& call, const reference::Inputs& in, const AttentionOptions& options,
                  const LensSizes& sizes) {
  Seen seen = room_for(in, sizes);
  Lenses lenses = seen.lenses();
  lenses.map.cell_queries = sizes.cell_queries;
  lenses.map.cell_keys = sizes.cell_keys;
  call(in.query, in.key, in.value, options,
       AttentionOutputs{.context = seen.context, .lse = seen.lse, .lenses = &lenses});
  return seen;
}

inline Seen look(const reference::Inputs& in, const AttentionOptions& options,
                 const LensSizes& sizes) {
  return look_through(attention_forward, in, options, sizes);
}

inline testing::AssertionResult same_bits(const Seen& a, const Seen& b) {
  const std::vector<const Tensor*> these = Seen::all(a);
  const std::vector<const Tensor*> those = Seen::all(b);
  if (these.size() != those.size()) return testing::AssertionFailure() << "others were asked for";
  for (std::size_t i = 0; i < these.size(); ++i) {
    const testing::AssertionResult same = same_bits(*these[i], *those[i]);
    if (!same) return testing::AssertionFailure() << "number " << i << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

/// Checks lens results against the oracle's weights. Weights have a relative error of at most
/// `rounding_`.
class LensCheck {
 public:
  LensCheck(const reference::Inputs& in, const AttentionOptions& options)
      : shape_(shape_of(in, options)),
        options_(options),
        rows_(all_rows(shape_)),
        exact_(reference::attention_rows(in, options, rows_)) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      numbers_.push_back(reference::row_numbers(weights(r), exact_.places[r]));
    }
    const double scores =
        size_of_products(in, options, rows_) * 2 + size_of_biases(shape_, options);
    const double keys = static_cast<double>(std::max<std::int64_t>(shape_.kv_len, 1));
    rounding_ = in.query.dtype() == DType::kFloat64
                    ? 1e-12
                    : kRounding * (6 + 3 * scores + 2 * std::sqrt(keys));
  }

  void expect(const Seen& seen, const LensSizes& sizes) {
    for (std::size_t r = 0; r < rows_.size() && !testing::Test::HasFailure(); ++r) {
      const reference::Row& row = rows_[r];
      SCOPED_TRACE(testing::Message()
                   << "row " << row.batch << ", " << row.head << ", " << row.query);
      expect_row(seen, row, numbers_[r]);
      if (sizes.top > 0) expect_top(seen, row, weights(r), sizes.top);
    }
    if (sizes.rows > 0) expect_map(seen, sizes);
  }

 private:
  std::span<const double> weights(std::size_t row) const {
    const auto kv_len = static_cast<std::size_t>(shape_.kv_len);
    return exact_.weights.span<double>().subspan(row * kv_len, kv_len);
  }

  static void expect_near(const Tensor& found, const Index& at, double expected, double allowed,
                          const char* name) {
    const double value = found.value(at);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << name << ": " << value;
    } else {
      EXPECT_NEAR(value, expected, allowed) << name;
    }
  }

  void expect_row(const Seen& seen, const reference::Row& row,
                  const reference::RowNumbers& expected) const {
    const Index at{row.batch, row.head, row.query};
    const double deviation = std::sqrt(expected.distance_variance);
    expect_near(seen.entropy, at, expected.entropy, rounding_ * (2 + 2 * expected.entropy),
                "entropy");
    expect_near(seen.maximum, at, expected.maximum, rounding_ * expected.maximum + 1e-37,
                "maximum");
    expect_near(seen.first_key, at, expected.first_key, rounding_ * expected.first_key + 1e-37,
                "first_key");
    expect_near(seen.mean_distance, at, expected.mean_distance,
                rounding_ * (2 * deviation) + kRounding * std::abs(expected.mean_distance) +
                    1e-13 * static_cast<double>(shape_.kv_len),
                "mean_distance");
    expect_near(seen.distance_variance, at, expected.distance_variance,
                rounding_ * 4 * expected.distance_variance + 1e-25, "distance_variance");
    // Keys with nearly equal weights are interchangeable.
    const std::int64_t key = seen.maximum_key.at<std::int64_t>(at);
    if (expected.maximum_key < 0) {
      EXPECT_EQ(key, -1);
      EXPECT_TRUE(std::isnan(seen.mean_offset.value(at)));
      return;
    }
    ASSERT_TRUE(key >= 0 && key < shape_.kv_len) << key;
    const double mean_offset =
        expected.mean_offset + static_cast<double>(expected.maximum_key - key);
    expect_near(seen.mean_offset, at, mean_offset,
                rounding_ * (2 * deviation) + kRounding * std::abs(mean_offset) +
                    1e-13 * static_cast<double>(shape_.kv_len),
                "mean_offset");
    const std::size_t r = static_cast<std::size_t>(
        (row.batch * shape_.q_heads + row.head) * shape_.q_len + row.query);
    EXPECT_GE(weights(r)[static_cast<std::size_t>(key)], expected.maximum * (1 - rounding_));
  }

  void expect_top(const Seen& seen, const reference::Row& row, std::span<const double> exact,
                  std::int64_t k) const {
    const auto expected = reference::top_keys(exact, k);
    double previous = std::numeric_limits<double>::infinity();
    std::vector<std::int64_t> keys;
    for (std::int64_t n = 0; n < k; ++n) {
      const Index at{row.batch, row.head, row.query, n};
      const std::int64_t key = seen.top_keys.at<std::int64_t>(at);
      const double weight = seen.top_weights.value(at);
      const double wanted = expected[static_cast<std::size_t>(n)].second;
      expect_near(seen.top_weights, at, wanted, rounding_ * wanted + 1e-37, "top weight");
      if (std::isnan(wanted)) {
        EXPECT_EQ(key, -1);
        continue;
      }
      EXPECT_LE(weight, previous);
      if (n == 0) {
        EXPECT_EQ(weight, seen.maximum.value({row.batch, row.head, row.query}));
      }
      previous = weight;
      if (key < 0) {
        EXPECT_EQ(weight, 0.0);
        continue;
      }
      ASSERT_LT(key, shape_.kv_len);
      EXPECT_EQ(std::count(keys.begin(), keys.end(), key), 0) << key << " twice";
      keys.push_back(key);
      const double own = exact[static_cast<std::size_t>(key)];
      EXPECT_NEAR(weight, own, rounding_ * own + 1e-37) << "of key " << key;
    }
  }

  void expect_map(const Seen& seen, const LensSizes& sizes) {
    visible_.resize(rows_.size());
    for (std::int64_t batch = 0; batch < shape_.batch; ++batch) {
      // Only the first and the last head, since each cell is a loop over its pairs.
      for (const std::int64_t head : std::set<std::int64_t>{0, shape_.q_heads - 1}) {
        for (std::int64_t r = 0; r < sizes.rows && !testing::Test::HasFailure(); ++r) {
          expect_map_row(seen, sizes, batch, head, r);
        }
      }
    }
  }

  /// Returns which keys a row sees. The rows of a map are kept for the next map.
  const std::vector<char>& visible(std::size_t row) {
    std::vector<char>& seen = visible_[row];
    if (seen.empty()) {
      ScorePosition place = exact_.places[row];
      for (place.key = 0; place.key < shape_.kv_len; ++place.key) {
        seen.push_back(is_visible(options_, place) ? 1 : 0);
      }
    }
    return seen;
  }

  void expect_map_row(const Seen& seen, const LensSizes& sizes, std::int64_t batch,
                      std::int64_t head, std::int64_t r) {
    const CellDivision rows = sizes.row_division(shape_);
    const CellDivision columns = sizes.column_division(shape_);
    for (std::int64_t c = 0; c < sizes.columns; ++c) {
      double sum = 0.0, most = 0.0;
      std::int64_t pairs = 0;
      for (std::int64_t i = rows.begin(r); i < rows.begin(r + 1); ++i) {
        const auto number =
            static_cast<std::size_t>((batch * shape_.q_heads + head) * shape_.q_len + i);
        const std::span<const double> row = weights(number);
        const std::vector<char>& visible_keys = visible(number);
        const auto end = static_cast<std::size_t>(columns.begin(c + 1));
        for (auto j = static_cast<std::size_t>(columns.begin(c)); j < end; ++j) {
          sum += row[j];
          most = std::isnan(row[j]) || std::isnan(most) ? std::nan("") : std::max(most, row[j]);
          pairs += visible_keys[j];
        }
      }
      const Index at{batch, head, r, c};
      EXPECT_EQ(seen.pairs.at<std::int64_t>(at), pairs) << to_string(at);
      const double expected = sizes.pool == Pool::kMax    ? most
                              : sizes.pool == Pool::kMean ? sum / static_cast<double>(pairs)
                                                          : sum;
      SCOPED_TRACE(to_string(at));
      // In a NaN row, masked cells between visible ones may be NaN.
      if (pairs == 0 && sizes.pool != Pool::kMean && std::isnan(seen.cells.value(at))) continue;
      expect_near(seen.cells, at, expected, 2 * rounding_ * expected + 1e-37, "cell");
    }
  }

  ProblemShape shape_;
  AttentionOptions options_;
  RowList rows_;
  reference::Rows exact_;
  std::vector<reference::RowNumbers> numbers_;
  std::vector<std::vector<char>> visible_;  // by row; empty if not needed yet
  double rounding_ = 0.0;
};

/// Checks against the oracle under all of `sets`; `look` has the signature of look().
template <class Look>
void expect_lenses_under(const std::vector<OptionSet>& sets, const Look& look,
                         const RandomProblem& problem, const std::vector<LensSizes>& all_sizes) {
  for (const auto& [name, options] : sets) {
    SCOPED_TRACE(name);
    LensCheck check(problem.inputs(), options);
    for (const LensSizes& sizes : all_sizes) {
      check.expect(look(problem.inputs(), options, sizes), sizes);
    }
    if (testing::Test::HasFailure()) return;
  }
}

/// Checks precision at long distances: two adjacent keys, 1.2 million positions away, have a weight
/// of 0.5 each.
template <class Look>
void expect_digits_far_away(const Look& look) {
  constexpr std::int64_t kKeys = 1'200'000;
  RandomProblem p = stored_problem({1, 1, 1, 1, kKeys}, 2, 1);
  fill(p.key, 0.0);
  fill(p.query, 10.0);
  for (const std::int64_t key : {100, 101}) set_value(p.key, {0, 0, key, 0}, 20.0);
  const Seen seen = look(p.inputs(), {}, {2, 1, 3, Pool::kSum});
  EXPECT_EQ(seen.maximum_key.value({0, 0, 0}), 100);
  EXPECT_FLOAT_EQ(seen.maximum.at<float>({0, 0, 0}), 0.5F);
  EXPECT_FLOAT_EQ(seen.entropy.at<float>({0, 0, 0}), std::log(2.0F));
  EXPECT_FLOAT_EQ(seen.mean_distance.at<float>({0, 0, 0}), kKeys - 1 - 100.5F);
  EXPECT_FLOAT_EQ(seen.distance_variance.at<float>({0, 0, 0}), 0.25F);
  EXPECT_FLOAT_EQ(seen.cells.at<float>({0, 0, 0, 0}), 1.0F);
  EXPECT_EQ(seen.top_keys.value({0, 0, 0, 0}), 100);
  EXPECT_EQ(seen.top_keys.value({0, 0, 0, 1}), 101);
}

inline void expect_lenses(const reference::Inputs& in, const AttentionOptions& options,
                          const LensSizes& sizes) {
  LensCheck(in, options).expect(look(in, options, sizes), sizes);
}

}  // namespace fovea::test
