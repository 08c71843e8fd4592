// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training run: what the model is (model.json), its best parameters
// (model.safetensors), how the run goes (run.json) and where it stands (checkpoint.safetensors).
// Each file is there whole, whatever ends the process while it is written.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fovea/nn/optimizer.h"

#include "train/settings.h"
#include "train/translator.h"
#include "train/vocabulary.h"

namespace fovea::train {

/// What a run has come to, beside parameters and the optimizer's moments.
struct RunState {
  std::int64_t steps = 0;
  double best = -1.0;            ///< the best validation so far
  std::int64_t best_step = 0;    ///< when that was
  std::int64_t worse = 0;        ///< validations since
  std::int64_t fingerprint = 0;  ///< of pairs and settings that decide on the steps to come
};

/// What translates: model.json and the parameters beside it.
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
  /// Makes the folder, and in it model.json and run.json, what the run is begun with. Throws
  /// OutputError.
  void begin(const Model& model, const RunSettings& settings) const;
  RunSettings read_settings() const;
  /// A file of the folder that a person looks at.
  void save_page(const char* name, const std::string& text) const;
  /// Reads model.json; parameters are as new. Throws IoError and InvalidArgument.
  Model read_model() const;

  void save_best(const Translator& translator) const;
  /// Throws InvalidArgument where the file is not that of such a model.
  void load_best(Translator& translator) const;

  /// The parameters are those that the optimizer moves.
  void save_checkpoint(const nn::Adam& adam, const RunState& state) const;
  /// Throws InvalidArgument where the file is not that of such a model.
  RunState load_checkpoint(nn::Adam& adam) const;

 private:
  std::string file(const char* name) const { return path_ + "/" + name; }

  std::string path_;
};

}  // namespace fovea::train
