// SPDX-License-Identifier: Apache-2.0
//
// Shape checks of a problem's tensors, shared by the engine and the reference.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// Throws InvalidArgument unless `tensor` is [batch, heads, length, dim] of any floating-point
/// type. `name` is the tensor's name in the message.
void validate_input(const TensorView& tensor, std::string_view name);

/// Returns the problem shape of query [batch, q_heads, q_len, dim], key [batch, kv_heads, kv_len,
/// dim] and value [batch, kv_heads, kv_len, value_dim]. Each tensor must have passed
/// validate_input. The count of packed sequences comes from `options`. Throws InvalidArgument if
/// the shapes do not match. The caller must compare the dims of query and key, because the
/// comparison depends on the kind of score.
ProblemShape problem_shape(const TensorView& query, const TensorView& key, const TensorView& value,
                           const AttentionOptions& options);

/// Returns the factor that scores are multiplied by: score.scale if set, else 1 / sqrt(head_dim).
FOVEA_API double score_scale(const ScoreOptions& score, std::int64_t head_dim);

/// Returns whether ALiBi, a relative table or a dense bias is added to scores.
bool has_bias(const ScoreOptions& score);

}  // namespace fovea
