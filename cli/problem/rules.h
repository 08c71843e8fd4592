// SPDX-License-Identifier: Apache-2.0
//
// Masks, alignment and scores of `fovea attend`: what the options say, as rules and in words.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/error.h"
#include "fovea/tensor.h"

#include "cli/problem/arguments.h"

namespace fovea::cli {

/// The parts of a mask, to be joined.
struct MaskParts {
  bool causal = false;
  std::optional<std::int64_t> prefix;
  std::optional<std::pair<std::int64_t, std::int64_t>> window;
  Tensor query_ids;  ///< of documents; the same tensor twice where one was given
  Tensor key_ids;
  std::optional<std::vector<std::int64_t>> key_lengths;
  TensorRef dense;

  /// (causal | prefix) & window & documents & key_lengths & dense, as far as they are there: a
  /// prefix language model, whatever else is hidden.
  Mask joined() const;
};

struct AttendRules {
  MaskParts mask;
  std::string mask_name;  ///< the file of the dense part
  Alignment alignment;
  ScoreOptions score;

  AttentionOptions options() const;

  /// "causal, window of 255 keys back and 0 ahead"; who sees whom.
  std::string mask_words() const;
  /// "scale 0.125, softcap 30, ALiBi": what becomes of query . key.
  std::string score_words(std::int64_t head_dim) const;
};

/// Throws InvalidArgument and IoError; messages begin with the option.
AttendRules read_rules(const AttendArguments& arguments);

/// What the library says of an option ("key_lengths: expected ..."), with the option's name as it
/// is typed.
InvalidArgument in_words_of_options(const InvalidArgument& error);

}  // namespace fovea::cli
