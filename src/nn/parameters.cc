// SPDX-License-Identifier: Apache-2.0
//
// The learned parameters of a model and their gradients (fovea/nn/parameters.h).

#include "fovea/nn/parameters.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/fail.h"

namespace fovea::nn {

Parameters::Parameters(DType dtype) : dtype_(dtype) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    fail("parameters: expected float32 or float64, got {}", dtype_name(dtype));
  }
}

Parameter& Parameters::add(std::string name, const Shape& shape) {
  if (find(name) != nullptr) {
    fail("parameters: there is a \"{}\" already", name);
  }
  return all_.emplace_back(
      Parameter{std::move(name), Tensor(dtype_, shape), Tensor(dtype_, shape)});
}

const Parameter* Parameters::find(std::string_view name) const {
  const auto found = std::ranges::find(all_, name, &Parameter::name);
  return found == all_.end() ? nullptr : &*found;
}

Parameter* Parameters::find(std::string_view name) {
  return const_cast<Parameter*>(std::as_const(*this).find(name));
}

void Parameters::shrink(std::size_t size) {
  while (all_.size() > size) all_.pop_back();
}

std::int64_t Parameters::count() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : all_) sum += parameter.value.size();
  return sum;
}

void Parameters::zero_gradients() {
  for (Parameter& parameter : all_) {
    std::memset(parameter.gradient.view().data(), 0,
                static_cast<std::size_t>(parameter.gradient.size()) * dtype_size(dtype_));
  }
}

}  // namespace fovea::nn
