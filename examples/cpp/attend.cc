// SPDX-License-Identifier: Apache-2.0
//
// Attention with the fast engine, checked against the reference. Four query heads share two kv
// heads, each position sees itself and the 1023 positions before it, and scores are capped at 30.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>

#include "fovea/attention.h"
#include "fovea/random.h"
#include "fovea/reference.h"

int main() {
  fovea::RandomState random(42);
  const auto numbers = [&](const fovea::Shape& shape) {
    return fovea::convert(random.randn(shape), fovea::DType::kFloat32);
  };
  // [batch, heads, length, dim]
  const fovea::Tensor query = numbers({1, 4, 2048, 64});
  const fovea::Tensor key = numbers({1, 2, 2048, 64});
  const fovea::Tensor value = numbers({1, 2, 2048, 64});
  fovea::Tensor context(fovea::DType::kFloat32, {1, 4, 2048, 64});
  fovea::Tensor lse(fovea::DType::kFloat32, {1, 4, 2048});

  const fovea::AttentionOptions options = {.mask = fovea::causal() & fovea::window(1023, 0),
                                           .score = {.softcap = 30}};
  try {
    fovea::attention_forward(query, key, value, options, {.context = context, .lse = lse});

    // The reference can compute single rows: here the last query of the last head.
    const fovea::reference::Rows exact = fovea::reference::attention_rows(
        {query, key, value}, options, {{{.batch = 0, .head = 3, .query = 2047}}});
    double difference = std::abs(lse.value({0, 3, 2047}) - exact.lse.value({0}));
    for (int c = 0; c < 64; ++c) {
      difference = std::max(difference,
                            std::abs(context.value({0, 3, 2047, c}) - exact.context.value({0, c})));
    }

    std::printf("context of the last query:");
    for (int c = 0; c < 4; ++c) std::printf(" %.4f", context.value({0, 3, 2047, c}));
    std::printf(" ...\nlse: %.4f\n", lse.value({0, 3, 2047}));
    std::printf("%s 0.00001 of the reference\n", difference <= 1e-5 ? "within" : "NOT within");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
