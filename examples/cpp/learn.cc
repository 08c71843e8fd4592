// SPDX-License-Identifier: Apache-2.0
//
// Trains a model with one transformer layer to reverse sequences of six symbols.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "fovea/nn/cross_entropy.h"
#include "fovea/nn/embedding.h"
#include "fovea/nn/optimizer.h"
#include "fovea/nn/transformer.h"
#include "fovea/random.h"

namespace nn = fovea::nn;

int main() {
  constexpr std::int64_t kBatch = 32, kLength = 6, kSymbols = 6, kWidth = 32;
  nn::Model model(1);
  nn::Embedding embedding(model.scope("embedding"), kSymbols, kWidth);
  nn::Positions positions(model.scope("positions"), nn::PositionKind::kLearned, kLength, kWidth);
  nn::TransformerEncoderLayer block(
      model.scope("block"),
      {.width = kWidth, .heads = 4, .inner = 64, .norm = nn::NormPlace::kBefore});
  nn::Linear output(model.scope("output"), kWidth, kSymbols);

  nn::CrossEntropy loss;
  nn::Adam adam(model.parameters());
  const nn::Schedule schedule{
      .peak = 1e-2, .kind = nn::Schedule::Kind::kCosine, .warmup = 10, .total = 300};
  fovea::RandomState random(1);
  for (int step = 0; step < 300; ++step) {
    const fovea::Tensor tokens = random.randint(0, kSymbols, {kBatch, kLength});
    fovea::Tensor targets = tokens;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      std::int64_t* const row = &targets.at<std::int64_t>({b, 0});
      std::reverse(row, row + kLength);
    }

    model.parameters().zero_gradients();
    model.train(static_cast<std::uint32_t>(step));
    const fovea::MutableTensorView x = embedding.forward(tokens);
    positions.forward(x);
    loss.forward(output.forward(block.forward(x)), targets);
    const fovea::MutableTensorView grad = block.backward(output.backward(loss.backward()));
    positions.backward(grad);
    embedding.backward(grad);

    nn::clip_gradients(model.parameters(), 1.0);
    adam.step(schedule.rate(step));
  }
  std::printf("right: %lld of %lld\n", static_cast<long long>(loss.correct()),
              static_cast<long long>(loss.counted()));
}
