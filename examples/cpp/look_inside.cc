// SPDX-License-Identifier: Apache-2.0
//
// Prints every intermediate array of attention over four words of three numbers, with a causal
// mask. Build it against an installed Fovea:
//
//   c++ -std=c++20 look_inside.cc $(pkg-config --cflags --libs fovea) -o look_inside

#include <cstdio>

#include "fovea/array_format.h"
#include "fovea/error.h"
#include "fovea/reference.h"

int main() {
  // Four words. Without trained projections, each embedding is the query, key and value. The
  // reference takes [batch, heads, length, dim].
  const fovea::Tensor words =
      fovea::Tensor::matrix({{1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 0, 1}}).reshaped({1, 1, 4, 3});

  const fovea::AttentionOptions options{.mask = fovea::causal()};
  try {
    const fovea::reference::Steps steps =
        fovea::reference::attention_steps({words, words, words}, options);

    const fovea::ArrayFormat four_decimals{.precision = 4, .mode = fovea::FloatMode::kFixed};
    const auto print = [&](const char* name, const fovea::Tensor& values) {
      // The first head of the first batch item.
      std::printf("%s\n%s\n\n", name,
                  fovea::format_array(values.view()[0][0], four_decimals).c_str());
    };
    print("scores: query . key", steps.scores);
    print("masked: no word sees the future", steps.masked_scores);
    print("weights: each row adds up to one", steps.weights);
    print("context: the values, mixed by their weights", steps.context);
  } catch (const fovea::InvalidArgument& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
