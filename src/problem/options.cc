// SPDX-License-Identifier: Apache-2.0
//
// AttentionOptions: ALiBi slopes, relative buckets, broadcasting and alignment, and the validation
// of options against a problem.

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "fovea/attention_options.h"
#include "fovea/error.h"

#include "core/fail.h"
#include "problem/broadcast.h"

namespace fovea {
namespace {

constexpr std::int64_t kMaxOffset = std::int64_t{1} << 40;  // so that positions cannot overflow
constexpr std::int64_t kMaxWord = std::numeric_limits<std::uint32_t>::max();

void validate_float(const TensorView& tensor, const char* name) {
  if (!is_float(tensor.dtype())) {
    fail_argument(name, "expected float32, float64, float16 or bfloat16, got {}",
                  dtype_name(tensor.dtype()));
  }
}

void validate_per_head(const std::vector<double>& values, const char* name, std::int64_t q_heads) {
  if (static_cast<std::int64_t>(values.size()) != q_heads) {
    fail_argument(name, "expected one number per query head ({}), got {}", q_heads, values.size());
  }
  for (const double value : values) {
    // A sink of -inf has no effect and is accepted. +inf or NaN would make every weight NaN.
    if (std::isnan(value) || value == HUGE_VAL) {
      fail_argument(name, "expected numbers, got {}", std::isnan(value) ? "nan" : "inf");
    }
  }
}

void validate_relative(const RelativeTable& relative, std::int64_t q_heads) {
  const TensorView& table = relative.table;
  // Half of the buckets are for exact distances. If bidirectional, each direction gets half of
  // these.
  const std::int64_t least = relative.bidirectional ? 4 : 2;
  if (!table.defined() || table.rank() != 2 || table.extent(1) != q_heads ||
      table.extent(0) < least) {
    fail_argument("relative", "expected a table [buckets, q_heads] = [{} or more, {}], got {}",
                  least, q_heads, table.defined() ? to_string(table.shape()) : "nothing");
  }
  validate_float(table, "relative");
  if (table.data() == nullptr) {
    fail_argument("relative", "expected data for shape {}, got a null pointer",
                  to_string(table.shape()));
  }
  const std::int64_t exact = table.extent(0) / least;
  if (relative.max_distance <= exact) {
    fail_argument("relative",
                  "expected max_distance above {} (the distances with a bucket of "
                  "their own), got {}",
                  exact, relative.max_distance);
  }
}

/// Dropout counters (problem/dropout.h) have 32-bit words, and four keys share one counter.
void validate_dropout(const Dropout& dropout, const ProblemShape& shape) {
  if (!(dropout.probability >= 0.0 && dropout.probability < 1.0)) {
    fail_argument("dropout", "expected a probability from 0 up to, but not, 1, got {}",
                  dropout.probability);
  }
  if (dropout.probability == 0.0) return;
  const auto require_fewer = [](const char* name, std::int64_t most, std::int64_t first,
                                std::int64_t length) {
    if (first < 0) fail_argument("dropout", "expected first positions of 0 or more, got {}", first);
    if (length <= most && first <= most - length) return;
    fail_argument("dropout", "expected {} of at most {}, got {}", name,
                  most - std::min(first, most), length);
  };
  require_fewer("q_len", kMaxWord, dropout.first_query, shape.q_len);
  require_fewer("kv_len", kMaxWord * 4 + 3, dropout.first_key, shape.kv_len);
  if (shape.items() > 0 && shape.q_heads > kMaxWord / shape.items()) {
    fail_argument("dropout", "expected q_heads * {} of at most {}, got {} * {}",
                  shape.sequences > 0 ? "sequences" : "batch", kMaxWord, shape.q_heads,
                  shape.items());
  }
}

/// Checks query_starts or key_starts.
void validate_starts(const std::vector<std::int64_t>& starts, const char* name,
                     const char* length_name, std::int64_t length) {
  if (starts.front() != 0 || starts.back() != length) {
    fail_argument("sequences", "expected {} from 0 to {} = {}, got from {} to {}", name,
                  length_name, length, starts.front(), starts.back());
  }
  const auto descent = std::adjacent_find(starts.begin(), starts.end(), std::greater<>());
  if (descent != starts.end()) {
    fail_argument("sequences", "expected {} that never decrease, got {} after {}", name, descent[1],
                  descent[0]);
  }
}

void validate_sequences(const PackedSequences& sequences, const ProblemShape& shape) {
  const std::size_t starts = sequences.query_starts.size();
  if (starts != sequences.key_starts.size()) {
    fail_argument("sequences", "expected as many query_starts as key_starts, got {} and {}", starts,
                  sequences.key_starts.size());
  }
  if (starts == 1) {
    fail_argument("sequences",
                  "expected 2 starts or more, one more than there are sequences, got 1");
  }
  if (shape.sequences != sequences.count()) {
    fail_argument("sequences",
                  "expected starts of as many sequences as the problem has ({}), got "
                  "those of {}",
                  shape.sequences, sequences.count());
  }
  if (starts == 0) return;
  if (shape.batch != 1) {
    fail_argument("sequences", "expected tensors of batch 1 to be packed into, got batch {}",
                  shape.batch);
  }
  validate_starts(sequences.query_starts, "query_starts", "q_len", shape.q_len);
  validate_starts(sequences.key_starts, "key_starts", "kv_len", shape.kv_len);
}

}  // namespace

double default_alibi_slope(std::int64_t head, std::int64_t heads) {
  if (head < 0 || head >= heads) {
    fail_argument("head", "expected 0 or more and less than heads = {}, got {}", heads, head);
  }
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto slope = [](std::int64_t number, std::int64_t of) {
    return std::exp2(-8.0 * static_cast<double>(number) / static_cast<double>(of));
  };
  return head < power ? slope(head + 1, power) : slope(2 * (head - power) + 1, 2 * power);
}

std::vector<double> default_alibi_slopes(std::int64_t heads) {
  if (heads < 0) fail_argument("heads", "expected 0 or more, got {}", heads);
  std::vector<double> slopes;
  for (std::int64_t head = 0; head < heads; ++head) {
    slopes.push_back(default_alibi_slope(head, heads));
  }
  return slopes;
}

std::int64_t relative_bucket(std::int64_t relative_position, const RelativeTable& relative) {
  // Negating the smallest integer would overflow.
  const std::int64_t position =
      std::max(relative_position, -std::numeric_limits<std::int64_t>::max());
  std::int64_t buckets = relative.table->extent(0);
  std::int64_t first = 0;
  std::int64_t distance = 0;
  if (relative.bidirectional) {
    buckets /= 2;
    if (position > 0) first = buckets;
    distance = std::abs(position);
  } else {
    distance = std::max<std::int64_t>(-position, 0);
  }
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  // Computed in float32, as in T5, because rounding affects the boundaries between buckets.
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(relative.max_distance) /
                                                  static_cast<double>(exact)));
  const auto step = static_cast<std::int64_t>(ratio * static_cast<float>(buckets - exact));
  return first + std::min(exact + step, buckets - 1);
}

void validate(const AttentionOptions& options, const ProblemShape& shape) {
  validate_sequences(options.sequences, shape);
  const ScoreOptions& score = options.score;
  if (score.scale && !std::isfinite(*score.scale)) {
    fail_argument("scale", "expected a finite number, got {}", *score.scale);
  }
  if (!(score.softcap >= 0.0) || std::isinf(score.softcap)) {
    fail_argument("softcap", "expected a finite number of 0 (off) or more, got {}", score.softcap);
  }
  if ((score.custom.tile == nullptr) != (score.custom.one == nullptr)) {
    fail_argument("custom",
                  "expected a function for tiles and one for single scores, got one of them");
  }
  if ((score.custom.tile_derivative == nullptr) != (score.custom.one_derivative == nullptr)) {
    fail_argument("custom",
                  "expected a derivative for tiles and one for single scores, got one of them");
  }
  if (score.bias.defined()) {
    validate_broadcast(score.bias, shape, "bias");
    validate_float(score.bias, "bias");
  }
  if (score.alibi && !score.alibi->slopes.empty()) {
    validate_per_head(score.alibi->slopes, "alibi", shape.q_heads);
    for (const double slope : score.alibi->slopes) {
      if (std::isinf(slope)) fail_argument("alibi", "expected finite slopes, got -inf");
    }
  }
  if (score.relative) validate_relative(*score.relative, shape.q_heads);
  if (!score.sinks.empty()) validate_per_head(score.sinks, "sinks", shape.q_heads);
  validate_dropout(options.dropout, shape);
  const auto offsets = static_cast<std::int64_t>(options.alignment.values().size());
  if (!options.alignment.is_bottom_right() && offsets != 1 && offsets != shape.items()) {
    fail_argument("alignment", "expected 1 offset or one per {} ({}), got {}",
                  shape.sequences > 0 ? "sequence" : "batch item", shape.items(), offsets);
  }
  for (const std::int64_t offset : options.alignment.values()) {
    if (offset < -kMaxOffset || offset > kMaxOffset) {
      fail_argument("alignment", "expected offsets from {} to {}, got {}", -kMaxOffset, kMaxOffset,
                    offset);
    }
  }
  options.mask.validate(shape, options.sequences.key_starts);
}

SequenceSpan sequence_span(const AttentionOptions& options, const ProblemShape& shape,
                           std::int64_t item) {
  if (shape.sequences == 0) return {item, 0, shape.q_len, 0, shape.kv_len};
  const std::int64_t* const query = &options.sequences.query_starts[static_cast<std::size_t>(item)];
  const std::int64_t* const key = &options.sequences.key_starts[static_cast<std::size_t>(item)];
  return {0, query[0], query[1] - query[0], key[0], key[1] - key[0]};
}

std::int64_t query_offset(const AttentionOptions& options, const ProblemShape& shape,
                          std::int64_t item) {
  if (options.alignment.is_bottom_right()) {
    const SequenceSpan span = sequence_span(options, shape, item);
    if (options.mask.allows_all()) return span.kv_len - span.q_len;
    // A length shared by all sequences may exceed the key count of this one.
    const std::int64_t keys = options.mask.key_length(item).value_or(span.kv_len);
    return std::min(keys, span.kv_len) - span.q_len;
  }
  const auto& offsets = options.alignment.values();
  return offsets.size() == 1 ? offsets[0] : offsets[static_cast<std::size_t>(item)];
}

std::array<std::int64_t, 4> broadcast_strides(const TensorView& tensor) {
  std::array<std::int64_t, 4> strides{};
  const int missing = static_cast<int>(strides.size()) - tensor.rank();
  for (int dim = 0; missing >= 0 && dim < tensor.rank(); ++dim) {
    const bool repeats = tensor.extent(dim) == 1;
    strides[static_cast<std::size_t>(dim + missing)] = repeats ? 0 : tensor.strides()[dim];
  }
  return strides;
}

double broadcast_value(const TensorView& tensor, const ScorePosition& at) {
  const Shape full{at.batch, at.head, at.query_start + at.query, at.key_start + at.key};
  Index index = tensor.shape();
  const int missing = full.rank() - tensor.rank();
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    index[dim] = tensor.extent(dim) == 1 ? 0 : full[dim + missing];
  }
  return tensor.value(index);
}

void validate_broadcast(const TensorView& tensor, const ProblemShape& shape,
                        const std::string& name) {
  const Shape full{shape.batch, shape.q_heads, shape.q_len, shape.kv_len};
  const int missing = full.rank() - tensor.rank();
  bool fits = tensor.defined() && missing >= 0;
  for (int dim = 0; fits && dim < tensor.rank(); ++dim) {
    fits = tensor.extent(dim) == 1 || tensor.extent(dim) == full[dim + missing];
  }
  if (!fits) {
    fail_argument(
        name, "expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = {}, got {}",
        to_string(full), to_string(tensor.shape()));
  }
  if (tensor.data() == nullptr && tensor.size() > 0) {
    fail_argument(name, "expected data for shape {}, got a null pointer",
                  to_string(tensor.shape()));
  }
}

}  // namespace fovea
