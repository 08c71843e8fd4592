// SPDX-License-Identifier: Apache-2.0
//
// Keys and values in blocks of tokens, the input of paged decoding. Any block allocator can fill
// this plain struct; Fovea's own allocator is PagedKvCache (fovea/paged_kv_cache.h).

#pragma once

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// Keys and values in blocks of tokens, in any order (vLLM's paged attention, Kwon et al. 2023).
///
/// Token t of batch item b is in block block_table[b, t / block_size], at index t % block_size.
/// Items may share blocks. Table entries beyond the last block that an item's length needs are not
/// read, nor are tokens beyond the item's length.
///
/// Pools with another order of dimensions are described by strides. For vLLM's [blocks, block_size,
/// kv_heads, head_dim], the key is
/// \code
///   TensorView(pages, DType::kBFloat16, {blocks, block_size, kv_heads, head_dim}, strides)
///       .transposed(1, 2)
/// \endcode
struct PagedKeyValue {
  /// [blocks, kv_heads, block_size, head_dim], any float type; last dimension contiguous, other
  /// strides arbitrary.
  TensorView key = {};
  /// [blocks, kv_heads, block_size, value_dim], any float type; strides as those of the key.
  TensorView value = {};
  /// int64 [batch, most_blocks], any strides: the blocks of each item in token order.
  TensorView block_table = {};
  /// int64 [batch], any stride: the token count of each item, from 0 to most_blocks * block_size.
  TensorView lengths = {};
};

/// Throws InvalidArgument if shapes, types or strides do not fit, if a length is out of bounds, or
/// if a table entry that a length needs is not in 0 .. blocks - 1. The message names the tensor,
/// the expected and the actual value. Reads each needed table entry once.
FOVEA_API void validate(const PagedKeyValue& paged);

}  // namespace fovea
