// SPDX-License-Identifier: Apache-2.0
//
// The report of `fovea train scene`, as text or JSON.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/scene.h"
#include "fovea/train_scene.h"

namespace fovea::cli {

struct LearnReport {
  const scene::Scene& scene;  // before learning
  const train::Learned& learned;
  std::int64_t most_steps;
  const std::string& output;  // empty if nothing was written
};

/// Returns the report for the width and colours of the terminal on standard output.
std::string learn_text(const LearnReport& report);
std::string learn_json(const LearnReport& report);

}  // namespace fovea::cli
