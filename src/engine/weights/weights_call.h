// SPDX-License-Identifier: Apache-2.0
//
// What all calls that find weights again have in common (fovea/weights.h): their checks, and items
// on threads.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/weights.h"

#include "engine/call/parallel.h"
#include "engine/call/problem.h"
#include "engine/call/workspace.h"
#include "kernels/weights/weights.h"

namespace fovea::engine {

/// Keys of a block, and so of an item that looks at columns: their vectors of sums and packed keys
/// share the second cache with a panel of scores.
inline constexpr std::int64_t kWeightBlockKeys = 512;

/// Checks the inputs but for lse. Throws InvalidArgument.
Problem weights_problem(const WeightInputs& inputs, const AttentionOptions& options);
Problem weights_problem(const WeightInputs& inputs, const AttentionOptions&& options) = delete;
void check_lse(const Problem& problem, const TensorView& lse);
/// Of an argument's `name`, from 0 to before `most`.
void check_index(std::string_view name, std::int64_t index, std::string_view most_name,
                 std::int64_t most);

class WeightsCall {
 public:
  /// Looks into both, which have to outlive it.
  WeightsCall(const WeightInputs& inputs, const Problem& problem);
  WeightsCall(const WeightInputs& inputs, const Problem&& problem) = delete;

  /// All queries and keys of a head.
  kernels::WeightsItem item(std::int64_t batch, std::int64_t head) const;

  /// Calls work(number, scratch) for items from 0 to `items`.
  template <class Work>
  void run(std::int64_t items, const Work& work) const {
    const Execution& execution = problem_.options.execution;
    const int threads = thread_count(execution, items);
    const Workspace workspace({}, static_cast<std::size_t>(threads) * scratch_bytes_);
    for_each_item(execution, threads, items, [&](std::int64_t number, int thread) {
      work(number, workspace.data() + static_cast<std::size_t>(thread) * scratch_bytes_);
    });
  }
  void run_item(const kernels::WeightsItem& item, std::byte* scratch) const;

 private:
  const WeightInputs& inputs_;
  const Problem& problem_;
  kernels::WeightsSetup setup_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace fovea::engine
