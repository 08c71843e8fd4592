// SPDX-License-Identifier: Apache-2.0
//
// Counts the binding's calls of attention_forward, so that third-party test suites can verify that
// they test the engine (fovea._fovea._forward_calls; attention_backward.cc has its counterpart).

#pragma once

#include <atomic>
#include <cstdint>

#include "fovea/attention.h"

namespace fovea::python {

inline std::atomic<std::int64_t> forward_calls{0};

/// Calls attention_forward and counts the call, even if it throws.
inline void forward(const TensorView& query, const TensorView& key, const TensorView& value,
                    const AttentionOptions& options, const AttentionOutputs& outputs) {
  forward_calls.fetch_add(1, std::memory_order_relaxed);
  attention_forward(query, key, value, options, outputs);
}

}  // namespace fovea::python
