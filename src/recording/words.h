// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of a recording and of the options of an attention, in words.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/recording.h"

namespace fovea::recording {

/// Returns numbers as ranges: "0 to 5, 8, 10 to 29".
std::string ranges_words(const std::set<std::int64_t>& numbers);

/// Returns what a recording has, for messages: "layers 0 to 29", or "layers 0 to 5 of encoder,
/// decoder and cross".
std::string recorded_words(const Recording& recording);

/// Returns text with the first few numbers and the count of the omitted ones.
std::string some_numbers(const std::vector<std::int64_t>& numbers);

/// Returns the mask, with the alignment if it is not the usual one: "every query sees every key",
/// or what Mask::to_string() gives.
std::string mask_words(const AttentionOptions& options);

/// Returns where query 0 is: "query 0 at key 3".
std::string alignment_words(const Alignment& alignment);

/// Returns the options of scores: "scale 0.125, softcap 30, ALiBi".
std::string score_words(const ScoreOptions& score, std::int64_t head_dim);

}  // namespace fovea::recording
