// SPDX-License-Identifier: Apache-2.0
//
// Memory that is needed soon, asked for while something else is computed.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/forward.h"

namespace fovea::kernels {

/// Fetches rows that are needed soon into the second cache, a few lines at a time.
template <class T>
class Prefetcher {
 public:
  /// `count` rows from `first` on, of `dim` numbers each, within so many calls of fetch().
  void start(const RowsOf<T>& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
             std::int64_t calls) {
    left_ = 0;
    if (count <= 0) return;
    row_ = reinterpret_cast<const char*>(rows.data + first * rows.stride);
    stride_ = rows.stride * std::int64_t{sizeof(float)};
    lines_ = (dim * std::int64_t{sizeof(float)} + kLine - 1) / kLine;
    line_ = 0;
    left_ = count * lines_;
    per_call_ = (left_ + calls - 1) / calls;
  }
  void fetch() {
    for (std::int64_t i = std::min(per_call_, left_); i > 0; --i) {
      __builtin_prefetch(row_ + line_ * kLine, std::is_const_v<T> ? 0 : 1, 2);
      if (++line_ == lines_) {
        line_ = 0;
        row_ += stride_;
      }
    }
    left_ -= std::min(per_call_, left_);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* row_ = nullptr;
  std::int64_t stride_ = 0, lines_ = 0, line_ = 0, left_ = 0, per_call_ = 0;
};

}  // namespace fovea::kernels
