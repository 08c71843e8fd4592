// SPDX-License-Identifier: Apache-2.0
//
// NumPy's legacy random stream, so that arrays written down with `numpy.random.seed(...)` can be
// drawn again here, bit for bit. It stands beside the tensors: it knows nothing of attention.
// Meant for repeatable examples and tests; it is neither fast nor fit for secrets.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// The stream of `numpy.random.RandomState`, integers at NumPy's int64.
///
/// Source   the Mersenne Twister MT19937: Matsumoto and Nishimura, "Mersenne Twister: a
///          623-dimensionally equidistributed uniform pseudo-random number generator", ACM TOMACS
///          8(1), 1998, seeded by their `init_genrand`; normal values by Marsaglia's polar method
///          (Marsaglia and Bray, "A convenient method for generating normal variables", SIAM
///          Review 6(3), 1964).
/// Numerics words, integers and uniform doubles equal NumPy's bit for bit. Normal values go through
///          the platform's `log`: they equal NumPy's where both use the same one, and lie within an
///          ulp otherwise.
/// Order    a tensor is filled row by row, and takes from the stream what as many single calls
/// take. Copies   a copy continues the stream by itself. Threads  one object belongs to one thread
/// at a time. Errors   throws InvalidArgument and then leaves the stream where it was.
class FOVEA_API RandomState {
 public:
  /// Starts the stream of `seed`, which must lie in 0 .. 2^32 - 1.
  explicit RandomState(std::uint64_t seed);

  /// Starts over with `seed`, and forgets the normal value kept for the next randn().
  void seed(std::uint64_t seed);

  /// The next 32 bits of the generator, tempered but otherwise raw.
  std::uint32_t next_word();

  /// An integer in low .. high - 1; low < high. Masked rejection: words are cut to the bits of
  /// high - low - 1 and drawn again while too large. A range that fits into 32 bits takes one word
  /// a try, a wider one two (the high one first); high - low == 1 takes none.
  std::int64_t randint(std::int64_t low, std::int64_t high);
  /// The same for every element of an int64 tensor.
  Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape);

  /// A double in [0, 1), a multiple of 2^-53, from two words.
  double rand();
  /// The same for every element of a float64 tensor.
  Tensor rand(const Shape& shape);

  /// A standard normal double. Values are made in pairs; the second is kept for the next call.
  double randn();
  /// The same for every element of a float64 tensor.
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
