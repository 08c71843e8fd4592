// SPDX-License-Identifier: Apache-2.0
//
// Parts shared by all translators (translator.h).

#include "train/translator.h"

#include "train/gru_translator.h"
#include "train/transformer_translator.h"
#include "train/vocabulary.h"

namespace fovea::train {

std::string_view architecture_name(Architecture architecture) {
  return architecture == Architecture::kGru ? "gru" : "transformer";
}

Translator::Translator(const TranslatorOptions& options)
    : options_(options),
      model_(options.seed),
      source_embedding_(model_.scope("source_embedding"), options.source_symbols, options.width,
                        kPadding),
      target_embedding_(model_.scope("target_embedding"), options.target_symbols, options.width,
                        kPadding),
      source_dropout_(model_.scope(), options.dropout),
      target_dropout_(model_.scope(), options.dropout) {}

std::unique_ptr<Translator> make_translator(const TranslatorOptions& options) {
  if (options.architecture == Architecture::kGru) return std::make_unique<GruTranslator>(options);
  return std::make_unique<TransformerTranslator>(options);
}

}  // namespace fovea::train
