// SPDX-License-Identifier: Apache-2.0
//
// Keys and values that lie in blocks of tokens, as decoding reads them. A plain structure, so that
// any owner of pages can fill it; PagedKvCache (fovea/paged_kv_cache.h) is one.

#pragma once

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// Keys and values in blocks of tokens, in any order (vLLM's paged attention, Kwon et al. 2023).
///
/// Token t of batch item b lies in block block_table[b, t / block_size], at t % block_size. Items
/// may share blocks. Entries of the table behind the last one that an item's length needs are not
/// looked at, nor are tokens behind its length.
///
/// Pages in another order of dimensions are strides: of vLLM's [blocks, block_size, kv_heads,
/// head_dim] the key is
/// \code
///   TensorView(pages, DType::kBFloat16, {blocks, block_size, kv_heads, head_dim}, strides)
///       .transposed(1, 2)
/// \endcode
struct PagedKeyValue {
  /// [blocks, kv_heads, block_size, head_dim], floats of any type; last dimension contiguous, other
  /// strides any.
  TensorView key = {};
  /// [blocks, kv_heads, block_size, value_dim], likewise.
  TensorView value = {};
  /// int64 [batch, most_blocks], any strides: the blocks of each item, in the order of its tokens.
  TensorView block_table = {};
  /// int64 [batch], any stride: the tokens of each item, from 0 to most_blocks * block_size.
  TensorView lengths = {};
};

/// Throws InvalidArgument unless shapes, types and strides fit, every length is within its bounds,
/// and so is every entry of the table that a length needs, from 0 to before `blocks`. The message
/// names the tensor, what was expected and what came. Looks at each of those entries once.
FOVEA_API void validate(const PagedKeyValue& paged);

}  // namespace fovea
