// SPDX-License-Identifier: Apache-2.0
//
// The statistics of heads (head_statistics.h).

#include "recording/head_statistics.h"

#include <array>
#include <cstddef>

namespace fovea::recording {

std::vector<engine::HeadTold> tell_heads(const WeightInputs& inputs,
                                         const AttentionOptions& options, std::int64_t blocks) {
  return tell_heads(inputs.query, blocks,
                    [&](const HeadSummary& summary) { attention_heads(inputs, options, summary); });
}

std::vector<engine::HeadTold> tell_heads(const TensorView& query, std::int64_t blocks,
                                         const std::function<void(const HeadSummary&)>& compute) {
  const std::int64_t batch = query.extent(0);
  const std::int64_t heads = query.extent(1);
  const DType type = query.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  std::array<Tensor, kHeadNumbers.size()> found;
  HeadSummary summary{.blocks = blocks};
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = Tensor(type, {batch, heads});
    summary.*kHeadNumbers[i].output = found[i];
  }
  compute(summary);
  std::vector<engine::HeadTold> all;
  for (std::int64_t item = 0; item < batch; ++item) {
    for (std::int64_t head = 0; head < heads; ++head) {
      engine::HeadTold& told = all.emplace_back();
      told.batch = item;
      told.head = head;
      for (std::size_t i = 0; i < found.size(); ++i) {
        told.numbers[i] = found[i].value({item, head}) + 0.0;  // no -0
      }
    }
  }
  return all;
}

void add_token_scores(const TokenScores& scores, std::int64_t head, engine::HeadTold& told) {
  told.duplicate = scores.duplicate.value({told.batch, head});
  told.induction = scores.induction.value({told.batch, head});
  told.repeated = scores.repeated.at<std::int64_t>({told.batch});
}

}  // namespace fovea::recording
