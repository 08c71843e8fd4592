// SPDX-License-Identifier: Apache-2.0
//
// Maps and statistics of several heads, made one: their mean, or the largest of each number. Heads
// come one after the other, so that memory does not grow with how many there are.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/map.h"

namespace fovea::engine {

/// Some numbers of each head, float32 or float64, made one in double and in the heads' order. A nan
/// stays.
class NumbersOfHeads {
 public:
  /// `how` is kMean or kMax; `none` is what becomes of a number that no head has.
  NumbersOfHeads(Pool how, double none) : how_(how), none_(none) {}

  /// `has` says of each number whether this head has it.
  void add(const Tensor& numbers, const std::vector<char>& has);
  /// Whether `number` would be a new maximum.
  bool is_larger(double number, std::size_t i) const;
  /// float64, of the shape that came.
  Tensor result() const;

 private:
  Pool how_;
  double none_;
  Shape shape_;
  std::vector<double> all_;          // sums or maxima
  std::vector<std::int32_t> heads_;  // that have the number
};

/// A map and its statistics. A cell is masked where it is in every head. The mean of a cell's pairs
/// is over the heads that see one; numbers of a row are over the heads in which it sees a key.
class MapOfHeads {
 public:
  explicit MapOfHeads(Pool how);

  /// Of one more head. But for the head, requests are the same.
  void add(const AttentionMap& head);
  /// Its numbers are float64. The mean of maxima is no key's: maximum_key is -1.
  AttentionMap result(const MapRequest& request) &&;

 private:
  void add_rows(const LensBuffers& rows);

  Pool how_;
  Tensor pairs_, maximum_key_;
  NumbersOfHeads cells_, entropy_, maximum_, mean_distance_, distance_variance_, first_key_;
};

}  // namespace fovea::engine
