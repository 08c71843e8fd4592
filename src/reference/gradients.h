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

/// A head of keys of one batch item. It is a part of the problem with the query heads that read it,
/// and with all sequences where they are packed.
struct KeyHead {
  std::int64_t batch = 0;
  std::int64_t head = 0;
};

/// Adds a part's gradients to `sums`, those of zero_gradients() in float64; one that was made
/// absent is not asked for. Two parts write to different elements of query, key and value; to
/// different ones of relative and sinks where their heads differ; of bias where it has numbers of
/// its own for each of their batch items or query heads. Parts that add to the same ones, in the
/// order of batches and then of heads, give the bits of attention_gradients(). Errors as there, and
/// for a part outside the problem.
void add_gradients(const Inputs& inputs, const OutputGradients& outputs,
                   const AttentionOptions& options, const KeyHead& part, Gradients& sums);

/// The same for what comes by way of some queries, in any arithmetic: `sums` are those of
/// zero_gradients() in it. The gradients of query, key and value are not rounded at last.
void add_row_gradients(const Inputs& inputs, const OutputGradients& outputs,
                       const AttentionOptions& options, std::span<const Row> rows,
                       const ReferenceOptions& how, Gradients& sums);

}  // namespace fovea::reference
