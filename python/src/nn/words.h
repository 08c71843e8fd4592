// SPDX-License-Identifier: Apache-2.0
//
// Converts the words of layer options ("relu", "before", ...) to enumerations.

#pragma once

#include "fovea/nn/embedding.h"
#include "fovea/nn/feed_forward.h"
#include "fovea/nn/optimizer.h"
#include "fovea/nn/residual.h"

#include "arrays/calls.h"
#include "nn/types.h"

namespace fovea::python {

inline nn::Activation activation_of(const ActivationWord& word) {
  if (word.text == "relu") return nn::Activation::kRelu;
  if (word.text == "gelu") return nn::Activation::kGelu;
  raise_value_error("activation: expected \"relu\" or \"gelu\", got \"{}\"", word.text);
}

inline nn::NormPlace norm_place_of(const NormWord& word) {
  if (word.text == "after") return nn::NormPlace::kAfter;
  if (word.text == "before") return nn::NormPlace::kBefore;
  raise_value_error("norm: expected \"after\" or \"before\", got \"{}\"", word.text);
}

inline nn::PositionKind position_kind_of(const PositionWord& word) {
  if (word.text == "none") return nn::PositionKind::kNone;
  if (word.text == "sinusoidal") return nn::PositionKind::kSinusoidal;
  if (word.text == "learned") return nn::PositionKind::kLearned;
  raise_value_error("kind: expected \"none\", \"sinusoidal\" or \"learned\", got \"{}\"",
                    word.text);
}

inline nn::Schedule::Kind schedule_kind_of(const ScheduleWord& word) {
  if (word.text == "constant") return nn::Schedule::Kind::kConstant;
  if (word.text == "inverse_root") return nn::Schedule::Kind::kInverseRoot;
  if (word.text == "cosine") return nn::Schedule::Kind::kCosine;
  raise_value_error("kind: expected \"constant\", \"inverse_root\" or \"cosine\", got \"{}\"",
                    word.text);
}

}  // namespace fovea::python
