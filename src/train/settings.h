// SPDX-License-Identifier: Apache-2.0
//
// How a run of training goes, beside what the model is.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::train {

struct TrainerOptions {
  std::int64_t steps = 2000;    ///< at most so many
  std::int64_t batch = 32;      ///< pairs a step
  double learning_rate = 3e-3;  ///< the largest; falls with a cosine to 0
  std::int64_t warmup = 200;    ///< steps in which it rises
  double weight_decay = 0.01;
  double clip = 1.0;  ///< of the gradients' norm
  double label_smoothing = 0.05;
  std::int64_t validate_every = 250;  ///< steps; a checkpoint is saved then, too
  std::int64_t patience = 0;  ///< ends after so many validations without a better one; 0: never
  double until = 2.0;         ///< ends at this share of exact matches; above 1: never
};

/// What a run was begun with, so that it can go on.
struct RunSettings {
  TrainerOptions trainer;
  std::string data = {};        ///< file of pairs
  std::string validation = {};  ///< another, or empty: some of `data`
  std::int64_t threads = 0;     ///< 0: as many as OpenMP gives
};

/// As JSON, and back. Throws InvalidArgument naming the place.
std::string to_json(const RunSettings& settings);
RunSettings parse_run_settings(std::string_view json);

}  // namespace fovea::train
