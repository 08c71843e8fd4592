// SPDX-License-Identifier: Apache-2.0
//
// The reference's gradients in parts, for who has threads to find them on (the engine, for
// float64). attention_gradients() is all parts, one after the other.

#pragma once

#include <cstdint>
#include <span>

#include "fovea/attention_options.h"
#include "fovea/reference.h"

namespace fovea::reference {

/// Gradients of 0: of the arithmetic's type, absent where the options have no such thing. Throws as
/// attention_gradients() does.
Gradients zero_gradients(const Inputs& inputs, const AttentionOptions& options,
                         const ReferenceOptions& how = {});

/// Adds to `sums`, those of zero_gradients() in the same arithmetic, what comes by way of some
/// queries, one after the other; a gradient that was made absent is not asked for. All queries in
/// the order of batches, heads and places give attention_gradients() before it rounds those of
/// query, key and value at last.
///
/// Two heads of keys write to different elements of query, key and value, with the query heads that
/// read them; to different ones of relative and sinks; of bias where it has numbers of its own for
/// each. Errors as attention_gradients(); rows have to be of the problem.
void add_row_gradients(const Inputs& inputs, const OutputGradients& outputs,
                       const AttentionOptions& options, std::span<const Row> rows,
                       const ReferenceOptions& how, Gradients& sums);

}  // namespace fovea::reference
