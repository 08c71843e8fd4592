// SPDX-License-Identifier: Apache-2.0
//
// The meaning of AttentionOptions where it is more than a number: slopes, buckets, broadcasting,
// alignment; and the checks of options against a problem.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fovea/attention_options.h"
#include "fovea/error.h"

#include "core/broadcast.h"

namespace fovea {
namespace {

std::vector<double> power_of_two_slopes(std::int64_t heads) {
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < heads; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads)));
  }
  return slopes;
}

constexpr std::int64_t kMaxOffset = std::int64_t{1} << 40;  // positions stay far from overflow

void validate_float(const TensorView& tensor, const char* name) {
  if (tensor.dtype() != DType::kFloat32 && tensor.dtype() != DType::kFloat64) {
    throw InvalidArgument(
        fmt::format("{}: expected float32 or float64, got {}", name, dtype_name(tensor.dtype())));
  }
}

void validate_per_head(const std::vector<double>& values, const char* name, std::int64_t q_heads) {
  if (static_cast<std::int64_t>(values.size()) != q_heads) {
    throw InvalidArgument(fmt::format("{}: expected one number per query head ({}), got {}", name,
                                      q_heads, values.size()));
  }
  for (const double value : values) {
    // A sink of -inf is no sink; what is infinitely large or nan leaves no weight a number.
    if (std::isnan(value) || value == HUGE_VAL) {
      throw InvalidArgument(
          fmt::format("{}: expected numbers, got {}", name, std::isnan(value) ? "nan" : "inf"));
    }
  }
}

void validate_relative(const RelativeTable& relative, std::int64_t q_heads) {
  const TensorView& table = relative.table;
  // Half of the buckets (a quarter, when both directions have their own) are for exact distances.
  const std::int64_t least = relative.bidirectional ? 4 : 2;
  if (!table.defined() || table.rank() != 2 || table.extent(1) != q_heads ||
      table.extent(0) < least) {
    throw InvalidArgument(
        fmt::format("relative: expected a table [buckets, q_heads] = [{} or more, {}], got {}",
                    least, q_heads, table.defined() ? to_string(table.shape()) : "nothing"));
  }
  validate_float(table, "relative");
  const std::int64_t exact = table.extent(0) / least;
  if (relative.max_distance <= exact) {
    throw InvalidArgument(
        fmt::format("relative: expected max_distance above {} (the distances with a bucket of "
                    "their own), got {}",
                    exact, relative.max_distance));
  }
}

}  // namespace

std::vector<double> default_alibi_slopes(std::int64_t heads) {
  if (heads <= 0) return {};
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<double> slopes = power_of_two_slopes(power);
  const std::vector<double> finer = power_of_two_slopes(2 * power);
  for (std::int64_t h = 0; h < heads - power; ++h) {
    slopes.push_back(finer[static_cast<std::size_t>(2 * h)]);
  }
  return slopes;
}

std::int64_t relative_bucket(std::int64_t relative_position, const RelativeTable& relative) {
  std::int64_t buckets = relative.table->extent(0);
  std::int64_t first = 0;
  std::int64_t distance = 0;
  if (relative.bidirectional) {
    buckets /= 2;
    if (relative_position > 0) first = buckets;
    distance = std::abs(relative_position);
  } else {
    distance = std::max<std::int64_t>(-relative_position, 0);
  }
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  // In float32, as T5 computes it: the boundaries between buckets depend on the rounding.
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(relative.max_distance) /
                                                  static_cast<double>(exact)));
  const auto step = static_cast<std::int64_t>(ratio * static_cast<float>(buckets - exact));
  return first + std::min(exact + step, buckets - 1);
}

void validate(const AttentionOptions& options, const ProblemShape& shape) {
  const ScoreOptions& score = options.score;
  if (score.scale && !std::isfinite(*score.scale)) {
    throw InvalidArgument(fmt::format("scale: expected a finite number, got {}", *score.scale));
  }
  if (!(score.softcap >= 0.0) || std::isinf(score.softcap)) {
    throw InvalidArgument(
        fmt::format("softcap: expected a finite number of 0 (off) or more, got {}", score.softcap));
  }
  if (score.bias.defined()) {
    validate_broadcast(score.bias, shape, "bias");
    validate_float(score.bias, "bias");
  }
  if (score.alibi && !score.alibi->slopes.empty()) {
    validate_per_head(score.alibi->slopes, "alibi", shape.q_heads);
    for (const double slope : score.alibi->slopes) {
      if (std::isinf(slope)) throw InvalidArgument("alibi: expected finite slopes, got -inf");
    }
  }
  if (score.relative) validate_relative(*score.relative, shape.q_heads);
  if (!score.sinks.empty()) validate_per_head(score.sinks, "sinks", shape.q_heads);
  const auto offsets = static_cast<std::int64_t>(options.alignment.values().size());
  if (!options.alignment.is_bottom_right() && offsets != 1 && offsets != shape.batch) {
    throw InvalidArgument(fmt::format(
        "alignment: expected 1 offset or one per batch item ({}), got {}", shape.batch, offsets));
  }
  for (const std::int64_t offset : options.alignment.values()) {
    if (offset < -kMaxOffset || offset > kMaxOffset) {
      throw InvalidArgument(fmt::format("alignment: expected offsets from {} to {}, got {}",
                                        -kMaxOffset, kMaxOffset, offset));
    }
  }
  options.mask.validate(shape);
}

std::int64_t query_offset(const AttentionOptions& options, const ProblemShape& shape,
                          std::int64_t batch) {
  if (options.alignment.is_bottom_right()) {
    return options.mask.key_length(batch).value_or(shape.kv_len) - shape.q_len;
  }
  const auto& offsets = options.alignment.values();
  return offsets.size() == 1 ? offsets[0] : offsets[static_cast<std::size_t>(batch)];
}

double broadcast_value(const TensorView& tensor, const ScorePosition& at) {
  const Shape full{at.batch, at.head, at.query, at.key};
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
    throw InvalidArgument(fmt::format(
        "{}: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = {}, got {}",
        name, to_string(full), to_string(tensor.shape())));
  }
}

}  // namespace fovea
