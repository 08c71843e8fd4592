// SPDX-License-Identifier: Apache-2.0
//
// What the tensors of a problem have to agree on, whoever computes it.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// Throws InvalidArgument unless `tensor` is [batch, heads, length, dim] of floats of any size;
/// `name` is what the message calls it.
void validate_input(const TensorView& tensor, std::string_view name);

/// The shape of the problem of query [batch, q_heads, q_len, dim], key [batch, kv_heads, kv_len,
/// dim] and value [batch, kv_heads, kv_len, value_dim], each validated, whose options say how many
/// sequences are packed into it. Throws InvalidArgument where they do not fit; the dims of query
/// and key are left to the caller, who knows how they are compared.
ProblemShape problem_shape(const TensorView& query, const TensorView& key, const TensorView& value,
                           const AttentionOptions& options);

/// What scores are multiplied by: the given number, or 1 / sqrt(head_dim).
double score_scale(const ScoreOptions& score, std::int64_t head_dim);

}  // namespace fovea
