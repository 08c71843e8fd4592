// SPDX-License-Identifier: Apache-2.0
//
// Software prefetching of tensor rows during computation.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/simd/rows_of.h"

namespace fovea::kernels {

/// Prefetches rows into the L2 cache, a few cache lines at a time.
template <class Pointee>
class Prefetcher {
 public:
  /// Schedules `count` rows of `dim` elements each, starting at row `first`, spread over `calls`
  /// calls of fetch(). Schedules nothing if `rows` is null.
  void start(const RowsOf<Pointee>& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
             std::int64_t calls) {
    left_ = 0;
    if (rows.data == nullptr || count <= 0 || calls <= 0) return;
    const auto element = static_cast<std::int64_t>(dtype_size(rows.dtype));
    row_ = rows.row(first);
    stride_ = rows.stride * element;
    lines_ = (dim * element + kLine - 1) / kLine;
    line_ = 0;
    left_ = count * lines_;
    per_call_ = (left_ + calls - 1) / calls;
  }
  void fetch() {
    for (std::int64_t i = std::min(per_call_, left_); i > 0; --i) {
      __builtin_prefetch(row_ + line_ * kLine, std::is_const_v<Pointee> ? 0 : 1, 2);
      if (++line_ == lines_) {
        line_ = 0;
        row_ += stride_;
      }
    }
    left_ -= std::min(per_call_, left_);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const std::byte* row_ = nullptr;
  std::int64_t stride_ = 0, lines_ = 0, line_ = 0, left_ = 0, per_call_ = 0;
};

/// Prefetches rows of `dim` floats into the L2 cache, one cache line after another. The first row
/// is `ahead` floats after `first`. Prefetches nothing if `ahead` is 0.
class RowLines {
 public:
  static constexpr std::int64_t kFloats = 16;  // of a line

  RowLines(const float* first, std::int64_t ahead, std::int64_t stride, std::int64_t dim)
      : row_(first + ahead), stride_(stride), dim_(dim), any_(ahead != 0) {}

  /// Always inlined, because GCC removes calls to functions that only prefetch.
  template <int kLines>
  [[gnu::always_inline]] void fetch() {
    if (!any_) return;
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kFloats;
      if (at_ < dim_) continue;
      at_ = 0;
      row_ += stride_;
    }
  }

 private:
  const float* row_;
  std::int64_t stride_, dim_, at_ = 0;
  bool any_;
};

}  // namespace fovea::kernels
