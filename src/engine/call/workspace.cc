// SPDX-License-Identifier: Apache-2.0
//
// Allocation and reuse of workspace memory (workspace.h).

#include "engine/call/workspace.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "core/fail.h"
#include "core/large_pages.h"

namespace fovea::engine {

thread_local constinit bool Workspace::ended_ = false;
thread_local Workspace::Kept Workspace::kept_;

namespace {

// Small pages scatter a workspace over the sets of the L2 cache, and each one needs its own TLB
// entry. A large page avoids both problems.
constexpr std::size_t kWorthLargePages = kLargePage / 4;

std::byte* allocate(std::size_t bytes) {
  const bool large = bytes >= kWorthLargePages;
  const std::size_t rounded = large ? (bytes + kLargePage - 1) / kLargePage * kLargePage : bytes;
  void* const memory = std::aligned_alloc(
      large ? kLargePage : kWorkspaceAlignment,
      (rounded + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  if (large) prefer_large_pages(memory, rounded);
  return static_cast<std::byte*>(memory);
}

}  // namespace

void Workspace::Free::operator()(std::byte* memory) const { std::free(memory); }

Workspace::Workspace(std::span<std::byte> given, std::size_t bytes, User user)
    : kept_here_(kept_for(user)) {
  if (!given.empty()) {
    void* at = given.data();
    std::size_t room = given.size();
    if (std::align(kWorkspaceAlignment, bytes, at, room) == nullptr) {
      fail_argument("workspace", "expected {} bytes, got {}", bytes_with_alignment(bytes),
                    given.size());
    }
    data_ = static_cast<std::byte*>(at);
    return;
  }
  if (kept_here_ != nullptr) owned_ = std::exchange(*kept_here_, {});
  if (owned_.bytes < bytes) {
    owned_ = {};  // free the old memory first, so that the two never coexist
    owned_.memory.reset(allocate(bytes));
    owned_.bytes = bytes;
  }
  data_ = owned_.memory.get();
}

Workspace::~Workspace() {
  if (kept_here_ != nullptr && owned_.bytes > kept_here_->bytes) *kept_here_ = std::move(owned_);
}

std::size_t Workspace::bytes_with_alignment(std::size_t bytes) {
  return bytes + kWorkspaceAlignment - 1;
}

}  // namespace fovea::engine
