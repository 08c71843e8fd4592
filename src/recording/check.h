// SPDX-License-Identifier: Apache-2.0
//
// Checks of a recorded attention, shared by reader and writer. Messages name the tensor.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fovea/recording.h"

namespace fovea::recording {

/// The maximum width of names in messages, in columns.
inline constexpr int kShownColumns = 60;

/// The maximum of layers, head indices, grid extents and lengths in the metadata.
inline constexpr std::int64_t kMaxIndex = std::int64_t{1} << 40;

/// The maximum head_dim and value_dim, and the maximum number of heads in all batch items where
/// there are no queries. Extents of tensors without elements are not bounded by the file's size.
inline constexpr std::int64_t kMaxDim = 65536;
inline constexpr std::int64_t kMaxHeadsWithoutQueries = 1024;

/// Returns a name for messages: escaped, truncated and in quotes.
std::string shown(std::string_view name);

/// Token lists by name.
using TokenIndex = std::unordered_map<std::string_view, const TokenList*>;

/// Returns the index of lists, which must outlive it unchanged.
TokenIndex index_of(const std::vector<TokenList>& tokens);

/// Throws InvalidArgument unless query, key, lse and value fit each other.
void check_tensors(const RecordedAttention& attention);

/// Throws InvalidArgument unless options fit an attention of this shape, whose queries have this
/// type and number of columns.
void check_options(const AttentionOptions& options, const ProblemShape& shape, DType query_type,
                   std::int64_t head_dim);

/// Throws InvalidArgument unless the heads and token lists of an attention fit its shape.
void check_fit(const RecordedAttention& attention, const ProblemShape& shape,
               const TokenIndex& tokens);

/// Throws InvalidArgument if the grid of a token list is incomplete or has more patches than there
/// are tokens.
void check_grid(const TokenList& list);

}  // namespace fovea::recording
