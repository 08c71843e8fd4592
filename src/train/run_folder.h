// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training run: the model's description (model.json), its best parameters
// (model.safetensors), the run's settings (run.json) and its state (checkpoint.safetensors). Files
// are replaced atomically, so that a process that ends while writing leaves no partial file.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fovea/nn/optimizer.h"

#include "train/settings.h"
#include "train/translator.h"
#include "train/vocabulary.h"

namespace fovea::train {

/// The state of a run, apart from the parameters and the optimizer's moments.
struct RunState {
  std::int64_t steps = 0;
  double best = -1.0;            ///< the best validation score so far
  std::int64_t best_step = 0;    ///< the step of that validation
  std::int64_t worse = 0;        ///< number of validations since the best one
  std::int64_t fingerprint = 0;  ///< hash of the pairs and settings that determine further steps
};

/// A translator with its options and vocabularies, as described by model.json.
struct Model {
  TranslatorOptions options;
  Vocabulary source, target;
  std::unique_ptr<Translator> translator;
};

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool has_checkpoint() const;
  /// Creates the folder with model.json and run.json. Throws OutputError.
  void begin(const Model& model, const RunSettings& settings) const;
  RunSettings read_settings() const;
  /// Writes a text file of the folder.
  void save_page(const char* name, const std::string& text) const;
  /// Returns the text of such a file, empty if it cannot be read.
  std::string read_page(const char* name) const;
  /// Reads model.json. The parameters have their initial values. Throws IoError and
  /// InvalidArgument.
  Model read_model() const;

  void save_best(const Translator& translator) const;
  /// Throws InvalidArgument if the file does not fit the model.
  void load_best(Translator& translator) const;

  /// Saves the state, the optimizer's moments, and the parameters that the optimizer updates.
  void save_checkpoint(const nn::Adam& adam, const RunState& state) const;
  /// Throws InvalidArgument if the file does not fit the model.
  RunState load_checkpoint(nn::Adam& adam) const;

 private:
  std::string file(const char* name) const { return path_ + "/" + name; }

  std::string path_;
};

}  // namespace fovea::train
