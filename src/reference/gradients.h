// SPDX-License-Identifier: Apache-2.0
//
// The reference's gradients in parts, which callers can compute on several threads (the engine does
// so for float64). attention_gradients() computes all parts in order.

#pragma once

#include <span>

#include "fovea/attention_options.h"
#include "fovea/reference.h"

namespace fovea::reference {

/// Returns gradients filled with zeros, in the arithmetic's type. The gradient of an option that is
/// not set is undefined. Throws as attention_gradients().
Gradients zero_gradients(const Inputs& inputs, const AttentionOptions& options,
                         const ReferenceOptions& how = {});

/// Adds the contributions of the queries `rows` to `sums`, in order. `sums` comes from
/// zero_gradients() with the same arithmetic; the caller may replace gradients of options by
/// undefined tensors to skip them. Adding all queries, in the order of batch, head and position,
/// gives the result of attention_gradients() before its final rounding of the gradients of query,
/// key and value.
///
/// Calls may run in parallel if they write to different elements. The query heads of different kv
/// heads write to different elements of query, key, value, relative and sinks, and also of bias
/// unless bias is broadcast over heads. Throws as attention_gradients(). Rows must be within the
/// problem; this is not checked.
void add_row_gradients(const Inputs& inputs, const OutputGradients& outputs,
                       const AttentionOptions& options, std::span<const Row> rows,
                       const ReferenceOptions& how, Gradients& sums);

}  // namespace fovea::reference
