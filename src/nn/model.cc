// SPDX-License-Identifier: Apache-2.0
//
// State shared by the layers of a model: parameters, random numbers, dropout (fovea/nn/model.h).

#include "fovea/nn/model.h"

#include <cmath>

#include <fmt/format.h>

namespace fovea::nn {
namespace {

template <class Draw>
Parameter& fill(Parameter& parameter, const Draw& draw) {
  const MutableTensorView value = parameter.value;
  for_each_index(value.shape(), [&](const Index& at) { set_value(value, at, draw()); });
  return parameter;
}

}  // namespace

Model::Model(std::uint64_t seed, DType dtype) : parameters_(dtype), random_(seed), seed_(seed) {}

Scope Model::scope(std::string_view name) {
  return {*this, name.empty() ? std::string() : fmt::format("{}.", name)};
}

void Model::train(std::uint32_t step) {
  training_ = true;
  step_ = step;
}

Dropout Model::dropout(std::uint32_t number, double probability) const {
  if (!training_) return {};
  // The seed occupies the low 32 bits, the layer's number the high 32 bits.
  return {probability, seed_ | static_cast<std::uint64_t>(number) << 32, step_};
}

Scope Scope::in(std::string_view name) const {
  return {*model_, fmt::format("{}{}.", prefix_, name)};
}

Scope Scope::in(std::string_view name, std::int64_t number) const {
  return {*model_, fmt::format("{}{}.{}.", prefix_, name, number)};
}

Parameter& Scope::add_uniform(std::string_view name, const Shape& shape, double bound) const {
  RandomState& random = model_->random();
  return fill(model_->parameters().add(this->name(name), shape),
              [&] { return bound * (2.0 * random.rand() - 1.0); });
}

Parameter& Scope::add_normal(std::string_view name, const Shape& shape, double deviation) const {
  RandomState& random = model_->random();
  return fill(model_->parameters().add(this->name(name), shape),
              [&] { return deviation * random.randn(); });
}

Parameter& Scope::add_constant(std::string_view name, const Shape& shape, double value) const {
  return fill(model_->parameters().add(this->name(name), shape), [&] { return value; });
}

void Scope::redraw_glorot() const {
  RandomState& random = model_->random();
  for (Parameter& parameter : model_->parameters()) {
    if (!parameter.name.starts_with(prefix_) || parameter.value.rank() != 2) continue;
    const double bound = glorot_bound(parameter.value.shape());
    fill(parameter, [&] { return bound * (2.0 * random.rand() - 1.0); });
  }
}

double glorot_bound(const Shape& weight) {
  return std::sqrt(6.0 / static_cast<double>(weight[0] + weight[1]));
}

}  // namespace fovea::nn
