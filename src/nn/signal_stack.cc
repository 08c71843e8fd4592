// SPDX-License-Identifier: Apache-2.0
//
// An alternate stack for signal handlers (fovea/nn/signal_stack.h).

#include "fovea/nn/signal_stack.h"

#include <array>
#include <csignal>
#include <cstddef>

namespace fovea::nn {
namespace {

// A signal frame stores all registers, which takes 11 KB if AMX is in use.
constexpr std::size_t kStackBytes = 64 << 10;

}  // namespace

void use_signal_stack() {
  alignas(64) static std::array<std::byte, kStackBytes> memory;
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  stack = {};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

}  // namespace fovea::nn
