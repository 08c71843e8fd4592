// SPDX-License-Identifier: Apache-2.0
//
// Maps (fovea/map.h). Each head is computed as a separate problem with the requested queries. A map
// of all keys takes one fused pass, which pools the weights as they are computed. A map of some
// keys takes a pass that computes the lse of the rows, followed by a pass over the rectangle. Heads
// are processed one after another, each by all threads.

#include "fovea/map.h"

#include <algorithm>
#include <utility>

#include "fovea/attention.h"

#include "core/fail.h"
#include "engine/weights/over_heads.h"
#include "engine/weights/weights_call.h"
#include "problem/cells.h"
#include "problem/part.h"

namespace fovea {
namespace engine {

void check_request(const ProblemShape& shape, const MapRequest& request) {
  const auto check_range = [](const char* name, const IndexRange& range, const char* length_name,
                              std::int64_t length) {
    if (range.begin >= 0 && range.begin < range.end && range.end <= length) return;
    fail_argument(name, "expected a range within {} = {} of at least 1, got {} to before {}",
                  length_name, length, range.begin, range.end);
  };
  const auto check_cells = [](const char* name, std::int64_t cells, const char* what,
                              std::int64_t most) {
    if (cells >= 1 && cells <= most) return;
    fail_argument(name, "expected 1 to {}, as many as there are {}, got {}", most, what, cells);
  };
  check_index("request.batch", request.batch, "batch", shape.batch);
  if (request.heads == Pool::kSum) fail_argument("request.heads", "expected mean or max, got sum");
  if (!request.heads) check_index("request.head", request.head, "q_heads", shape.q_heads);
  check_range("request.queries", request.queries, "q_len", shape.q_len);
  check_range("request.keys", request.keys, "kv_len", shape.kv_len);
  check_cells("request.rows", request.rows, "queries", request.queries.size());
  check_cells("request.columns", request.columns, "keys", request.keys.size());
  if (request.heads && request.top != 0) {
    fail_argument("request.top", "expected 0 when heads are combined, got {}", request.top);
  }
  const std::int64_t most = std::min(kMaxTopKeys, shape.kv_len);
  if (request.top < 0 || request.top > most) {
    fail_argument("request.top", "expected 0 to {}, got {}", most, request.top);
  }
}

namespace {

AttentionMap map_of_head(const WeightInputs& inputs, const ProblemShape& shape,
                         const MapRequest& request, const AttentionOptions& options) {
  const ProblemPart part(options, shape,
                         {.item = request.batch,
                          .head = request.head,
                          .first_query = request.queries.begin,
                          .queries = request.queries.size()});
  WeightInputs own = {.query = part.queries_of(inputs.query), .key = part.keys_of(inputs.key)};
  const DType type = own.query.dtype();
  LensBuffers room(part.shape(), type,
                   {.statistics = request.statistics,
                    .top = request.top,
                    .map_rows = request.rows,
                    .map_columns = request.columns,
                    .pool = request.pool});
  Lenses lenses = room.lenses();
  AttentionOutputs outputs;
  outputs.lenses = &lenses;
  Tensor lse;
  const bool fused = !inputs.lse.defined() && request.keys.size() == shape.kv_len;
  if (!fused) {
    lenses.map = {};
    if (inputs.lse.defined()) {
      own.lse = part.numbers_of(inputs.lse);
    } else {
      lse =
          Tensor(type == DType::kFloat64 ? type : DType::kFloat32, {1, 1, request.queries.size()});
      outputs.lse = lse;
      own.lse = lse;
    }
  }
  if (fused || outputs.lse.defined() || request.statistics || request.top > 0) {
    attention_forward(own.query, own.key, no_value(own.key), part.options(), outputs);
  }
  const Shape matrix = {request.rows, request.columns};
  AttentionMap result;
  result.map = {.queries = request.queries,
                .keys = request.keys,
                .pool = request.pool,
                .cells = std::move(room.cells).reshaped(matrix),
                .pairs = std::move(room.pairs).reshaped(matrix)};
  if (!fused) {
    attention_weights(
        own,
        {.queries = request.queries.size(),
         .first_key = request.keys.begin,
         .keys = request.keys.size()},
        part.options(),
        PooledMap{.cells = result.map.cells, .pairs = result.map.pairs, .pool = request.pool});
  }
  result.statistics = std::move(room);
  return result;
}

AttentionMap map_of_heads(const WeightInputs& inputs, const ProblemShape& shape,
                          const MapRequest& request, const AttentionOptions& options) {
  const auto& progress = options.execution.progress;
  MapOfHeads all(*request.heads);
  MapRequest one = request;
  AttentionOptions of_head = options;
  for (one.head = 0; one.head < shape.q_heads; ++one.head) {
    if (progress) {
      of_head.execution.progress = [&](std::int64_t done, std::int64_t total) {
        progress(one.head * total + done, shape.q_heads * total);
      };
    }
    all.add(map_of_head(inputs, shape, one, of_head));
  }
  return std::move(all).result(request);
}

IndexRange cell_range(const IndexRange& all, std::int64_t i, std::int64_t cells) {
  return {all.begin + cell_begin(i, all.size(), cells),
          all.begin + cell_begin(i + 1, all.size(), cells)};
}

}  // namespace
}  // namespace engine

IndexRange MapCells::queries_of(std::int64_t row) const {
  return engine::cell_range(queries, row, rows());
}

IndexRange MapCells::keys_of(std::int64_t column) const {
  return engine::cell_range(keys, column, columns());
}

AttentionMap attention_map(const WeightInputs& inputs, const MapRequest& request,
                           const AttentionOptions& options) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  if (inputs.lse.defined()) engine::check_lse(problem, inputs.lse);
  engine::check_request(problem.shape, request);
  AttentionOptions own = options;
  own.execution.workspace = {};
  return request.heads ? engine::map_of_heads(inputs, problem.shape, request, own)
                       : engine::map_of_head(inputs, problem.shape, request, own);
}

}  // namespace fovea
