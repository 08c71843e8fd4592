// SPDX-License-Identifier: Apache-2.0
//
// What the layers of one model share, and where in its tree of names each of them stands.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/nn/parameters.h"
#include "fovea/random.h"

namespace fovea::nn {

class Scope;

/// The parameters of a model's layers, the random numbers that they begin with, and whether dropout
/// is on. Layers refer to it and must not outlive it.
///
/// Layers run on as many threads as OpenMP is told to use (OMP_NUM_THREADS, omp_set_num_threads).
class FOVEA_API Model {
 public:
  /// One seed, 0 .. 2^32 - 1, makes one model: layers draw in the order in which they are made.
  explicit Model(std::uint64_t seed = 0, DType dtype = DType::kFloat32);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Where its first layer is put; `name` is empty for a layer that is all of the model.
  Scope scope(std::string_view name = {});

  nn::Parameters& parameters() { return parameters_; }
  const nn::Parameters& parameters() const { return parameters_; }
  RandomState& random() { return random_; }

  /// From now on layers drop numbers out, those of this step: the same step drops the same.
  void train(std::uint32_t step);
  /// From now on they drop nothing, as at the beginning.
  void evaluate() { training_ = false; }
  bool training() const { return training_; }

  /// Another number for each layer that drops something.
  std::uint32_t new_dropout() { return dropouts_++; }
  /// What the layer of this number drops now; a probability of 0 when not training.
  Dropout dropout(std::uint32_t number, double probability) const;

 private:
  nn::Parameters parameters_;
  RandomState random_;
  std::uint64_t seed_;
  std::uint32_t step_ = 0;
  std::uint32_t dropouts_ = 0;
  bool training_ = false;
};

/// A place in a model's tree of names.
class FOVEA_API Scope {
 public:
  /// One level further down: "weight" in "encoder" is "encoder.weight".
  Scope in(std::string_view name) const;
  /// The same for layer `number` of a list: "layers.0".
  Scope in(std::string_view name, std::int64_t number) const;

  /// The full name of a parameter here.
  std::string name(std::string_view parameter) const { return prefix_ + std::string(parameter); }
  Model& model() const { return *model_; }
  DType dtype() const { return model_->parameters().dtype(); }

  /// Numbers from -bound to bound, all as likely.
  Parameter& add_uniform(std::string_view name, const Shape& shape, double bound) const;
  /// Normal ones, of this standard deviation.
  Parameter& add_normal(std::string_view name, const Shape& shape, double deviation) const;
  Parameter& add_constant(std::string_view name, const Shape& shape, double value) const;

  /// Draws all matrices here and below anew, uniform within Glorot's bound.
  void redraw_glorot() const;

 private:
  friend class Model;
  Scope(Model& model, std::string prefix) : model_(&model), prefix_(std::move(prefix)) {}

  Model* model_;
  std::string prefix_;  // empty, or ends with a dot
};

/// Glorot and Bengio's (2010) bound of uniform numbers, sqrt(6 / (in + out)), for a weight
/// [out, in].
FOVEA_API double glorot_bound(const Shape& weight);

}  // namespace fovea::nn
