// SPDX-License-Identifier: Apache-2.0
//
// Single weights (pair_weights.h): the product of query and key in float32, everything else as in
// the reference, in float64.

#include "recording/pair_weights.h"

#include <cmath>
#include <limits>

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
      head_dim_(attention.query->extent(3)),
      score_(attention.options.score, shape_, head_dim_) {
  query_ = rows_of_head(attention.query, batch, head);
  key_ = rows_of_head(attention.key, batch, head / (shape_.q_heads / shape_.kv_heads));
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
    const double one =
        score_(static_cast<double>(dot_product(query_.data() + query * head_dim_,
                                               key_.data() + key * head_dim_, head_dim_)),
               at);
    // Hidden keys have weight 0 even if the row's lse is NaN or -inf.
    if (one != kHidden) sum += std::exp(one - lse);
  }
  return sum;
}

}  // namespace fovea::recording
