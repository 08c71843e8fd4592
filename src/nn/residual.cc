// SPDX-License-Identifier: Apache-2.0
//
// A residual block: the sum, dropout and norm around a layer (fovea/nn/residual.h).

#include "fovea/nn/residual.h"

#include "nn/rows.h"

namespace fovea::nn {

Residual::Residual(const Scope& scope, std::string_view norm, std::int64_t width, NormPlace place,
                   double dropout)
    : place_(place), norm_(scope.in(norm), width), dropout_(scope, dropout) {}

MutableTensorView Residual::with(const MutableTensorView& gradient, const TensorView& past) {
  add(gradient, past);
  return gradient;
}

}  // namespace fovea::nn
