// SPDX-License-Identifier: Apache-2.0
//
// Passes over the ring in which sums of each key are collected. Keys travel as in the forward pass;
// their sums follow one step behind, because each rank adds its own part after it has computed it.
// After the last rank that needs a piece, its sums go straight to the owner. They are combined in
// the order of ranks from the owner on, which is fixed.

#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "distributed/ring_pass.h"

namespace fovea::distributed {

class SummingPass : public RingPass {
 public:
  virtual ~SummingPass() = default;

 protected:
  using RingPass::RingPass;

  /// Runs the pass. `more_bytes` of memory are passed to `use_memory` first. Throws the errors of
  /// all ranks. Collective.
  void run(std::size_t more_bytes, const std::function<void(std::byte*)>& use_memory);

  /// Returns the size of the sums of pieces, a multiple of 64 bytes for each piece.
  virtual std::size_t sum_bytes(const std::vector<KeyPiece>& pieces) const = 0;
  /// Computes the sums of this rank's queries for a piece.
  virtual void compute(const KeyPiece& piece, const PieceTensors& tensors, std::byte* sums) = 0;
  /// Combines the sums of pieces with those of the ranks before.
  virtual void combine(const std::vector<KeyPiece>& pieces, const std::byte* before,
                       std::byte* sums) const = 0;
  /// Writes the results. `pieces` are those of this rank.
  virtual void write(const std::vector<KeyPiece>& pieces, std::byte* sums) = 0;

 private:
  void return_sums(const RingPlan& plan, int step, std::span<std::byte> sums,
                   std::span<std::byte> own_sums);
};

}  // namespace fovea::distributed
