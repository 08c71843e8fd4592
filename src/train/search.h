// SPDX-License-Identifier: Apache-2.0
//
// What a translator says, token by token: the likeliest each time, or the best of several at once.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/tensor.h"

#include "train/translator.h"

namespace fovea::train {

struct Translation {
  std::vector<std::int64_t> tokens;  ///< kEnd at their end, unless they were cut
  double log_probability = 0.0;      ///< of all tokens together
  Tensor weights;                    ///< [tokens, source tokens]: where each step looked
};

/// The likeliest token at each step, for many sources at once; at most `most` tokens each. The
/// model is to evaluate.
std::vector<Translation> translate_greedily(Translator& translator,
                                            std::span<const std::vector<std::int64_t>> sources,
                                            std::int64_t most);

/// The best that `beams` hypotheses side by side come to, by their mean log-probability per token.
/// With one beam the same as greedily.
Translation translate_with_beams(Translator& translator, const std::vector<std::int64_t>& source,
                                 std::int64_t beams, std::int64_t most);

}  // namespace fovea::train
