// SPDX-License-Identifier: Apache-2.0
//
// Stop requests: each kind of pass ends early, and works again afterwards.

#include "fovea/nn/stop.h"

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/nn/general_attention.h"
#include "fovea/nn/gru.h"
#include "fovea/nn/layer_norm.h"
#include "fovea/nn/linear.h"
#include "fovea/nn/multi_head_attention.h"
#include "fovea/random.h"

#include "support/random_problem.h"

namespace fovea::nn {
namespace {

TEST(NnStopScope, EndsPasses) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Model model(1, dtype);
    Linear linear(model.scope("linear"), 8, 8);
    LayerNorm norm(model.scope("norm"), 8);
    MultiHeadAttention heads(model.scope("heads"), {.width = 8, .heads = 2});
    GeneralAttention general(model.scope("general"), 8, 8);
    Gru gru(model.scope("gru"), 8, 8);
    const Tensor x = convert(RandomState(1).randn({2, 5, 8}), dtype);
    const std::vector<std::function<TensorView()>> passes = {
        [&] { return linear.forward(x); },     [&] { return linear.backward(x); },
        [&] { return norm.forward(x); },       [&] { return norm.backward(x); },
        [&] { return heads.forward(x); },      [&] { return heads.backward(x); },
        [&] { return general.forward(x, x); }, [&] { return general.backward(x).query; },
        [&] { return gru.forward(x); },        [&] { return gru.backward(x).x; },
    };
    for (const auto& pass : passes) {
      const Tensor expected(pass());
      std::stop_source source;
      {
        const StopScope scope(source.get_token());
        EXPECT_EQ(test::max_difference(pass(), expected), 0.0);
        source.request_stop();
        EXPECT_THROW(pass(), Stopped);
        {
          const StopScope inner{std::stop_token()};
          EXPECT_EQ(test::max_difference(pass(), expected), 0.0);
        }
        EXPECT_THROW(pass(), Stopped);
      }
      // The token of an earlier pass has no effect.
      EXPECT_EQ(test::max_difference(pass(), expected), 0.0);
    }
    std::stop_source source;
    source.request_stop();
    const StopScope scope(source.get_token());
    EXPECT_THROW(heads.weights(), Stopped);
  }
}

}  // namespace
}  // namespace fovea::nn
