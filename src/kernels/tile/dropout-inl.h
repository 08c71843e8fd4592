// SPDX-License-Identifier: Apache-2.0
//
// Vectorised dropout (problem/dropout.h), one query per lane. Each lane has its own counter, which
// gives the random words of four adjacent keys.

#if defined(FOVEA_KERNELS_TILE_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_TILE_DROPOUT_INL_H_
#undef FOVEA_KERNELS_TILE_DROPOUT_INL_H_
#else
#define FOVEA_KERNELS_TILE_DROPOUT_INL_H_
#endif

#include <cstdint>
#include <optional>

#include "kernels/simd/simd-inl.h"
#include "kernels/tile/setup.h"
#include "problem/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

using WordVector = hn::Vec<Words>;

/// The random words of adjacent queries, one per lane, for four keys.
struct FourWords {
  WordVector word[4];
};

#if HWY_TARGET == HWY_SCALAR
/// Returns the random words of one query and the group of four keys that contains `key`.
HWY_INLINE FourWords philox_words(const DropoutRule& rule, std::int64_t query, std::int64_t key) {
  const auto words = philox::words(rule.counter(query, key), rule.key());
  const Words d;
  return {{hn::Set(d, words[0]), hn::Set(d, words[1]), hn::Set(d, words[2]), hn::Set(d, words[3])}};
}
#else
/// Computes the high and low halves of the 64-bit products of 32-bit words.
HWY_INLINE void multiply_wide(WordVector x, std::uint32_t by, WordVector& high, WordVector& low) {
  const Words d;
  const hn::RepartitionToWide<Words> wide;
  const WordVector factor = hn::Set(d, by);
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

/// Returns the random words of one query per lane, starting at `query`, and the group of four keys
/// that contains `key`.
HWY_INLINE FourWords philox_words(const DropoutRule& rule, std::int64_t query, std::int64_t key) {
  const Words d;
  const auto counter = rule.counter(query, key);
  auto keys = rule.key();
  FourWords x{{hn::Set(d, counter[0]), hn::Iota(d, counter[1]), hn::Set(d, counter[2]),
               hn::Set(d, counter[3])}};
  HWY_UNROLL(10)
  for (int round = 0; round < philox::kRounds; ++round) {
    WordVector high0, low0, high1, low1;
    multiply_wide(x.word[0], philox::kMultiplier0, high0, low0);
    multiply_wide(x.word[2], philox::kMultiplier1, high1, low1);
    x = {{hn::Xor(hn::Xor(high1, x.word[1]), hn::Set(d, keys[0])), low1,
          hn::Xor(hn::Xor(high0, x.word[3]), hn::Set(d, keys[1])), low0}};
    keys[0] += philox::kWeyl0;
    keys[1] += philox::kWeyl1;
  }
  return x;
}
#endif

/// Dropout factors for tiles of keys and lanes of a panel: DropoutRule::factor() for kept weights,
/// 0 for dropped weights.
class DropoutLanes {
 public:
  explicit DropoutLanes(const DropoutRule& rule)
      : rule_(rule), factor_(static_cast<float>(rule.factor())) {}

  /// Writes the factors of kTileRows keys, starting at `key`, and `lanes` queries, starting at
  /// `query`, to a [kTileRows][kPanelLanes] buffer.
  HWY_INLINE void tile(std::int64_t query, std::int64_t key, std::int64_t lanes,
                       float* HWY_RESTRICT to) const {
    const Floats d;
    constexpr int kTogether = kTileRows < 4 ? kTileRows : 4;
    for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
      for (std::int64_t k = 0; k < kTileRows; k += kTogether) {
        const auto store = [&](std::int64_t i, WordVector words) HWY_ATTR {
          hn::Store(factors(words), d, to + (k + i) * kPanelLanes + lane);
        };
        FourWords words = philox_words(rule_, query + lane, key + k);
        std::int64_t place = rule_.place(key + k);
        if (kTogether == 4 && place == 0) {
          for (int i = 0; i < 4; ++i) store(i, words.word[i]);
          continue;
        }
        // A smaller tile, or one of a part of a larger problem, may start within a group.
        for (std::int64_t i = 0; i < kTogether; ++i, ++place) {
          if (place == 4) {
            words = philox_words(rule_, query + lane, key + k + i);
            place = 0;
          }
          store(i, words.word[place]);
        }
      }
    }
  }

 private:
  HWY_INLINE Vector factors(WordVector words) const {
    const Words d;
    const Floats df;
    // Flip the sign bits, so that a signed comparison gives the unsigned order.
    const hn::RebindToSigned<Words> di;
    const auto turned = hn::BitCast(di, hn::Xor(words, hn::Set(d, 0x80000000u)));
    const auto least = hn::Set(di, static_cast<std::int32_t>(rule_.threshold() ^ 0x80000000u));
    const auto dropped = hn::RebindMask(df, hn::Gt(least, turned));
    return hn::IfThenZeroElse(dropped, hn::Set(df, factor_));
  }

  DropoutRule rule_;
  float factor_;
};

/// Returns the dropout of a head, or nullopt if the call has no dropout.
inline std::optional<DropoutLanes> dropout_of(const ForwardSetup& setup, const ForwardHead& head) {
  const Dropout& dropout = setup.options->dropout;
  if (!(dropout.probability > 0)) return std::nullopt;
  return DropoutLanes(DropoutRule(dropout, head.origin.batch, head.origin.head, setup.q_heads));
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_TILE_DROPOUT_INL_H_
