// SPDX-License-Identifier: Apache-2.0
//
// What `fovea train scene` says in the end, as text or JSON.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/scene.h"
#include "fovea/train_scene.h"

namespace fovea::cli {

struct LearnReport {
  const scene::Scene& scene;  // before
  const train::Learned& learned;
  std::int64_t most_steps;
  const std::string& output;  // empty: none
};

/// Shaped by the terminal at standard output.
std::string learn_text(const LearnReport& report);
std::string learn_json(const LearnReport& report);

}  // namespace fovea::cli
