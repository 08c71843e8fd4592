// SPDX-License-Identifier: Apache-2.0
//
// Parts of problems (part.h). part_of() for masks is in mask.cc.

#include "problem/part.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/fail.h"

namespace fovea {
namespace {

void require_index(const char* name, std::int64_t index, const char* count_name,
                   std::int64_t count) {
  if (index >= 0 && index < count) return;
  fail_argument(name, "expected 0 or more and less than {} = {}, got {}", count_name, count, index);
}

PartSpan span_of(const AttentionOptions& options, const ProblemShape& shape,
                 const PartPlace& place) {
  require_index("part.item", place.item, shape.sequences > 0 ? "sequences" : "batch",
                shape.items());
  require_index("part.head", place.head, "q_heads", shape.q_heads);
  const SequenceSpan item = sequence_span(options, shape, place.item);
  if (place.first_query < 0 || place.queries < 0 || place.first_query > item.q_len ||
      place.queries > item.q_len - place.first_query) {
    fail_argument("part.queries", "expected a range within q_len = {}, got {} from {} on",
                  item.q_len, place.queries, place.first_query);
  }
  return {.item = place.item,
          .batch = item.batch,
          .head = place.head,
          .kv_head = place.head / (shape.q_heads / shape.kv_heads),
          .first_query = item.query_start + place.first_query,
          .queries = place.queries,
          .first_key = item.key_start,
          .keys = item.kv_len};
}

/// A custom score function, and the position of the part's first score in the whole problem.
struct CustomPart {
  CustomScore whole;
  ScorePosition origin;

  ScorePosition moved(ScorePosition at) const {
    at.batch += origin.batch;
    at.head += origin.head;
    at.query += origin.query;
    at.key += origin.key;
    at.offset += origin.key - origin.query;
    at.query_start = origin.query_start;
    at.key_start = origin.key_start;
    return at;
  }
  ScoreTile moved(ScoreTile tile) const {
    tile.first = moved(tile.first);
    return tile;
  }
  static const CustomPart& of(const void* state) { return *static_cast<const CustomPart*>(state); }
};

CustomScore part_of(const CustomScore& whole, const ScorePosition& origin) {
  CustomScore part;
  if (whole.tile == nullptr) return part;
  part.state = std::make_shared<const CustomPart>(CustomPart{whole, origin});
  part.tile = [](const void* state, const ScoreTile& tile) {
    const CustomPart& own = CustomPart::of(state);
    own.whole.tile(own.whole.state.get(), own.moved(tile));
  };
  part.one = [](const void* state, double score, const ScorePosition& at) {
    const CustomPart& own = CustomPart::of(state);
    return own.whole.one(own.whole.state.get(), score, own.moved(at));
  };
  if (whole.tile_derivative == nullptr) return part;
  part.tile_derivative = [](const void* state, const ScoreTile& tile) {
    const CustomPart& own = CustomPart::of(state);
    own.whole.tile_derivative(own.whole.state.get(), own.moved(tile));
  };
  part.one_derivative = [](const void* state, double score, const ScorePosition& at) {
    const CustomPart& own = CustomPart::of(state);
    return own.whole.one_derivative(own.whole.state.get(), score, own.moved(at));
  };
  return part;
}

ScoreOptions part_of(const ScoreOptions& whole, const ProblemShape& shape, const PartSpan& span,
                     const ScorePosition& origin) {
  ScoreOptions part = whole;
  part.custom = part_of(whole.custom, origin);
  part.bias = part_of(whole.bias, span);
  if (span.head == PartSpan::kAll) return part;
  const auto head = static_cast<std::size_t>(span.head);
  if (part.alibi) {
    const auto& slopes = whole.alibi->slopes;
    part.alibi->slopes = {slopes.empty() ? default_alibi_slope(span.head, shape.q_heads)
                                         : slopes[head]};
  }
  if (part.relative) {
    const TensorView& table = whole.relative->table;
    part.relative->table = TensorView(table.address({0, span.head}), table.dtype(),
                                      {table.extent(0), 1}, table.strides());
  }
  if (!part.sinks.empty()) part.sinks = {whole.sinks[head]};
  return part;
}

/// Returns `count` rows of one head of a tensor [batch, heads, length, dim], as [1, 1, count, dim].
TensorView rows_of(const TensorView& tensor, std::int64_t batch, std::int64_t head,
                   std::int64_t first, std::int64_t count) {
  const Shape shape = {1, 1, count, tensor.extent(3)};
  const bool empty = tensor.size() == 0 || count == 0;
  const void* const data = empty ? tensor.data() : tensor.address({batch, head, first, 0});
  // The two dimensions of extent 1 get the strides of a contiguous tensor.
  Strides strides = tensor.strides();
  for (const int dim : {1, 0}) strides[dim] = strides[dim + 1] * shape[dim + 1];
  return {data, tensor.dtype(), shape, strides};
}

}  // namespace

TensorRef part_of(const TensorRef& tensor, const PartSpan& part) {
  if (!tensor.defined()) return {};
  TensorView view = tensor.view();
  if (!part.all_items()) {
    if (view.rank() == 4) view = view[view.extent(0) == 1 ? 0 : part.batch];
    if (view.rank() == 3) view = view[view.extent(0) == 1 ? 0 : part.head];
  }
  Index first = view.shape();
  for (int dim = 0; dim < view.rank(); ++dim) first[dim] = 0;
  Shape shape = view.shape();
  const auto cut = [&](int dim, std::int64_t begin, std::int64_t count) {
    if (dim < 0) return;
    const bool repeats = view.extent(dim) == 1;
    first[dim] = repeats ? 0 : begin;
    if (!repeats) shape[dim] = count;
  };
  cut(view.rank() - 1, part.first_key, part.keys);
  cut(view.rank() - 2, part.first_query, part.queries);
  const bool empty = element_count(shape) == 0;
  return TensorView(empty ? view.data() : view.address(first), view.dtype(), shape, view.strides());
}

AttentionOptions part_of(const AttentionOptions& options, const ProblemShape& shape,
                         const PairRange& range) {
  if (options.sequences.count() > 0) {
    fail_argument("sequences", "expected none in a part with several heads, got {}",
                  options.sequences.count());
  }
  const auto require_range = [](const char* name, const char* length_name, std::int64_t length,
                                std::int64_t first, std::int64_t count) {
    if (first >= 0 && count >= 0 && first <= length && count <= length - first) return;
    fail_argument(name, "expected a range within {} = {}, got {} from {} on", length_name, length,
                  count, first);
  };
  require_range("part.queries", "q_len", shape.q_len, range.first_query, range.queries);
  require_range("part.keys", "kv_len", shape.kv_len, range.first_key, range.keys);
  const PartSpan span = {.item = PartSpan::kAll,
                         .batch = PartSpan::kAll,
                         .head = PartSpan::kAll,
                         .kv_head = PartSpan::kAll,
                         .first_query = range.first_query,
                         .queries = range.queries,
                         .first_key = range.first_key,
                         .keys = range.keys,
                         .skipped_keys = range.first_key};
  AttentionOptions part = options;
  part.mask = part_of(options.mask, span);
  part.score =
      part_of(options.score, shape, span, {.query = range.first_query, .key = range.first_key});
  std::vector<std::int64_t> offsets;
  for (std::int64_t item = 0; item < shape.batch; ++item) {
    offsets.push_back(query_offset(options, shape, item) + range.first_query - range.first_key);
  }
  part.alignment = Alignment::offsets(std::move(offsets));
  part.dropout.first_query += range.first_query;
  part.dropout.first_key += range.first_key;
  return part;
}

TensorView no_value(const TensorView& key) {
  Shape shape = key.shape();
  shape[key.rank() - 1] = 0;
  return {key.data(), key.dtype(), shape, key.strides()};
}

ProblemPart::ProblemPart(const AttentionOptions& options, const ProblemShape& shape,
                         const PartPlace& place)
    : span_(span_of(options, shape, place)) {
  if (options.dropout.probability > 0.0) {
    fail_argument("dropout", "expected none in a part of a problem, got {}",
                  options.dropout.probability);
  }
  const ScorePosition origin = {.batch = span_.item,
                                .head = span_.head,
                                .query = place.first_query,
                                .query_start = span_.first_query - place.first_query,
                                .key_start = span_.first_key};
  options_.mask = part_of(options.mask, span_);
  options_.score = part_of(options.score, shape, span_, origin);
  options_.alignment =
      Alignment::offset(query_offset(options, shape, place.item) + place.first_query);
  options_.execution = options.execution;
}

ProblemShape ProblemPart::shape() const { return {1, 1, 1, span_.queries, span_.keys}; }

TensorView ProblemPart::queries_of(const TensorView& tensor) const {
  return rows_of(tensor, span_.batch, span_.head, span_.first_query, span_.queries);
}

TensorView ProblemPart::keys_of(const TensorView& tensor) const {
  return rows_of(tensor, span_.batch, span_.kv_head, span_.first_key, span_.keys);
}

TensorView ProblemPart::numbers_of(const TensorView& tensor) const {
  const std::int64_t stride = tensor.strides()[2];
  const bool empty = tensor.size() == 0 || span_.queries == 0;
  return {empty ? tensor.data() : tensor.address({span_.batch, span_.head, span_.first_query}),
          tensor.dtype(),
          {1, 1, span_.queries},
          {stride * span_.queries, stride * span_.queries, stride}};
}

}  // namespace fovea
