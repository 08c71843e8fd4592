// SPDX-License-Identifier: Apache-2.0
//
// Maps of sharded tensors (map.h): each rank pools the weights of its queries in float64, in cells
// of the whole map, which are then added or compared in the order of ranks.

#include "distributed/map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/reduce.h"
#include "distributed/rows.h"
#include "distributed/weights_pass.h"
#include "engine/call/parallel.h"
#include "engine/lenses/lenses.h"
#include "engine/weights/over_heads.h"
#include "engine/weights/weights_call.h"
#include "problem/part.h"
#include "problem/visible_pairs.h"

namespace fovea::distributed {
namespace {

/// The cells of all heads.
class Cells {
 public:
  Cells(const ProblemShape& shape, const PooledMap& map)
      : shape_(shape),
        map_(map),
        rows_(engine::divide_rows(map, shape.q_len)),
        columns_(engine::divide_columns(map, shape.kv_len)),
        weights_(map.cells.defined() ? count() : 0),
        pairs_(map.pairs.defined() || map.pool == Pool::kMean ? count() : 0) {}

  void add_weights(const WeightsPass::Part& part) {
    if (weights_.empty()) return;
    const PairRange& range = part.range;
    const engine::TileCells cells{rows_, columns_, map_.pool, range.first_query, range.first_key};
    for (std::int64_t head = 0; head < heads(); ++head) {
      engine::pool_tile(part.inputs, part.problem,
                        {.batch = head / shape_.q_heads,
                         .head = head % shape_.q_heads,
                         .queries = range.queries,
                         .keys = range.keys},
                        cells,
                        [&](std::int64_t first_row, std::int64_t first_column, std::int64_t columns,
                            std::span<const double> sums) {
                          for (std::size_t i = 0; i < sums.size(); ++i) {
                            const auto n = static_cast<std::int64_t>(i);
                            const std::size_t at =
                                place(head, first_row + n / columns, first_column + n % columns);
                            engine::add_to_cell(map_.pool, sums[i], weights_[at]);
                          }
                        });
    }
  }

  /// Counts the visible pairs of some queries with all keys.
  void count_pairs(const PositionRange& queries, const AttentionOptions& options) {
    if (pairs_.empty() || queries.size() == 0) return;
    std::vector<std::int64_t> begins;
    for (std::int64_t c = 0; c <= columns_.cells(); ++c) begins.push_back(columns_.begin(c));
    const Execution silent{.threads = options.execution.threads};
    const VisiblePairs pairs_seen(options);
    engine::for_each_item(
        silent, engine::thread_count(silent, heads()), heads(), [&](std::int64_t head, int) {
          std::vector<std::uint8_t> visible;
          ScorePosition row{.batch = head / shape_.q_heads, .head = head % shape_.q_heads};
          row.offset = query_offset(options, shape_, row.batch);
          for (row.query = queries.begin; row.query < queries.end; ++row.query) {
            const auto cells = std::span(pairs_).subspan(
                place(head, rows_.of(row.query), 0), static_cast<std::size_t>(columns_.cells()));
            engine::count_row(pairs_seen, row, shape_.kv_len, begins, cells, visible);
          }
        });
  }

  /// Combines the cells of all ranks and writes them. Collective.
  void finish(Transport& transport) {
    reduce(transport, std::span(weights_), [this](double before, double own) {
      engine::add_to_cell(map_.pool, own, before);
      return before;
    });
    reduce(transport, std::span(pairs_),
           [](std::int64_t before, std::int64_t own) { return before + own; });
    for (std::int64_t head = 0; head < heads(); ++head) {
      for (std::int64_t r = 0; r < rows_.cells(); ++r) {
        for (std::int64_t c = 0; c < columns_.cells(); ++c) {
          const std::size_t from = place(head, r, c);
          const Index at{head / shape_.q_heads, head % shape_.q_heads, r, c};
          if (map_.pairs.defined()) map_.pairs.at<std::int64_t>(at) = pairs_[from];
          if (!map_.cells.defined()) continue;
          double cell = weights_[from];
          if (map_.pool == Pool::kMean) {
            cell = pairs_[from] == 0 ? std::nan("") : cell / static_cast<double>(pairs_[from]);
          }
          set_value(map_.cells, at, cell);
        }
      }
    }
  }

 private:
  std::int64_t heads() const { return shape_.batch * shape_.q_heads; }
  std::size_t count() const {
    return static_cast<std::size_t>(heads() * rows_.cells() * columns_.cells());
  }
  std::size_t place(std::int64_t head, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>((head * rows_.cells() + row) * columns_.cells() + column);
  }

  const ProblemShape& shape_;
  const PooledMap& map_;
  const CellDivision rows_, columns_;
  std::vector<double> weights_;
  std::vector<std::int64_t> pairs_;
};

}  // namespace

void pool_map(Transport& transport, const ShardedWeightInputs& inputs,
              const AttentionOptions& options, const ProblemShape& shape, const PooledMap& map) {
  std::optional<Cells> cells;
  std::optional<WeightsPass> pass;
  do_on_all(transport, [&] {
    cells.emplace(shape, map);
    for (const PositionRange& queries : inputs.queries.ranges(transport.rank())) {
      cells->count_pairs(queries, options);
    }
    pass.emplace(transport, inputs, options, shape);
  });
  pass->run([&](const WeightsPass::Part& part) { cells->add_weights(part); });
  cells->finish(transport);
}

namespace {

/// Returns the rows of one head of this rank that are in a range of positions, as [1, 1, rows,
/// ...].
TensorView rows_in(const TensorView& tensor, std::int64_t batch, std::int64_t head,
                   const Sharding& sharding, int rank, const PositionRange& wanted) {
  std::int64_t first = 0;
  for (const PositionRange& range : sharding.ranges(rank)) {
    first += std::clamp(wanted.begin, range.begin, range.end) - range.begin;
  }
  return rows_from(head_of(tensor, batch, head), first, sharding.part(wanted).length(rank));
}

/// Computes the map of a head. All ranks get the cells, and each the statistics of its queries.
class HeadMap {
 public:
  HeadMap(Transport& transport, const ShardedWeightInputs& inputs, const ProblemShape& shape,
          const MapRequest& request, const AttentionOptions& options)
      : transport_(transport),
        request_(request),
        queries_{request.queries.begin, request.queries.end},
        keys_{request.keys.begin, request.keys.end},
        query_sharding_(inputs.queries.part(queries_)),
        part_(options, shape,
              {.item = request.batch,
               .head = request.head,
               .first_query = queries_.begin,
               .queries = queries_.size()}) {
    const int rank = transport.rank();
    const std::int64_t kv_head = request.head / (shape.q_heads / shape.kv_heads);
    query_ = rows_in(inputs.query, request.batch, request.head, inputs.queries, rank, queries_);
    key_ = head_of(inputs.key, request.batch, kv_head);
    own_key_ = rows_in(inputs.key, request.batch, kv_head, inputs.keys, rank, keys_);
    all_keys_ = inputs.keys;
    const std::int64_t queries = query_.extent(2);
    result_.map = {.queries = request.queries,
                   .keys = request.keys,
                   .pool = request.pool,
                   .cells = Tensor(DType::kFloat32, {1, 1, request.rows, request.columns}),
                   .pairs = Tensor(DType::kInt64, {1, 1, request.rows, request.columns})};
    const ProblemShape rows{1, 1, 1, queries, shape.kv_len};
    result_.statistics =
        LensBuffers(rows, DType::kFloat32, {.statistics = request.statistics, .top = request.top});
    if (inputs.lse.defined()) {
      lse_ =
          Tensor(rows_in(inputs.lse, request.batch, request.head, inputs.queries, rank, queries_));
    } else {
      lse_ = Tensor(DType::kFloat32, {1, 1, queries});
      outputs_.lse = lse_.view();
    }
    lenses_ = result_.statistics.lenses();
    outputs_.lenses = &lenses_;
  }

  /// Collective.
  AttentionMap run(int root) && {
    if (outputs_.lse.defined() || request_.statistics || request_.top > 0) {
      attention_forward(transport_, {query_, key_, no_value(key_), query_sharding_, all_keys_},
                        part_.options(), outputs_);
    }
    const ProblemShape rows = part_.shape();
    const AttentionOptions options =
        part_of(part_.options(), rows, {0, rows.q_len, keys_.begin, keys_.size()});
    pool_map(transport_, {query_, own_key_, lse_, query_sharding_, all_keys_.part(keys_)}, options,
             {1, 1, 1, rows.q_len, keys_.size()},
             {.cells = result_.map.cells, .pairs = result_.map.pairs, .pool = request_.pool});
    LensBuffers& rows_told = result_.statistics;
    for (Tensor* tensor : {&rows_told.entropy, &rows_told.maximum, &rows_told.maximum_key,
                           &rows_told.mean_distance, &rows_told.distance_variance,
                           &rows_told.first_key, &rows_told.top_keys, &rows_told.top_weights}) {
      if (tensor->defined()) *tensor = gather(transport_, query_sharding_, *tensor, root);
    }
    const Shape matrix{request_.rows, request_.columns};
    result_.map.cells = std::move(result_.map.cells).reshaped(matrix);
    result_.map.pairs = std::move(result_.map.pairs).reshaped(matrix);
    return std::move(result_);
  }

 private:
  Transport& transport_;
  const MapRequest& request_;
  const PositionRange queries_, keys_;
  const Sharding query_sharding_;
  const ProblemPart part_;
  TensorView query_, key_, own_key_;
  Sharding all_keys_;
  Tensor lse_;
  AttentionMap result_;
  Lenses lenses_;
  AttentionOutputs outputs_;
};

std::string words_of_request(const MapRequest& request) {
  return fmt::format(
      "batch {}, head {}, heads {}, queries {} to {}, keys {} to {}, {} x {}, {}, "
      "statistics {}, top {}",
      request.batch, request.head, request.heads ? pool_name(*request.heads) : "one",
      request.queries.begin, request.queries.end, request.keys.begin, request.keys.end,
      request.rows, request.columns, pool_name(request.pool), request.statistics, request.top);
}

}  // namespace

AttentionMap attention_map(Transport& transport, const ShardedWeightInputs& inputs,
                           const MapRequest& request, const AttentionOptions& options, int root) {
  ProblemShape shape;
  const ShardedInputs keys{inputs.query, inputs.key, inputs.key, inputs.queries, inputs.keys};
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_weight_inputs(transport, keys, options);
    if (inputs.lse.defined()) check_lse(keys, shape, inputs.lse);
    check_root(transport, root);
    engine::check_request(shape, request);
    arguments =
        shared_arguments("attention_map", keys, options,
                         words_of_request(request) + (inputs.lse.defined() ? ", with lse" : ""));
  });
  const auto& progress = options.execution.progress;
  MapRequest one = request;
  AttentionOptions of_head = options;
  of_head.execution.workspace = {};
  const auto map_of_head = [&] {
    std::optional<HeadMap> map;
    do_on_all(transport, [&] { map.emplace(transport, inputs, shape, one, of_head); });
    return std::move(*map).run(root);
  };
  if (!request.heads) return map_of_head();
  engine::MapOfHeads all(*request.heads);
  for (one.head = 0; one.head < shape.q_heads; ++one.head) {
    if (progress) {
      of_head.execution.progress = [&](std::int64_t done, std::int64_t total) {
        progress(one.head * total + done, shape.q_heads * total);
      };
    }
    all.add(map_of_head());
  }
  return std::move(all).result(request);
}

}  // namespace fovea::distributed
