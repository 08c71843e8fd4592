// SPDX-License-Identifier: Apache-2.0
//
// Document ids along queries or keys, with what is known of each 64 of them, so that a block need
// not look at every one.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/tensor.h"

namespace fovea {

class DocumentIds {
 public:
  /// The smallest and the largest of some ids.
  struct Bounds {
    std::int64_t least;
    std::int64_t most;
  };

  /// int64 [length] or [batch, length]. O(length / 64) memory beside the ids.
  explicit DocumentIds(const Tensor& ids);

  const Shape& shape() const { return shape_; }

  /// A copy of `count` ids of row(batch), from position `begin` on.
  DocumentIds cut(std::int64_t batch, std::int64_t begin, std::int64_t count) const;

  /// The ids of a batch item; one row serves all.
  std::span<const std::int64_t> row(std::int64_t batch) const;

  /// Of `count` ids (at least one) of row(batch), from position `begin` on. Looks at whole groups
  /// of 64 and at the single ids before and after them.
  Bounds bounds(std::int64_t batch, std::int64_t begin, std::int64_t count) const;

  /// Whether none of these is smaller than the one before it.
  bool sorted(std::int64_t batch, std::int64_t begin, std::int64_t count) const;

 private:
  struct Group {
    Bounds bounds;
    /// How many ids of the row, up to the first of this group, are smaller than the one before.
    std::int64_t descents;
  };
  static constexpr std::int64_t kGroup = 64;

  std::int64_t row_number(std::int64_t batch) const;
  std::span<const Group> groups(std::int64_t batch) const;

  Shape shape_;
  std::vector<std::int64_t> ids_;
  std::int64_t length_ = 0;    // of a row
  std::vector<Group> groups_;  // row after row, each beginning with a group of its own
};

}  // namespace fovea
