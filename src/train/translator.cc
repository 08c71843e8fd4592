// SPDX-License-Identifier: Apache-2.0
//
// Translators (translator.h).

#include "train/translator.h"

#include "train/gru_translator.h"
#include "train/transformer_translator.h"

namespace fovea::train {

std::string_view architecture_name(Architecture architecture) {
  return architecture == Architecture::kGru ? "gru" : "transformer";
}

std::unique_ptr<Translator> make_translator(const TranslatorOptions& options) {
  if (options.architecture == Architecture::kGru) return std::make_unique<GruTranslator>(options);
  return std::make_unique<TransformerTranslator>(options);
}

}  // namespace fovea::train
