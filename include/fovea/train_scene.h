// SPDX-License-Identifier: Apache-2.0
//
// A scene that learns where to look: the weights that make its queries and keys are changed until
// given queries look at given keys as much as the scene's author says (Scene::learn). Part of
// fovea::train.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fovea/export.h"
#include "fovea/scene.h"

namespace fovea::train {

/// How far learning is: after so many steps, of which the one to come would be the next.
struct LearnProgress {
  std::int64_t steps = 0;
  double loss = 0.0;
  std::int64_t met = 0;  ///< wishes that are met
};

struct LearnOptions {
  /// At most this many.
  std::int64_t steps = 2000;
  double learning_rate = 0.05;
  /// Adds random numbers (normal, of deviation 0.01; 0 .. 2^32 - 1 starts their stream) to the
  /// weights that learning begins with, for another way to learn the same. None: as they are.
  std::optional<std::uint64_t> seed = std::nullopt;
  /// Called before each step; learning ends where it returns false.
  std::function<bool(const LearnProgress&)> progress = {};
};

/// Why learning ended.
enum class LearnEnd : std::uint8_t {
  kReached,     ///< all wishes are met
  kOutOfSteps,  ///< all steps were made
  kStopped,     ///< by LearnOptions::progress
  kNotFinite,   ///< the loss or a weight is no finite number after the last step, which is undone
};

/// What became of a wish.
struct LearnedWish {
  std::vector<double> before, after;  ///< the query's weight on the key, one per head
  bool met = false;                   ///< in every head
};

struct Learned {
  /// The scene with the weights learned, as scene::with_projections makes it.
  scene::Scene scene;
  LearnEnd end = LearnEnd::kReached;
  std::int64_t steps = 0;           ///< that were made
  std::vector<double> losses;       ///< before each step, and after the last
  std::vector<LearnedWish> wishes;  ///< as in Scene::learn
};

/// Learns the query and key weights of a scene; all else stays as it is, its options hold.
///
/// Start    the scene's projections; where it has none the identity, which changes nothing.
/// Wishes   hold for every head. One is met where the weight is at least the wanted one; a wish for
///          0, where it is at most 0.005. Softmax leaves something for all keys, so that wishes of
///          one query which add up to more than 0.995 are met at that share of them.
/// Loss     for each query with wishes and each head, the Kullback-Leibler divergence from what is
///          aimed at to the weights, with all keys that nothing is said of as one class; the mean
///          of these. Aimed at are the wanted weights, and a tenth of what they leave over: where a
///          row may still be anything, it is not held.
/// Numerics gradients by reference::attention_gradients in float64, steps by nn::Adam; what is
///          wished for is looked up in the weights that trace_scene() shows, in the scene's own
///          arithmetic. The same scene and options give the same bits.
/// Errors   throws InvalidArgument naming the place in the scene, what was expected and what came:
///          nothing to learn, a wish for a key that is masked, other scores than dot, another
///          normalization than softmax, projections too large to be written.
FOVEA_API Learned learn_scene(const scene::Scene& scene, const LearnOptions& options = {});

}  // namespace fovea::train
