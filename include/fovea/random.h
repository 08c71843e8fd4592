// SPDX-License-Identifier: Apache-2.0
//
// NumPy's legacy random stream: reproduces arrays defined by `numpy.random.seed(...)` bit for bit.
// Depends only on fovea/tensor.h, not on attention. Meant for reproducible examples and tests; it
// is not fast and not cryptographically secure.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// The stream of `numpy.random.RandomState`, with NumPy's int64 integers.
///
/// Source   the Mersenne Twister MT19937: Matsumoto and Nishimura, "Mersenne Twister: a
///          623-dimensionally equidistributed uniform pseudo-random number generator", ACM TOMACS
///          8(1), 1998, seeded by their `init_genrand`; normal values by Marsaglia's polar method
///          (Marsaglia and Bray, "A convenient method for generating normal variables", SIAM Review
///          6(3), 1964).
/// Numerics words, integers and uniform doubles equal NumPy's bit for bit. Normal values depend on
///          the platform's `log`: they equal NumPy's if both use the same one, and otherwise differ
///          by at most one ulp.
/// Order    a tensor is filled in row-major order and consumes the stream like the same number of
///          scalar calls.
/// Copies   a copy continues the stream independently.
/// Threads  an object must not be used by several threads at the same time.
/// Errors   throws InvalidArgument; the stream position is then unchanged.
class FOVEA_API RandomState {
 public:
  /// Starts the stream of `seed`, which must be in 0 .. 2^32 - 1.
  explicit RandomState(std::uint64_t seed);

  /// Restarts the stream with `seed` and discards the normal value stored for the next randn().
  void seed(std::uint64_t seed);

  /// Returns the next 32-bit word of the generator, after tempering.
  std::uint32_t next_word();

  /// Returns a uniform integer in low .. high - 1. Requires low < high. Uses masked rejection: a
  /// word is masked to the bits of high - low - 1 and drawn again while it is too large. Each try
  /// takes one word if the range fits into 32 bits, else two (the high one first); high - low == 1
  /// takes none.
  std::int64_t randint(std::int64_t low, std::int64_t high);
  /// Returns an int64 tensor of uniform integers in low .. high - 1.
  Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape);

  /// Returns a uniform double in [0, 1), a multiple of 2^-53, from two words.
  double rand();
  /// Returns a float64 tensor of uniform values.
  Tensor rand(const Shape& shape);

  /// Returns a standard normal double. Values are generated in pairs; the second is stored for the
  /// next call.
  double randn();
  /// Returns a float64 tensor of standard normal values.
  Tensor randn(const Shape& shape);

 private:
  static constexpr std::size_t kStateWords = 624;

  void refill();

  std::array<std::uint32_t, kStateWords> state_{};
  std::size_t position_ = 0;
  double spare_normal_ = 0.0;
  bool has_spare_normal_ = false;
};

}  // namespace fovea
