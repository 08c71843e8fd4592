// SPDX-License-Identifier: Apache-2.0
//
// The settings of a training run, apart from those of the model.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::train {

struct TrainerOptions {
  std::int64_t steps = 2000;    ///< the maximum number of steps
  std::int64_t batch = 32;      ///< pairs per step
  double learning_rate = 3e-3;  ///< the peak, from which a cosine schedule decays to 0
  std::int64_t warmup = 200;    ///< steps over which the learning rate rises to its peak
  double weight_decay = 0.01;
  double clip = 1.0;  ///< the maximum norm of the gradients
  double label_smoothing = 0.05;
  std::int64_t validate_every = 250;  ///< steps between validations; each saves a checkpoint
  std::int64_t patience = 0;  ///< stop after this many validations without a new best; 0: never
  double until = 2.0;         ///< stop at this share of exact matches; above 1: never
};

/// The settings that a run was started with, stored so that it can be resumed.
struct RunSettings {
  TrainerOptions trainer;
  std::string data = {};        ///< file of pairs
  std::string validation = {};  ///< file of validation pairs; if empty, a part of `data` is used
  std::int64_t threads = 0;     ///< 0: as many as OpenMP provides
};

/// Converts settings to and from JSON. Parsing throws InvalidArgument with the path of the value.
std::string to_json(const RunSettings& settings);
RunSettings parse_run_settings(std::string_view json);

}  // namespace fovea::train
