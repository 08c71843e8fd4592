// SPDX-License-Identifier: Apache-2.0
//
// Computations that the processes of a job share (shell/job.h). Every process maps the files, and
// copies only its part of the tensors. Results are on rank 0.

#pragma once

#include "fovea/attention.h"
#include "fovea/distributed.h"
#include "fovea/heads.h"
#include "fovea/map.h"

#include "cli/problem/inputs.h"

namespace fovea::cli {

/// Each of these computes what the function of the same name in fovea computes, in this process
/// alone if it is by itself. Collective.
void attend_in_job(const AttendInputs& inputs, const AttentionOptions& options,
                   const AttentionOutputs& outputs);
AttentionMap map_in_job(const ProblemShape& shape, const WeightInputs& inputs,
                        const MapRequest& request, const AttentionOptions& options);
void heads_in_job(const ProblemShape& shape, const WeightInputs& inputs,
                  const AttentionOptions& options, const HeadSummary& summary);

}  // namespace fovea::cli
