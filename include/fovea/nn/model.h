// SPDX-License-Identifier: Apache-2.0
//
// The shared state of a model's layers, and scopes that give their parameters hierarchical names.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/nn/parameters.h"
#include "fovea/random.h"

namespace fovea::nn {

class Scope;

/// The parameters of a model's layers, the random stream that initialises them, and the training
/// mode, which enables dropout. Layers keep a reference to the model and must not outlive it.
///
/// Layers use OpenMP's configured thread count (OMP_NUM_THREADS, omp_set_num_threads).
class FOVEA_API Model {
 public:
  /// The same seed, 0 .. 2^32 - 1, gives the same model if layers are created in the same order.
  explicit Model(std::uint64_t seed = 0, DType dtype = DType::kFloat32);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Returns a scope for the model's layers. `name` is empty if one layer is the whole model.
  Scope scope(std::string_view name = {});

  /// Returns make(), which constructs a layer in this model. A constructor that throws can leave
  /// the parameters of the layer's first parts in the model. build() removes them and restores the
  /// random stream, so that a corrected call can use the same names and gives the same layer.
  template <class Make>
  auto build(const Make& make) {
    const std::size_t size = parameters_.size();
    const RandomState random = random_;
    const std::uint32_t dropouts = dropouts_;
    try {
      return make();
    } catch (...) {
      parameters_.shrink(size);
      random_ = random;
      dropouts_ = dropouts;
      throw;
    }
  }

  nn::Parameters& parameters() { return parameters_; }
  const nn::Parameters& parameters() const { return parameters_; }
  RandomState& random() { return random_; }

  /// Enables dropout for this training step. Equal step numbers drop the same elements.
  void train(std::uint32_t step);
  /// Disables dropout, the initial state.
  void evaluate() { training_ = false; }
  bool training() const { return training_; }

  /// Returns a new number for a layer with dropout.
  std::uint32_t new_dropout() { return dropouts_++; }
  /// Returns the dropout of the layer with this number in the current step; probability 0 when not
  /// training.
  Dropout dropout(std::uint32_t number, double probability) const;

 private:
  nn::Parameters parameters_;
  RandomState random_;
  std::uint64_t seed_;
  std::uint32_t step_ = 0;
  std::uint32_t dropouts_ = 0;
  bool training_ = false;
};

/// A prefix of parameter names in a model.
class FOVEA_API Scope {
 public:
  /// Returns the scope one level below: "weight" in "encoder" is "encoder.weight".
  Scope in(std::string_view name) const;
  /// Returns the scope of layer `number` in a list: "layers.0".
  Scope in(std::string_view name, std::int64_t number) const;

  /// Returns the full name of a parameter in this scope.
  std::string name(std::string_view parameter) const { return prefix_ + std::string(parameter); }
  Model& model() const { return *model_; }
  DType dtype() const { return model_->parameters().dtype(); }

  /// Adds a parameter with uniform random values in [-bound, bound).
  Parameter& add_uniform(std::string_view name, const Shape& shape, double bound) const;
  /// Adds a parameter with normal random values of this standard deviation.
  Parameter& add_normal(std::string_view name, const Shape& shape, double deviation) const;
  Parameter& add_constant(std::string_view name, const Shape& shape, double value) const;

  /// Reinitialises all matrices in this scope and its subscopes, uniformly within Glorot's bound.
  void redraw_glorot() const;

 private:
  friend class Model;
  Scope(Model& model, std::string prefix) : model_(&model), prefix_(std::move(prefix)) {}

  Model* model_;
  std::string prefix_;  // empty or ending with a dot
};

/// Returns the bound of Glorot and Bengio's (2010) uniform initialisation, sqrt(6 / (in + out)),
/// for a weight [out, in].
FOVEA_API double glorot_bound(const Shape& weight);

}  // namespace fovea::nn
