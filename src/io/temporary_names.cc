// SPDX-License-Identifier: Apache-2.0
//
// Fixed-size list in static memory (temporary_names.h), because a signal handler must not allocate
// or block.

#include "io/temporary_names.h"

#include <cstring>

#include <unistd.h>

#include "fovea/files.h"

namespace fovea {
namespace {

using Slot = TemporaryName::Slot;
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::size_t kSlots = 16;
constinit std::array<Slot, kSlots> slots;

}  // namespace

void TemporaryName::keep(const std::string& path) {
  forget();
  if (path.size() >= PATH_MAX) return;  // no file can have so long a path
  for (Slot& slot : slots) {
    int free = Slot::kFree;
    if (!slot.state.compare_exchange_strong(free, Slot::kTaken)) continue;
    std::memcpy(slot.path.data(), path.c_str(), path.size() + 1);
    slot.state.store(Slot::kKept);
    slot_ = &slot;
    return;
  }
}

void TemporaryName::forget() {
  if (slot_ != nullptr) slot_->state.store(Slot::kFree);
  slot_ = nullptr;
}

void remove_temporary_files() noexcept {
  for (const Slot& slot : slots) {
    if (slot.state.load() == Slot::kKept) ::unlink(slot.path.data());
  }
}

}  // namespace fovea
