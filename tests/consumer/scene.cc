// SPDX-License-Identifier: Apache-2.0
//
// A program outside Fovea that also uses scenes: it links fovea::scene and prints "ok".

#include "fovea/scene.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "fovea/array_format.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/info.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

int main() {
  fovea::Tensor scores = fovea::Tensor::matrix({{1.0, 2.0}, {3.0, 4.0}});
  if (fovea::to_string(scores.shape()) != "[2, 2]" || scores.at<double>({1, 0}) != 3.0) return 1;
  try {
    fovea::Tensor::matrix({{1.0, 2.0}, {3.0}});
    return 1;
  } catch (const fovea::InvalidArgument&) {
    // Exceptions thrown across the library boundary keep their type.
  }

  // Two keys, the second one masked: the first gets all the weight.
  const fovea::Tensor words = fovea::RandomState(42).randn({1, 1, 2, 3});
  const auto steps =
      fovea::reference::attention_steps({words, words, words}, {.mask = fovea::prefix(1)});
  if (fovea::format_array(steps.weights.view()[0][0]) != "[[1. 0.]\n [1. 0.]]") return 1;

  // The engine with two threads: one batch item of eight heads.
  const fovea::Tensor heads =
      fovea::convert(fovea::RandomState(42).randn({1, 8, 300, 16}), fovea::DType::kFloat32);
  const fovea::AttentionOptions options = {.mask = fovea::causal() & fovea::window(99, 0),
                                           .execution = {.threads = 2}};
  fovea::Tensor context(fovea::DType::kFloat32, heads.shape());
  fovea::attention_forward(heads, heads, heads, options, {.context = context});
  const auto row = fovea::reference::attention_rows({heads, heads, heads}, options,
                                                    {{{.head = 7, .query = 299}}});
  for (int c = 0; c < 16; ++c) {
    const double difference = context.value({0, 7, 299, c}) - row.context.value({0, c});
    if (!(std::abs(difference) < 1e-5)) return 1;
  }

  const auto trace = fovea::scene::trace_scene(fovea::scene::scene_from_sentence("two words"));
  if (fovea::scene::to_text(trace).find("two words") == std::string::npos) return 1;
  if (fovea::scene::to_html(trace).find("</html>") == std::string::npos) return 1;
  if (fovea::build_info().version.empty()) return 1;
  std::puts("ok");
}
