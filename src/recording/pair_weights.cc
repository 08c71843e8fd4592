// SPDX-License-Identifier: Apache-2.0
//
// Single weights (pair_weights.h): the product of query and key in float32, everything else as in
// the reference, in float64.

#include "recording/pair_weights.h"

#include <cmath>
#include <limits>

#include "problem/broadcast.h"
#include "recording/row_kernels.h"

namespace fovea::recording {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::vector<float> rows_of_head(const TensorView& tensor, std::int64_t batch, std::int64_t head) {
  const Tensor rows = convert(tensor[batch][head], DType::kFloat32);
  const std::span<const float> numbers = rows.span<float>();
  return {numbers.begin(), numbers.end()};
}

}  // namespace

PairWeights::PairWeights(const RecordedAttention& attention, std::int64_t batch, std::int64_t head)
    : attention_(attention),
      shape_(attention.shape()),
      origin_{
          .batch = batch, .head = head, .offset = query_offset(attention.options, shape_, batch)},
      head_dim_(attention.query->extent(3)) {
  const ScoreOptions& options = attention.options.score;
  // The default is 1 if head_dim is 0 (ScoreOptions::scale).
  if (options.scale) {
    scale_ = *options.scale;
  } else if (head_dim_ > 0) {
    scale_ = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  }
  if (options.alibi) {
    const std::vector<double>& slopes = options.alibi->slopes;
    slope_ = slopes.empty() ? default_alibi_slope(head, shape_.q_heads)
                            : slopes[static_cast<std::size_t>(head)];
  }
  query_ = rows_of_head(attention.query, batch, head);
  key_ = rows_of_head(attention.key, batch, head / (shape_.q_heads / shape_.kv_heads));
}

double PairWeights::score(const ScorePosition& at) const {
  const ScoreOptions& options = attention_.options.score;
  double score =
      scale_ * static_cast<double>(dot_product(query_.data() + at.query * head_dim_,
                                               key_.data() + at.key * head_dim_, head_dim_));
  if (options.softcap > 0.0) score = options.softcap * std::tanh(score / options.softcap);
  if (options.custom.one != nullptr) {
    score = options.custom.one(options.custom.state.get(), score, at);
  }
  if (score == kHidden) return score;
  const std::int64_t distance = at.key - (at.query + at.offset);
  if (options.bias.defined()) {
    const double bias = broadcast_value(options.bias, at);
    if (bias == kHidden) return bias;
    score += bias;
  }
  if (options.alibi) score -= slope_ * static_cast<double>(std::abs(distance));
  if (options.relative) {
    const std::int64_t bucket = relative_bucket(distance, *options.relative);
    const double bias = options.relative->table->value({bucket, at.head});
    if (bias == kHidden) return bias;
    score += bias;
  }
  return score;
}

double PairWeights::sum(std::int64_t query, std::span<const std::int64_t> keys) const {
  ScorePosition at = origin_;
  at.query = query;
  const Mask& mask = attention_.options.mask;
  const KeyRange range = mask.key_range(at, shape_.kv_len);
  const double lse = attention_.lse->value({at.batch, at.head, query});
  double sum = 0.0;
  for (const std::int64_t key : keys) {
    at.key = key;
    if (key < range.begin || key >= range.end || (!range.exact && !mask.visible(at))) continue;
    const double one = score(at);
    // Hidden keys have weight 0 even if the row's lse is NaN or -inf.
    if (one != kHidden) sum += std::exp(one - lse);
  }
  return sum;
}

}  // namespace fovea::recording
