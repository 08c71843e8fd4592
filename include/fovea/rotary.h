// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding (Su et al. 2021, "RoFormer"): pairs of dimensions of queries and keys
// are rotated by angles proportional to the position, so that query . key depends only on the
// distance between the two positions.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// Parameters of the rotation. The dimensions a and b of a pair are rotated by the position times
/// the frequency of the pair (Su et al. 2021, eq. 34):
///   a cos - b sin
///   b cos + a sin
struct Rotary {
  /// The two dimensions of pair i, if d dimensions are rotated.
  enum class Pairs : std::uint8_t {
    kHalves,       ///< i and i + d / 2, as in Llama in `transformers` ("rotate_half") and GPT-NeoX
    kInterleaved,  ///< 2 i and 2 i + 1, as in the paper and GPT-J
  };

  /// The frequency of pair i of d / 2 is base^(-2 i / d).
  double base = 10000.0;
  /// The number of leading dimensions to rotate, even; the others are copied (GPT-NeoX's partial
  /// rotary embedding). 0: all of head_dim.
  std::int64_t dims = 0;
  Pairs pairs = Pairs::kHalves;
  /// Explicit frequencies, one per pair, used instead of `base`. Useful for scaled variants (Llama
  /// 3, YaRN), and for rotating one token at a time without recomputing the powers.
  /// For YaRN's factor on queries and keys, multiply ScoreOptions::scale by its square.
  std::vector<double> inverse_frequencies = {};
};

/// Returns base^(-2 i / dims) for all integers i in [0, dims / 2), the starting point of scaled
/// variants. Throws InvalidArgument if `dims` is odd or negative, or if `base` is not a positive
/// finite number.
FOVEA_API std::vector<double> rotary_inverse_frequencies(double base, std::int64_t dims);

/// Writes `source`, rotated, to `target`.
///
/// source  [..., length, dim]  any float type, any strides; at least 2 dimensions
/// target  [..., length, dim]  any float type, any strides. The memory ranges of source and target,
///                             from first to last element, must not overlap, unless every element
///                             of target has the same address as in source.
///
/// Token t of each sequence has position first_position + t. For a key at position 7 of a cache:
/// \code
///   apply_rotary(key, 7, Rotary{.base = 500000.0}, key_rotated);
/// \endcode
///
/// Numerics angles, sines and cosines in float64, for positions from -2^53 to 2^53; products and
///          their sum in float32 (float64 if source or target is float64), rounded once to the
///          target's type. If one element of a pair is infinite, both results may be NaN, as in
///          IEEE arithmetic.
/// Cost     one sine and one cosine per position and pair, independent of the number of heads.
/// Threads  re-entrant; runs on the calling thread.
/// Errors   throws InvalidArgument naming the argument, the expected and the actual value, before
///          target is modified.
FOVEA_API void apply_rotary(const TensorView& source, std::int64_t first_position,
                            const Rotary& rotary, const MutableTensorView& target);

/// As above, at explicit positions: int64 [length] for all sequences, or [batch, length]. The
/// latter requires a source of at least three dimensions, the first of which is batch.
FOVEA_API void apply_rotary(const TensorView& source, const TensorView& positions,
                            const Rotary& rotary, const MutableTensorView& target);

}  // namespace fovea
