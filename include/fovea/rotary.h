// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding (Su et al. 2021, "RoFormer"): pairs of dimensions of queries and keys
// are turned by angles that grow with the position, so that query . key depends on how far apart
// the two stand and not on where.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// How rows are rotated: dimension a and b of a pair become, by the angle that is position times
/// the pair's frequency (Su et al. 2021, eq. 34),
///   a cos - b sin
///   b cos + a sin
struct Rotary {
  /// Which dimensions are a pair; of d dims that are rotated, pair i has
  enum class Pairs : std::uint8_t {
    kHalves,       ///< i and i + d / 2, as Llama in `transformers` ("rotate_half") and GPT-NeoX
    kInterleaved,  ///< 2 i and 2 i + 1, as the paper and GPT-J
  };

  /// Pair i of d / 2 turns with the frequency base^(-2 i / d).
  double base = 10000.0;
  /// The first so many dims are rotated, an even number, the rest copied (GPT-NeoX's partial
  /// rotary); 0: all of head_dim.
  std::int64_t dims = 0;
  Pairs pairs = Pairs::kHalves;
  /// The frequencies themselves, one for each pair, in place of base. For scaled ones (Llama 3,
  /// YaRN), and where one token is rotated at a time, since powers are not computed anew then. What
  /// YaRN multiplies to queries and keys belongs to ScoreOptions::scale, squared.
  std::vector<double> inverse_frequencies = {};
};

/// base^(-2 i / dims) for i from 0 to dims / 2: what a scaled variant starts from. Throws
/// InvalidArgument for an odd or negative `dims` and a base that is not a positive number.
FOVEA_API std::vector<double> rotary_inverse_frequencies(double base, std::int64_t dims);

/// target = source, rotated.
///
/// source  [..., length, dim]  floats of any type, any strides; 2 dimensions or more
/// target  [..., length, dim]  likewise, of the same or another type of float; memory of its own,
///                             from its first to its last element, or that of source, element for
///                             element
///
/// The token t of each sequence stands at first_position + t. As a key at position 7 of a cache:
/// \code
///   apply_rotary(key, 7, Rotary{.base = 500000.0}, key_rotated);
/// \endcode
///
/// Numerics angles, sines and cosines in float64, from positions up to 2^53 either way; products
///          and their sum in float32 (float64 where source or target is), rounded once to the
///          target's type. In a pair with inf both may become nan, as arithmetic has it.
/// Cost     a sine and a cosine for each position and pair, whatever the heads.
/// Threads  re-entrant; runs on the calling thread.
/// Errors   throws InvalidArgument naming the argument, what was expected and what came, before
///          target is touched.
FOVEA_API void apply_rotary(const TensorView& source, std::int64_t first_position,
                            const Rotary& rotary, const MutableTensorView& target);

/// The same at positions of your own: int64 [length], for all; or [batch, length], where batch is
/// the first of three or more dimensions of source.
FOVEA_API void apply_rotary(const TensorView& source, const TensorView& positions,
                            const Rotary& rotary, const MutableTensorView& target);

}  // namespace fovea
