// SPDX-License-Identifier: Apache-2.0
//
// Sets of options that cover all code paths of the kernels.

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

namespace fovea::test {

/// A shape large enough to reach all code paths of the kernels.
inline constexpr ProblemShape kOptionShape{2, 6, 3, 200, 700};

struct OptionSet {
  std::string name;
  AttentionOptions options;
};

/// Returns options that cover all code paths of the kernels, for problems with two batch items and
/// six heads.
inline std::vector<OptionSet> option_sets(const ProblemShape& shape = kOptionShape) {
  const Tensor ids = RandomState(1).randint(0, 3, {shape.kv_len});
  const Tensor query_ids = RandomState(2).randint(0, 3, {shape.q_len});
  Tensor open = convert(RandomState(3).randint(0, 2, {shape.q_len, shape.kv_len}), DType::kBool);
  Tensor bias = convert(RandomState(4).randn({shape.q_len, shape.kv_len}), DType::kFloat32);
  for (std::int64_t q = 0; q < shape.q_len; ++q) {  // not in the first rows
    for (std::int64_t k = q % 11; k < shape.kv_len && q > 3; k += 11) {
      bias.at<float>({q, k}) = -std::numeric_limits<float>::infinity();
    }
  }
  // Runs of visible keys: the first three and those near the diagonal; none in some rows.
  Tensor runs(DType::kBool, {shape.q_len, shape.kv_len});
  Tensor bias_of_runs(DType::kFloat32, runs.shape());
  for_each_index(runs.shape(), [&](const Index& at) {
    const std::int64_t distance = at[0] * shape.kv_len / shape.q_len - at[1];
    const bool sees = at[0] % 50 != 7 && (at[1] < 3 || (distance >= -20 && distance < 100));
    runs.at<bool>(at) = sees;
    bias_of_runs.at<float>(at) = sees ? 0.5f : -std::numeric_limits<float>::infinity();
  });
  Tensor table = RandomState(5).randn({32, shape.q_heads});
  return {
      {"plain", {}},
      {"causal", {.mask = causal()}},
      {"window", {.mask = window(60, 9), .score = {.softcap = 2.0, .alibi = Alibi{}}}},
      {"documents",
       {.mask = documents(query_ids, ids) & key_lengths({shape.kv_len, shape.kv_len * 10 / 21})}},
      {"dense", {.mask = dense(std::move(open)), .score = {.sinks = {0, 1, 2, 3, 4, 5}}}},
      {"dense runs", {.mask = dense(std::move(runs))}},
      {"bias", {.score = {.bias = std::move(bias)}}},
      {"bias of runs", {.score = {.bias = std::move(bias_of_runs)}}},
      {"table", {.mask = causal(), .score = {.relative = RelativeTable{std::move(table)}}}}};
}

}  // namespace fovea::test
