// SPDX-License-Identifier: Apache-2.0
//
// Weights multiplied by the norms of the values (fovea/analysis.h). Maps are computed in work items
// of one row of cells each, whose sums continue in double from part to part.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fovea/analysis.h"

#include "core/fail.h"
#include "engine/call/parallel.h"
#include "problem/cells.h"
#include "problem/visible_pairs.h"
#include "recording/tiles.h"

namespace fovea {
namespace recording {
namespace {

void require_values(const RecordedAttention& attention) {
  if (attention.value.defined()) return;
  fail_argument("value",
                "expected an attention that was recorded with values, got {}, which has none",
                attention.name.empty() ? "one" : attention.name);
}

void check_norms(const RecordedAttention& attention, const TensorView& norms) {
  const ProblemShape shape = attention.shape();
  const Shape expected = {shape.batch, shape.q_heads, shape.kv_len};
  if (!norms.defined() || norms.shape() != expected) {
    fail_argument("norms", "expected [batch, q_heads, kv_len] = {}, got {}", to_string(expected),
                  norms.defined() ? to_string(norms.shape()) : "nothing");
  }
  if (norms.dtype() != DType::kFloat32) {
    fail_argument("norms", "expected float32, got {}", dtype_name(norms.dtype()));
  }
}

void check_projection(const TensorView& projection, const ProblemShape& shape,
                      std::int64_t value_dim) {
  if (!projection.defined()) return;
  if (projection.rank() != 3 || projection.extent(0) != shape.q_heads ||
      projection.extent(1) != value_dim || !is_float(projection.dtype())) {
    fail_argument("projection", "expected floats [{}, {}, model_dim], got {} {}", shape.q_heads,
                  value_dim, dtype_name(projection.dtype()), to_string(projection.shape()));
  }
}

/// Returns the matrix G = W W^T, [value_dim, value_dim], with which |v W|^2 = v G v^T; the identity
/// without a projection is not stored.
std::vector<double> gram_matrix(const TensorView& projection, std::int64_t head) {
  if (!projection.defined()) return {};
  const Tensor rows = convert(projection[head], DType::kFloat64);
  const std::int64_t dim = rows.extent(0), model_dim = rows.extent(1);
  const double* const w = rows.span<double>().data();
  std::vector<double> gram(static_cast<std::size_t>(dim * dim));
  for (std::int64_t a = 0; a < dim; ++a) {
    for (std::int64_t b = 0; b <= a; ++b) {
      double sum = 0.0;
      for (std::int64_t m = 0; m < model_dim; ++m)
        sum += w[a * model_dim + m] * w[b * model_dim + m];
      gram[static_cast<std::size_t>(a * dim + b)] = sum;
      gram[static_cast<std::size_t>(b * dim + a)] = sum;
    }
  }
  return gram;
}

double squared_norm(std::span<const double> value, const std::vector<double>& gram) {
  const std::size_t dim = value.size();
  double sum = 0.0;
  for (std::size_t a = 0; a < dim; ++a) {
    double row = value[a];
    if (!gram.empty()) {
      row = 0.0;
      for (std::size_t b = 0; b < dim; ++b) row += gram[a * dim + b] * value[b];
    }
    sum += value[a] * row;
  }
  // Rounding may make a norm of 0 slightly negative.
  return std::max(sum, 0.0);
}

void check_map_request(const ProblemShape& shape, const MapRequest& request) {
  const auto check_range = [](const char* name, const IndexRange& range, std::int64_t length) {
    if (range.begin >= 0 && range.begin < range.end && range.end <= length) return;
    fail_argument(name, "expected a range within 0 to {} of at least 1, got {} to before {}",
                  length, range.begin, range.end);
  };
  const auto check_count = [](const char* name, std::int64_t from, std::int64_t got,
                              std::int64_t most) {
    if (got >= from && got <= most) return;
    fail_argument(name, "expected {} to {}, got {}", from, most, got);
  };
  check_count("request.batch", 0, request.batch, shape.batch - 1);
  check_count("request.head", 0, request.head, shape.q_heads - 1);
  check_range("request.queries", request.queries, shape.q_len);
  check_range("request.keys", request.keys, shape.kv_len);
  check_count("request.rows", 1, request.rows, request.queries.size());
  check_count("request.columns", 1, request.columns, request.keys.size());
  if (request.heads) fail_argument("request.heads", "expected one head, got several");
  if (request.statistics || request.top != 0) {
    fail_argument("request.statistics", "expected no statistics and no top keys");
  }
}

/// Counts the pairs of one row of cells that are visible.
void count_pairs(const RecordedAttention& attention, const MapRequest& request,
                 std::int64_t first_query, std::int64_t queries, std::span<std::int64_t> pairs) {
  const ProblemShape shape = attention.shape();
  ScorePosition at = {.batch = request.batch,
                      .head = request.head,
                      .key = request.keys.begin,
                      .offset = query_offset(attention.options, shape, request.batch)};
  const VisiblePairs pairs_seen(attention.options);
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(request.keys.size()));
  for (std::int64_t q = first_query; q < first_query + queries; ++q) {
    at.query = q;
    pairs_seen.fill(at, request.keys.size(), visible.data());
    for (std::int64_t k = 0; k < request.keys.size(); ++k) {
      const std::int64_t column = cell_of(k, request.keys.size(), request.columns);
      pairs[static_cast<std::size_t>(column)] += visible[static_cast<std::size_t>(k)];
    }
  }
}

/// Computes one row of cells.
void find_cells(const RecordedAttention& attention, const TensorView& norms,
                const MapRequest& request, std::int64_t row, PartWeights& weights, MapCells& map) {
  const std::int64_t rows = request.rows, columns = request.columns;
  const std::int64_t begin = request.queries.begin + cell_begin(row, request.queries.size(), rows);
  const std::int64_t end =
      request.queries.begin + cell_begin(row + 1, request.queries.size(), rows);
  std::vector<double> cells(static_cast<std::size_t>(columns));
  for (std::int64_t block = begin; block < end; block += kPartQueries) {
    const WeightTile queries = {.batch = request.batch,
                                .head = request.head,
                                .first_query = block,
                                .queries = std::min(kPartQueries, end - block)};
    for_each_part(queries, request.keys, [&](const WeightTile& part) {
      weights.compute(part);
      for (std::int64_t k = 0; k < part.keys; ++k) {
        const std::int64_t key = part.first_key + k;
        const auto norm = static_cast<double>(norms.at<float>({request.batch, request.head, key}));
        double& cell = cells[static_cast<std::size_t>(
            cell_of(key - request.keys.begin, request.keys.size(), columns))];
        for (std::int64_t i = 0; i < part.queries; ++i) {
          const double product = static_cast<double>(weights.row(i)[k]) * norm;
          if (request.pool != Pool::kMax) {
            cell += product;
          } else if (!(product <= cell) && !std::isnan(cell)) {
            cell = product;  // NaN propagates
          }
        }
      }
    });
  }
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(columns));
  count_pairs(attention, request, begin, end - begin, pairs);
  for (std::int64_t column = 0; column < columns; ++column) {
    const auto c = static_cast<std::size_t>(column);
    double cell = cells[c];
    if (request.pool == Pool::kMean) {
      cell = pairs[c] > 0 ? cell / static_cast<double>(pairs[c])
                          : std::numeric_limits<double>::quiet_NaN();
    }
    map.cells.at<float>({row, column}) = static_cast<float>(cell);
    map.pairs.at<std::int64_t>({row, column}) = pairs[c];
  }
}

}  // namespace
}  // namespace recording

Tensor value_norms(const RecordedAttention& attention, const TensorView& projection) {
  recording::require_recorded(attention);
  recording::require_values(attention);
  const ProblemShape shape = attention.shape();
  const TensorView& value = attention.value;
  if (value.rank() != 4 || value.extent(0) != shape.batch || value.extent(1) != shape.kv_heads ||
      value.extent(2) != shape.kv_len) {
    fail_argument("value", "expected [{}, {}, {}, value_dim], got {}", shape.batch, shape.kv_heads,
                  shape.kv_len, to_string(value.shape()));
  }
  recording::check_projection(projection, shape, value.extent(3));
  const std::int64_t group = shape.q_heads / shape.kv_heads;
  Tensor norms(DType::kFloat32, {shape.batch, shape.q_heads, shape.kv_len});
  for (std::int64_t head = 0; head < shape.q_heads; ++head) {
    const std::vector<double> gram = recording::gram_matrix(projection, head);
    for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
      const Tensor rows = convert(value[batch][head / group], DType::kFloat64);
      const auto dim = static_cast<std::size_t>(rows.extent(1));
      for (std::int64_t key = 0; key < shape.kv_len; ++key) {
        const auto of_key = rows.span<double>().subspan(static_cast<std::size_t>(key) * dim, dim);
        norms.at<float>({batch, head, key}) =
            static_cast<float>(std::sqrt(recording::squared_norm(of_key, gram)));
      }
    }
  }
  return norms;
}

MapCells value_weighted_map(const RecordedAttention& attention, const TensorView& norms,
                            const MapRequest& request, const Execution& execution) {
  using namespace recording;
  require_recorded(attention);
  check_norms(attention, norms);
  check_map_request(attention.shape(), request);
  const Shape matrix = {request.rows, request.columns};
  MapCells map = {.queries = request.queries,
                  .keys = request.keys,
                  .pool = request.pool,
                  .cells = Tensor(DType::kFloat32, matrix),
                  .pairs = Tensor(DType::kInt64, matrix)};
  const int threads = engine::thread_count(execution, request.rows);
  std::vector<PartWeights> weights(static_cast<std::size_t>(threads),
                                   PartWeights(attention, execution));
  engine::for_each_item(execution, threads, request.rows, [&](std::int64_t row, int thread) {
    find_cells(attention, norms, request, row, weights[static_cast<std::size_t>(thread)], map);
  });
  return map;
}

Tensor value_weighted_row(const RecordedAttention& attention, const TensorView& norms,
                          const WeightRow& row, const Execution& execution) {
  recording::require_recorded(attention);
  recording::check_norms(attention, norms);
  const ProblemShape shape = attention.shape();
  AttentionOptions options = attention.options;
  options.execution = execution;
  options.execution.workspace = {};
  Tensor weights(DType::kFloat32,
                 row.head ? Shape{shape.kv_len} : Shape{shape.q_heads, shape.kv_len});
  attention_row(attention.inputs(), row, options, weights);
  for_each_index(weights.shape(), [&](const Index& at) {
    const std::int64_t head = row.head ? *row.head : at[0];
    weights.at<float>(at) *= norms.at<float>({row.batch, head, at[at.rank() - 1]});
  });
  return weights;
}

}  // namespace fovea
