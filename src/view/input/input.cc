// SPDX-License-Identifier: Apache-2.0
//
// Inputs (input.h, open.h).

#include "view/input/input.h"

#include <sys/stat.h>

namespace fovea::view {

std::string_view input_kind_name(InputKind kind) {
  if (kind == InputKind::kScene) return "scene";
  return kind == InputKind::kTensors ? "tensors" : "recording";
}

FileState file_state(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) return {};
#ifdef __APPLE__
  const timespec& time = state.st_mtimespec;
#else
  const timespec& time = state.st_mtim;
#endif
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return {static_cast<std::uint64_t>(state.st_size),
          static_cast<std::int64_t>(time.tv_sec) * kNanoseconds + time.tv_nsec};
}

const std::string* Input::changed_file() const {
  for (const OpenedFile& file : files) {
    if (file_state(file.path) != file.state) return &file.path;
  }
  return nullptr;
}

}  // namespace fovea::view
