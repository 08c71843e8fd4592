// SPDX-License-Identifier: Apache-2.0
//
// Trains a translator: steps over batches, validations, and a folder that stores the run's state. A
// run that is interrupted at any moment can be resumed, with exactly the same results.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/pairs.h"
#include "train/run_folder.h"
#include "train/search.h"
#include "train/settings.h"
#include "train/translator.h"

namespace fovea::train {

/// Thrown if the loss of a step is not finite.
class Diverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Progress of a run after a step.
struct StepReport {
  std::int64_t steps = 0;
  double loss = 0.0;  ///< for this step's batch
  double learning_rate = 0.0;
  std::int64_t tokens = 0;  ///< tokens in this step's batch
};

/// The result of a validation.
struct Validation {
  std::int64_t steps = 0;
  double exact = 0.0;  ///< share of pairs translated exactly
  double chrf = 0.0;
  double aligned = 0.0;      ///< share of characters with the largest weight on their origin
  std::int64_t counted = 0;  ///< number of characters with a known origin
  bool best = false;
  std::vector<std::string> texts;    ///< translations of all pairs
  std::optional<Translation> first;  ///< translation of the first pair
};

/// Throws InvalidArgument, "FILE:LINE: ...", for a pair that is too long for the model or has
/// characters that are not in its vocabulary.
void check_pairs(const Model& model, const std::vector<Pair>& pairs, const std::string& file);

/// Translates all pairs greedily and evaluates the translations.
Validation validate(Translator& translator, const Vocabulary& source, const Vocabulary& target,
                    const std::vector<Pair>& pairs);

/// Why a run ended.
enum class TrainEnd : std::uint8_t { kOutOfSteps, kUntil, kPatience, kStopped };

/// Training pairs, and the validation pairs that are held out from training.
struct TrainingData {
  std::vector<Pair> training, validation;
  std::string validation_file = "validation";  ///< file name for error messages
};

class Trainer {
 public:
  /// Continues from the folder's checkpoint if `resume` is set; otherwise starts a new run in the
  /// folder. `model` is the model to train; its parameters are read from the checkpoint. Throws
  /// InvalidArgument if the checkpoint was made with other pairs, other settings or another model,
  /// and "FILE:LINE: ..." for pairs that are too long or have unknown characters.
  Trainer(RunFolder folder, Model& model, const TrainingData& data, const RunSettings& settings,
          bool resume);

  /// Called after each step. If it returns false, the run saves a checkpoint and ends.
  std::function<bool(const StepReport&)> on_step = {};
  std::function<void(const Validation&)> on_validation = {};

  /// Runs the remaining steps. Throws Diverged if the loss is not finite; the last checkpoint is
  /// kept.
  TrainEnd run();

  const RunState& state() const { return state_; }

 private:
  bool step(const std::vector<std::int64_t>& numbers);
  void save();
  void validate_and_save();
  /// Returns the end of the run if the validations so far determine it.
  std::optional<TrainEnd> end_by_validation() const;

  RunFolder folder_;
  Model& model_;
  const TrainingData& data_;
  TrainerOptions options_;
  std::vector<Example> examples_;
  nn::Adam adam_;
  nn::Schedule schedule_;
  RunState state_;
  std::int64_t saved_ = 0;  // the step of the last checkpoint
};

}  // namespace fovea::train
