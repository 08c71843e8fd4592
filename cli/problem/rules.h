// SPDX-License-Identifier: Apache-2.0
//
// Masks, alignment and scores of `fovea attend`, parsed from the options, and their description in
// words.

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
#include "cli/problem/inputs.h"

namespace fovea::cli {

/// The rules that make up a mask.
struct MaskParts {
  bool causal = false;
  std::optional<std::int64_t> prefix;
  std::optional<std::pair<std::int64_t, std::int64_t>> window;
  Tensor query_ids;  ///< document ids; if --documents has one tensor, key_ids is the same
  Tensor key_ids;
  std::optional<std::vector<std::int64_t>> key_lengths;
  TensorRef dense;

  /// Returns (causal | prefix) & window & documents & key_lengths & dense, omitting the rules that
  /// were not given.
  Mask joined() const;
};

struct AttendRules {
  Mask mask;
  /// The mask in words: "causal; window of 255 keys back and 0 ahead".
  std::string mask_words;
  Alignment alignment;
  ScoreOptions score;

  AttentionOptions options() const;

  /// Returns the score options in words: "scale 0.125, softcap 30, ALiBi".
  std::string score_words(std::int64_t head_dim) const;
};

/// Returns the rules of a recorded attention. Its mask may be any combination of rules, and is
/// described as Mask::to_string() does.
AttendRules recorded_rules(const RecordedAttention& attention);

/// Reads the rules of options, or of a recorded attention. Throws InvalidArgument and IoError;
/// messages begin with the option.
AttendRules read_rules(const AttendArguments& arguments, const AttendInputs& inputs);

/// Reads the rules of options. Throws as above.
AttendRules read_rules(const AttendArguments& arguments);

/// Returns an error of the library ("key_lengths: expected ...") with the name of the command-line
/// option ("--key-lengths: expected ...").
InvalidArgument in_words_of_options(const InvalidArgument& error);

}  // namespace fovea::cli
