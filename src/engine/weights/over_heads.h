// SPDX-License-Identifier: Apache-2.0
//
// Maps and statistics pooled over several heads, by mean or maximum of each element. Heads are
// added one after another, so that memory does not grow with the head count.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/map.h"

namespace fovea::engine {

/// Mean or maximum over heads of each element of float32 or float64 tensors, accumulated in double
/// in the order of the heads. NaN propagates.
class NumbersOfHeads {
 public:
  /// `how` is kMean or kMax. `none` is the result for elements that no head has.
  NumbersOfHeads(Pool how, double none) : how_(how), none_(none) {}

  /// Adds the tensor of one head. Elements with has[i] == 0 are skipped.
  void add(const Tensor& numbers, const std::vector<char>& has);
  /// Whether `number` would be a new maximum of element i.
  bool is_larger(double number, std::size_t i) const;
  /// Returns a float64 tensor of the shape of the added tensors.
  Tensor result() const;

 private:
  Pool how_;
  double none_;
  Shape shape_;
  std::vector<double> all_;          // sums or maxima
  std::vector<std::int32_t> heads_;  // number of heads that have the element
};

/// Throws InvalidArgument if the problem has no such map.
void check_request(const ProblemShape& shape, const MapRequest& request);

/// A map with its statistics, pooled over heads. A cell is masked if it is masked in every head. If
/// cells are means, a cell is pooled over the heads in which it has visible pairs. The statistics
/// of a row are pooled over the heads in which the row sees a key.
class MapOfHeads {
 public:
  explicit MapOfHeads(Pool how);

  /// Adds the map of one head. All maps must have the same request, except for the head.
  void add(const AttentionMap& head);
  /// Returns the pooled map in float64. With kMean, maximum_key is -1, because a mean of maxima
  /// belongs to no single key.
  AttentionMap result(const MapRequest& request) &&;

 private:
  void add_rows(const LensBuffers& rows);

  Pool how_;
  Tensor pairs_, maximum_key_;
  NumbersOfHeads cells_, entropy_, maximum_, mean_distance_, distance_variance_, first_key_;
};

}  // namespace fovea::engine
