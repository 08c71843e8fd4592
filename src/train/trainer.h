// SPDX-License-Identifier: Apache-2.0
//
// Training a translator: steps over batches, validation, and a folder in which all of it stands, so
// that a run that was ended at any moment goes on to the same bits.

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

/// The loss of a step was no finite number.
class Diverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How far a run is.
struct StepReport {
  std::int64_t steps = 0;
  double loss = 0.0;  ///< of this step's batch
  double learning_rate = 0.0;
  std::int64_t tokens = 0;  ///< of this step's batch
};

/// What a validation found.
struct Validation {
  std::int64_t steps = 0;
  double exact = 0.0;  ///< share of pairs translated exactly
  double chrf = 0.0;
  double aligned = 0.0;      ///< share of characters that looked at their origin the most
  std::int64_t counted = 0;  ///< of how many; 0: the pairs say nothing of it
  bool best = false;
  std::vector<std::string> texts;    ///< of all pairs
  std::optional<Translation> first;  ///< of the first pair
};

/// Throws InvalidArgument, "FILE:LINE: ...", for pairs that are too long for the model or have
/// characters that it does not know.
void check_pairs(const Model& model, const std::vector<Pair>& pairs, const std::string& file);

/// Greedy translations of all pairs, and what they are worth.
Validation validate(Translator& translator, const Vocabulary& source, const Vocabulary& target,
                    const std::vector<Pair>& pairs);

/// Why a run ended.
enum class TrainEnd : std::uint8_t { kOutOfSteps, kUntil, kPatience, kStopped };

/// The pairs to learn from and those to validate with, of which nothing is learned.
struct TrainingData {
  std::vector<Pair> training, validation;
  std::string validation_file = "validation";  ///< for messages
};

class Trainer {
 public:
  /// Goes on from the folder's checkpoint where there is one and `resume`, else begins.
  /// `model` holds what is not read from there. Throws InvalidArgument where the checkpoint was
  /// made with other pairs, settings or another model, and "FILE:LINE: ..." for pairs that are too
  /// long or have unknown characters.
  Trainer(RunFolder folder, Model& model, const TrainingData& data, const RunSettings& settings,
          bool resume);

  /// Called after each step; where it returns false the run ends, saved.
  std::function<bool(const StepReport&)> on_step = {};
  std::function<void(const Validation&)> on_validation = {};

  /// Runs to its end. Throws Diverged where the loss is no finite number; the last checkpoint
  /// stays.
  TrainEnd run();

  const RunState& state() const { return state_; }

 private:
  bool step(const std::vector<std::int64_t>& numbers);
  void save();
  void validate_and_save();

  RunFolder folder_;
  Model& model_;
  const TrainingData& data_;
  TrainerOptions options_;
  std::vector<Example> examples_;
  nn::Adam adam_;
  nn::Schedule schedule_;
  RunState state_;
  std::int64_t saved_ = 0;  // the step of the checkpoint
};

}  // namespace fovea::train
