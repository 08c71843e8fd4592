// SPDX-License-Identifier: Apache-2.0
//
// Learns a scene's projections (fovea/train_scene.h): each step computes weights, loss and
// gradients, and updates the projections with Adam.

#include <cmath>
#include <utility>

#include "fovea/error.h"
#include "fovea/nn/optimizer.h"
#include "fovea/nn/parameters.h"
#include "fovea/random.h"
#include "fovea/train_scene.h"

#include "core/fail.h"
#include "train/scene_weights.h"
#include "train/wishes.h"

namespace fovea::train {
namespace {

using scene::Projections;
using scene::Scene;

constexpr double kNoise = 0.01;

void check(const Scene& scene, const LearnOptions& options) {
  if (options.steps < 0) {
    fail("steps: expected a number from 0 on, got {}", options.steps);
  }
  if (!(options.learning_rate > 0.0 && std::isfinite(options.learning_rate))) {
    fail("learning_rate: expected a number above 0, got {}", options.learning_rate);
  }
  validate(scene);
  if (scene.direct) {
    throw InvalidArgument(
        "scene: expected embeddings, whose projections are trained, got queries, keys and values");
  }
  if (scene.learn.empty()) {
    throw InvalidArgument("learn: expected a wish for at least one query, got nothing");
  }
  if (!std::holds_alternative<reference::DotScore>(scene.score_kind)) {
    throw InvalidArgument(
        "score.kind: expected \"dot\", the only trainable score, with \"learn\", got another");
  }
  if (scene.normalizations.back() != reference::Normalization::kSoftmax) {
    throw InvalidArgument(
        "normalizations: expected \"softmax\" as the last one beside \"learn\", got another");
  }
}

Tensor identity(std::int64_t dim) {
  Tensor matrix(DType::kFloat64, {dim, dim});
  for (std::int64_t i = 0; i < dim; ++i) matrix.at<double>({i, i}) = 1.0;
  return matrix;
}

/// Returns the scene before learning, with identity projections if it has none. Throws
/// InvalidArgument if the scene could exceed the size limit of scene files once its projections are
/// written with all digits.
Scene with_all_projections(const Scene& scene) {
  const Tensor& words = scene.words.embeddings;
  const Tensor& source = scene.source ? scene.source->embeddings : words;
  const Projections projections =
      scene.projections ? *scene.projections : Projections{identity(words.extent(2)),
                                                           identity(source.extent(2)),
                                                           identity(source.extent(2)),
                                                           "",
                                                           "",
                                                           ""};
  constexpr std::int64_t kBytesPerNumber = 26;  // "-1.7976931348623157e+308, "
  const std::int64_t numbers =
      projections.query.size() + projections.key.size() + projections.value.size();
  const std::int64_t most =
      (scene::kMaxFileBytes - static_cast<std::int64_t>(scene.json.size())) / kBytesPerNumber;
  if (numbers > most) {
    fail(
        "projections: expected at most {} numbers, for a scene that can be written "
        "when it has learned, got {}",
        most, numbers);
  }
  return with_projections(scene, projections);
}

/// The state of one learning run.
class Learner {
 public:
  Learner(const Scene& scene, const LearnOptions& options)
      : options_(options),
        start_(with_all_projections(scene)),
        model_(start_),
        query_(add("query", start_.projections->query)),
        key_(add("key", start_.projections->key)),
        adam_(parameters_),
        now_(forward()),
        wishes_(start_, now_.visible) {
    for (std::int64_t i = 0; i < wishes_.count(); ++i) {
      learned_.wishes.push_back({wishes_.found(i, now_.weights), {}, false});
    }
  }

  Learned run() {
    if (options_.seed) add_noise();
    learned_.end = learn();
    for (std::int64_t i = 0; i < wishes_.count(); ++i) {
      LearnedWish& wish = learned_.wishes[static_cast<std::size_t>(i)];
      wish.after = wishes_.found(i, now_.weights);
      wish.met = wishes_.met(i, now_.weights);
    }
    Projections projections = *start_.projections;
    projections.query = query_.value;
    projections.key = key_.value;
    learned_.scene = with_projections(start_, projections);
    return std::move(learned_);
  }

 private:
  nn::Parameter& add(const char* name, const Tensor& value) {
    nn::Parameter& parameter = parameters_.add(name, value.shape());
    parameter.value = value;
    return parameter;
  }

  SceneWeights::Found forward() const { return model_.forward(query_.value, key_.value); }

  void add_noise() {
    RandomState random(*options_.seed);
    for (nn::Parameter& parameter : parameters_) {
      for (double& number : parameter.value.span<double>()) number += kNoise * random.randn();
    }
    now_ = forward();
  }

  bool all_finite() const {
    for (const nn::Parameter& parameter : parameters_) {
      for (const double number : parameter.value.span<double>()) {
        if (!std::isfinite(number)) return false;
      }
    }
    return true;
  }

  LearnEnd learn() {
    Tensor query = query_.value, key = key_.value;  // before the last step
    while (true) {
      const double loss = wishes_.loss(now_.weights);
      learned_.losses.push_back(loss);
      if (!std::isfinite(loss) || !all_finite()) {
        query_.value = query;
        key_.value = key;
        now_ = forward();
        return LearnEnd::kNotFinite;
      }
      const std::int64_t met = wishes_.met(now_.weights);
      if (met == wishes_.count()) return LearnEnd::kReached;
      if (learned_.steps == options_.steps) return LearnEnd::kOutOfSteps;
      if (options_.progress && !options_.progress({learned_.steps, loss, met})) {
        return LearnEnd::kStopped;
      }
      query = query_.value;
      key = key_.value;
      parameters_.zero_gradients();
      model_.backward(wishes_.gradient(now_.weights), query_, key_);
      adam_.step(options_.learning_rate);
      ++learned_.steps;
      now_ = forward();
    }
  }

  const LearnOptions& options_;
  const Scene start_;
  const SceneWeights model_;
  nn::Parameters parameters_{DType::kFloat64};
  nn::Parameter& query_;
  nn::Parameter& key_;
  nn::Adam adam_;
  SceneWeights::Found now_;
  const Wishes wishes_;
  Learned learned_;
};

}  // namespace

Learned learn_scene(const Scene& scene, const LearnOptions& options) {
  check(scene, options);
  return Learner(scene, options).run();
}

}  // namespace fovea::train
