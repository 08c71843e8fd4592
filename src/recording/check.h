// SPDX-License-Identifier: Apache-2.0
//
// What a recorded attention must fulfil, for reader and writer. Messages say which tensor is meant.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/recording.h"

namespace fovea::recording {

/// The maximum width of names in messages, in columns.
inline constexpr int kShownColumns = 60;

/// Returns a name for messages: escaped, truncated and in quotes.
std::string shown(std::string_view name);

/// Throws InvalidArgument unless query, key, lse and value fit each other.
void check_tensors(const RecordedAttention& attention);

/// Throws InvalidArgument unless the heads and token lists of an attention fit its shape.
void check_fit(const RecordedAttention& attention, const ProblemShape& shape,
               const std::vector<TokenList>& tokens);

}  // namespace fovea::recording
