// SPDX-License-Identifier: Apache-2.0
//
// A program outside Fovea that uses only attention: it links fovea::fovea, compares results with
// the reference, and prints "ok".

#include "fovea/attention.h"

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "fovea/error.h"
#include "fovea/info.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

namespace {

constexpr std::int64_t kHeads = 8, kLength = 300, kDim = 16;

bool near(double a, double b) { return std::abs(a - b) < 1e-5; }

}  // namespace

int main() {
  const fovea::Tensor heads = fovea::convert(
      fovea::RandomState(42).randn({1, kHeads, kLength, kDim}), fovea::DType::kFloat32);
  const fovea::AttentionOptions options = {.mask = fovea::causal() & fovea::window(99, 0),
                                           .execution = {.threads = 2}};
  const fovea::Tensor context = fovea::attention(heads, heads, heads, options);
  const auto row = fovea::reference::attention_rows({heads, heads, heads}, options,
                                                    {{{.head = 7, .query = kLength - 1}}});
  for (int c = 0; c < kDim; ++c) {
    if (!near(context.value({0, 7, kLength - 1, c}), row.context.value({0, c}))) return 1;
  }

  // One more query, computed by attention_decode and by the fused forward pass.
  const fovea::Tensor query =
      fovea::convert(fovea::RandomState(43).randn({1, kHeads, 1, kDim}), fovea::DType::kFloat32);
  fovea::Tensor decoded(fovea::DType::kFloat32, query.shape());
  fovea::attention_decode(query, heads, heads, options, {.context = decoded});
  const fovea::Tensor fused = fovea::attention(query, heads, heads, options);
  for (int c = 0; c < kDim; ++c) {
    if (!near(decoded.value({0, 7, 0, c}), fused.value({0, 7, 0, c}))) return 1;
  }

  try {
    fovea::attention(heads.view()[0], heads, heads);
    return 1;
  } catch (const fovea::InvalidArgument&) {
    // Exceptions thrown across the library boundary keep their type.
  }
  if (fovea::build_info().version.empty()) return 1;
  std::puts("ok");
}
