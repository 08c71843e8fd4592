// SPDX-License-Identifier: Apache-2.0
//
// Training a scene's query and key projections until selected queries have the attention weights
// that the author specified (Scene::learn). Part of fovea::train.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fovea/export.h"
#include "fovea/scene.h"

namespace fovea::train {

/// The state of learning after `steps` steps, before the next one.
struct LearnProgress {
  std::int64_t steps = 0;
  double loss = 0.0;
  std::int64_t met = 0;  ///< number of wishes that are met
};

struct LearnOptions {
  /// The maximum number of steps.
  std::int64_t steps = 2000;
  double learning_rate = 0.05;
  /// If set, normal random numbers with standard deviation 0.01 are added to the initial weights,
  /// to learn another solution. This is the seed of their stream, 0 .. 2^32 - 1. If not set,
  /// learning starts from the unchanged weights.
  std::optional<std::uint64_t> seed = std::nullopt;
  /// Called before each step; learning stops if it returns false.
  std::function<bool(const LearnProgress&)> progress = {};
};

/// Why learning ended.
enum class LearnEnd : std::uint8_t {
  kReached,     ///< all wishes are met
  kOutOfSteps,  ///< the step limit was reached
  kStopped,     ///< stopped by LearnOptions::progress
  kNotFinite,   ///< the loss or a weight was not finite after the last step, which is undone
};

/// The result for one wish.
struct LearnedWish {
  std::vector<double> before, after;  ///< the query's weight on the key, per head
  bool met = false;                   ///< whether the wish is met in every head
};

struct Learned {
  /// The scene with the learned weights, as returned by scene::with_projections.
  scene::Scene scene;
  LearnEnd end = LearnEnd::kReached;
  std::int64_t steps = 0;           ///< number of steps taken
  std::vector<double> losses;       ///< before each step and after the last one
  std::vector<LearnedWish> wishes;  ///< in the order of Scene::learn
};

/// Learns the query and key projections of a scene. Everything else, including the options, is
/// unchanged.
///
/// Start    the scene's projections; if it has none, the identity, which changes nothing.
/// Wishes   apply to every head. A wish is met if the weight is at least the target weight; a wish
///          for 0 is met if the weight is at most 0.005. Softmax gives every key a non-zero weight,
///          so if the wishes of one query sum to more than 0.995, they are met at proportionally
///          smaller weights that sum to 0.995.
/// Loss     for each query with wishes and each head, the Kullback-Leibler divergence from the
///          target to the weights, with all keys without a wish as one class; the mean over these
///          queries and heads. The target assigns the named keys their wanted weights and a tenth
///          of the remaining weight. The other keys share the rest in any proportion.
/// Numerics gradients by reference::attention_gradients in float64, steps by nn::Adam. Wishes are
///          evaluated on the weights that trace_scene() returns, in the scene's own arithmetic. The
///          same scene and options give bit-identical results.
/// Errors   throws InvalidArgument naming the place in the scene, the expected and the actual
///          value: nothing to learn, a wish for a masked key, a score kind other than dot, a
///          normalization other than softmax, projections too large to be written.
FOVEA_API Learned learn_scene(const scene::Scene& scene, const LearnOptions& options = {});

}  // namespace fovea::train
