// SPDX-License-Identifier: Apache-2.0
//
// Memory to compute in (workspace.h).

#include "engine/workspace.h"

#include <new>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea::engine {

thread_local Workspace::Owned Workspace::kept_;

void Workspace::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t{kWorkspaceAlignment});
}

Workspace::Workspace(std::span<std::byte> given, std::size_t bytes) {
  if (!given.empty()) {
    void* at = given.data();
    std::size_t room = given.size();
    if (std::align(kWorkspaceAlignment, bytes, at, room) == nullptr) {
      throw InvalidArgument(fmt::format("workspace: expected {} bytes, got {}",
                                        bytes_with_alignment(bytes), given.size()));
    }
    data_ = static_cast<std::byte*>(at);
    return;
  }
  owned_ = std::exchange(kept_, {});
  if (owned_.bytes < bytes) {
    owned_ = {};  // first, or both would be there for a moment
    owned_.memory.reset(static_cast<std::byte*>(
        ::operator new(bytes, std::align_val_t{kWorkspaceAlignment})));
    owned_.bytes = bytes;
  }
  data_ = owned_.memory.get();
}

Workspace::~Workspace() {
  if (owned_.bytes > kept_.bytes) kept_ = std::move(owned_);
}

std::size_t Workspace::bytes_with_alignment(std::size_t bytes) {
  return bytes + kWorkspaceAlignment - 1;
}

}  // namespace fovea::engine
