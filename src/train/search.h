// SPDX-License-Identifier: Apache-2.0
//
// Decodes translations token by token, greedily or by beam search.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/tensor.h"

#include "train/translator.h"

namespace fovea::train {

struct Translation {
  std::vector<std::int64_t> tokens;  ///< ends with kEnd, unless cut at the limit
  double log_probability = 0.0;      ///< sum over all tokens
  Tensor weights;                    ///< [tokens, source tokens]: the attention of each step
};

/// Translates several sources at once, choosing the most likely token at each step. A translation
/// has at most `most` tokens. The model must be in evaluation mode.
std::vector<Translation> translate_greedily(Translator& translator,
                                            std::span<const std::vector<std::int64_t>> sources,
                                            std::int64_t most);

/// Translates a source by beam search over `beams` hypotheses. Returns the hypothesis with the
/// highest mean log-probability per token. With one beam, the result equals that of
/// translate_greedily().
Translation translate_with_beams(Translator& translator, const std::vector<std::int64_t>& source,
                                 std::int64_t beams, std::int64_t most);

}  // namespace fovea::train
