// SPDX-License-Identifier: Apache-2.0
//
// The pipeline of the backward pass by the tile unit (tile_products-inl.h): while the vector unit
// computes P and dS of one unit of 32 keys by 32 queries (unit_gradients-inl.h), the tile unit
// computes S and dP of the next one, and some of the sums over an earlier stretch of keys.

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backward/unit_gradients-inl.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// The number of floats in a square of 32 x 32 sums.
constexpr std::int64_t kSquare = 32 * 32;

/// The sums of several squares, with the same weights.
struct SquareSums {
  Sums next;
  std::int64_t squares;             // that are left
  std::int64_t a_square, b_square;  // the distances between squares of the operands
};

/// kMaxLists: the largest number of SquareSums of a stretch.
template <class Numbers, std::int64_t kMaxLists>
class UnitPipeline {
 public:
  static constexpr std::int64_t kWorkFloats = 4 * kSquare + kUnitRows * kPanelLanes;

  struct Unit {
    Sums scores{}, gradients{};       // the products S and dP; push() decides where they are stored
    float factor = 1.0f;              // the softmax multiplies scores by it
    const float* log2_sum = nullptr;  // [kPanelLanes]
    const float* delta = nullptr;     // [kPanelLanes]
    UnitOperands<Numbers> to = {};
  };

  /// `steps` is the number of steps of a unit and its share of the sums.
  explicit UnitPipeline(std::int64_t steps) : steps_(steps) {}

  /// Begins a stretch of at most `units` units. `work` has kWorkFloats elements, the same for all
  /// stretches.
  void begin_stretch(float* work, std::int64_t units) {
    work_ = work;
    units_left_ = units;
  }

  void push(Unit unit) {
    const std::int64_t sums = (sums_left_ + units_left_ - 1) / units_left_;
    units_left_ = std::max<std::int64_t>(units_left_ - 1, 1);
    unit.scores.to = current_.scores.to == scores_of(0) ? scores_of(1) : scores_of(0);
    unit.gradients.to = unit.scores.to + kSquare;
    advance(&unit, sums_ready_ ? sums : 0);
    current_ = unit;
  }

  /// Finishes the sums of the previous stretch, so that those of the current one can be added.
  void begin_sums() {
    finish_sums();
    sums_ready_ = !has_unit();
  }
  void add_sums(const SquareSums& sums) {
    if (sums.squares == 0) return;
    sums_[lists_++] = sums;
    sums_left_ += sums.squares;
  }

  /// Computes P and dS of all units.
  void finish_units() {
    if (!running_) return;
    if (has_unit()) {
      advance(nullptr, 0);
    } else {
      store_sums<2>(pending_);
    }
    running_ = false;
  }
  void finish_sums() {
    if (!sums_ready_) finish_units();
    if (sums_left_ > 0) advance(nullptr, sums_left_);
    list_ = lists_ = 0;
  }

 private:
  bool has_unit() const { return current_.scores.to != nullptr; }
  float* scores_of(std::int64_t buffer) const { return work_ + 2 * buffer * kSquare; }
  float* nowhere() const { return work_ + 4 * kSquare; }

  Sums next_sums() {
    SquareSums& list = sums_[list_];
    const Sums sums = list.next;
    list.next.a += list.a_square;
    list.next.b += list.b_square;
    if (list.next.from != nullptr) list.next.from += kSquare;
    list.next.to += kSquare;
    if (--list.squares == 0) ++list_;
    --sums_left_;
    return sums;
  }

  /// Computes P and dS of the current unit, if there is one, the products of `next`, unless it is
  /// null, and `sums` of the sums.
  void advance(const Unit* next, std::int64_t sums) {
    if (!running_) pending_ = {{nowhere(), nowhere(), nowhere(), nowhere()}};
    running_ = true;
    if (!has_unit()) {
      NoWeights none;
      return advance_with<0>(next, sums, none);
    }
    UnitGradients<Numbers> unit(current_.factor, current_.log2_sum, current_.delta,
                                current_.scores.to, current_.gradients.to, current_.to);
    if (steps_ >= 16) {
      advance_with<1>(next, sums, unit);
    } else if (steps_ >= 8) {
      advance_with<2>(next, sums, unit);
    } else {
      advance_with<4>(next, sums, unit);
    }
    current_ = {};
    sums_ready_ = true;
  }
  template <int kRows, class Between>
  HWY_NOINLINE void advance_with(const Unit* next, std::int64_t sums, Between& weights) {
    // Queries of many dimensions would fill too much of the L1 cache.
    constexpr bool kStreams = kRows == 1;
    Pending pending = pending_;  // copies, which stay in registers
    Between between = weights;
    if (next != nullptr) {
      four_sums<Numbers, 2, false, kRows, kStreams>(next->scores, pending, between);
      four_sums<Numbers, 2, false, kRows, kStreams>(next->gradients, pending, between);
    }
    for (std::int64_t i = 0; i < sums; ++i) {
      four_sums<Numbers, 2, false, kRows, true>(next_sums(), pending, between);
    }
    if (sums == 0) {  // the next call reads what is pending
      store_sums<2>(pending);
      pending = {{nowhere(), nowhere(), nowhere(), nowhere()}};
    }
    while (between.left() > 0) between.two_keys();
    pending_ = pending;
  }

  float* work_ = nullptr;  // S and dP of two units, and a tile that nothing reads
  const std::int64_t steps_;
  Unit current_;                       // has S and dP
  std::int64_t units_left_ = 1;        // of the stretch, at most
  SquareSums sums_[kMaxLists];         // of the previous stretch
  std::int64_t list_ = 0, lists_ = 0;  // the next of sums_, and their number
  std::int64_t sums_left_ = 0;
  bool sums_ready_ = true;  // all units of the previous stretch are finished
  bool running_ = false;    // sums are pending
  Pending pending_{};
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
