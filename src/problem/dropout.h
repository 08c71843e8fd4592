// SPDX-License-Identifier: Apache-2.0
//
// The random numbers of dropout: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"), a counter-based generator. The kernels contain a vectorised version.

#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "fovea/attention_options.h"

namespace fovea {

namespace philox {

inline constexpr int kRounds = 10;
inline constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

/// Returns four random words for a four-word counter and a two-word key.
inline std::array<std::uint32_t, 4> words(std::array<std::uint32_t, 4> counter,
                                          std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t b = std::uint64_t{kMultiplier1} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

}  // namespace philox

/// Dropout for one head of one batch item or packed sequence. Four consecutive keys, the first at a
/// multiple of four, share a counter: {key / 4, query, item * q_heads + head, call}.
class DropoutRule {
 public:
  DropoutRule(const Dropout& dropout, std::int64_t item, std::int64_t head, std::int64_t q_heads)
      : threshold_(static_cast<std::uint32_t>(std::floor(dropout.probability * 0x1p32))),
        factor_(1.0 / (1.0 - dropout.probability)),
        key_{static_cast<std::uint32_t>(dropout.seed),
             static_cast<std::uint32_t>(dropout.seed >> 32)},
        head_(static_cast<std::uint32_t>(item * q_heads + head)),
        call_(dropout.call),
        first_query_(dropout.first_query),
        first_key_(dropout.first_key) {}

  /// Returns the threshold: a weight is kept if its random word is at least this.
  std::uint32_t threshold() const { return threshold_; }
  /// Returns the factor for kept weights, 1 / (1 - probability).
  double factor() const { return factor_; }
  std::array<std::uint32_t, 2> key() const { return key_; }
  /// Returns the counter of the group of four keys that contains `key`.
  std::array<std::uint32_t, 4> counter(std::int64_t query, std::int64_t key) const {
    return {static_cast<std::uint32_t>((first_key_ + key) / 4),
            static_cast<std::uint32_t>(first_query_ + query), head_, call_};
  }
  /// Returns the position of `key` in its group.
  std::int64_t place(std::int64_t key) const { return (first_key_ + key) % 4; }

  bool keeps(std::int64_t query, std::int64_t key) const {
    const auto words = philox::words(counter(query, key), key_);
    return words[static_cast<std::size_t>(place(key))] >= threshold_;
  }

 private:
  std::uint32_t threshold_;
  double factor_;
  std::array<std::uint32_t, 2> key_;
  std::uint32_t head_;
  std::uint32_t call_;
  std::int64_t first_query_, first_key_;
};

}  // namespace fovea
