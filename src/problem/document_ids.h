// SPDX-License-Identifier: Apache-2.0
//
// Document ids along queries or keys, with a summary of each group of 64, so that bounds() and
// sorted() need not read every id of a range.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/tensor.h"

namespace fovea {

class DocumentIds {
 public:
  /// The smallest and the largest id of a range.
  struct Bounds {
    std::int64_t least;
    std::int64_t most;
  };

  /// Copies ids of type int64 and shape [length] or [batch, length]. Uses O(length / 64) memory per
  /// row in addition to the ids.
  explicit DocumentIds(const Tensor& ids);

  const Shape& shape() const { return shape_; }
  Tensor tensor() const { return Tensor::from(shape_, ids_); }

  /// Returns a copy of `count` ids of row(batch), starting at position `begin`.
  DocumentIds cut(std::int64_t batch, std::int64_t begin, std::int64_t count) const;
  /// Returns a copy of `count` ids of each row, starting at position `begin`.
  DocumentIds cut(std::int64_t begin, std::int64_t count) const;

  /// Returns the ids of a batch item. A single row applies to all batch items.
  std::span<const std::int64_t> row(std::int64_t batch) const;

  /// Returns the bounds of `count` ids (at least one) of row(batch), starting at position `begin`.
  /// Reads the summaries of whole groups and the individual ids before and after them.
  Bounds bounds(std::int64_t batch, std::int64_t begin, std::int64_t count) const;

  /// Returns whether the ids of this range are in non-decreasing order.
  bool sorted(std::int64_t batch, std::int64_t begin, std::int64_t count) const;

 private:
  struct Group {
    Bounds bounds;
    /// The number of descents in the row up to and including the first id of this group. A descent
    /// is an id smaller than its predecessor.
    std::int64_t descents;
  };
  static constexpr std::int64_t kGroup = 64;

  std::int64_t row_number(std::int64_t batch) const;
  std::span<const Group> groups(std::int64_t batch) const;

  Shape shape_;
  std::vector<std::int64_t> ids_;
  std::int64_t length_ = 0;    // ids per row
  std::vector<Group> groups_;  // row by row; every row starts a new group
};

}  // namespace fovea
