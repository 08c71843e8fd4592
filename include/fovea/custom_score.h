// SPDX-License-Identifier: Apache-2.0
//
// User-defined score functions, compiled for every SIMD target and fused into the engine. This
// header and those it includes, fovea/simd_math-inl.h and fovea/simd_targets.h, are the only public
// headers that need Highway. Define the function in a separate source file, which Highway compiles
// once per target:
//
//   #include <fovea/simd_targets.h>               // before Highway: selects Fovea's targets
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "capped.cc"        // this file, on the include path
//   #include <hwy/foreach_target.h>
//   // Everything below is compiled once per target, so foreach_target.h must come first.
//   #include <fovea/custom_score.h>
//
//   #ifndef CAPPED_PARAMETERS                     // once, not once per target
//   #define CAPPED_PARAMETERS
//   struct CapParameters { double cap; };
//   #endif
//
//   HWY_BEFORE_NAMESPACE();
//   namespace capped::HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   struct Cap {
//     CapParameters with;
//     template <class D, class V>                 // D: tag for float or double; V: its vector type
//     HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>&) const {
//       using T = hn::TFromD<D>;
//       const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
//       return hn::Mul(hn::Set(d, static_cast<T>(with.cap)), fovea::HWY_NAMESPACE::tanh(d, share));
//     }
//     template <class D, class V>                 // with respect to the score, for gradients
//     HWY_ATTR V derivative(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>&) const {
//       using T = hn::TFromD<D>;
//       const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
//       const V tanh = fovea::HWY_NAMESPACE::tanh(d, share);
//       return hn::NegMulAdd(tanh, tanh, hn::Set(d, T{1}));
//     }
//   };
//   FOVEA_SCORE_KERNELS(Cap, CapParameters)
//   }
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace capped {
//   FOVEA_SCORE_FUNCTION(make_cap, Cap, CapParameters)
//   }
//   #endif
//
// This defines fovea::CustomScore capped::make_cap(CapParameters). Declare it where it is called:
//
//   options.score.custom = capped::make_cap({.cap = 30});
//
// The functor is called with whole vectors, which may extend beyond the last query and key. It must
// therefore check the bounds of any table lookup. The derivative is needed only for gradients;
// without one, use FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE and
// FOVEA_SCORE_FUNCTION_WITHOUT_DERIVATIVE. tanh is from fovea/simd_math-inl.h;
// hwy/contrib/math/math-inl.h has more functions.

// Target-independent part.
#ifndef FOVEA_CUSTOM_SCORE_H_
#define FOVEA_CUSTOM_SCORE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "fovea/attention_options.h"
#include "fovea/simd_targets.h"
// Must follow simd_targets.h.
#include <hwy/highway.h>

/// Compiles `Functor`, an aggregate with a member of type `Parameters`, and its derivative for the
/// current target. Use it in the target's namespace.
#define FOVEA_SCORE_KERNELS(Functor, Parameters)                                                  \
  static_assert(fovea::HWY_NAMESPACE::has_derivative<Functor>(), #Functor                         \
                " has no derivative(d, score, at), which gradients need; where there will "       \
                "be none, use FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE");                           \
  FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE(Functor, Parameters)                                     \
  inline void Functor##TileDerivative(const void* state, const fovea::ScoreTile& tile) {          \
    const Functor functor{*static_cast<const Parameters*>(state)};                                \
    fovea::HWY_NAMESPACE::score_tile(fovea::HWY_NAMESPACE::DerivativeOf<Functor>{functor}, tile); \
  }                                                                                               \
  inline double Functor##OneDerivative(const void* state, double score,                           \
                                       const fovea::ScorePosition& at) {                          \
    const Functor functor{*static_cast<const Parameters*>(state)};                                \
    return fovea::HWY_NAMESPACE::score_one(fovea::HWY_NAMESPACE::DerivativeOf<Functor>{functor},  \
                                           score, at);                                            \
  }

/// Does the same without a derivative. Gradient calls reject the resulting function.
#define FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE(Functor, Parameters)                             \
  inline void Functor##Tile(const void* state, const fovea::ScoreTile& tile) {                  \
    const Functor functor{*static_cast<const Parameters*>(state)};                              \
    fovea::HWY_NAMESPACE::score_tile(functor, tile);                                            \
  }                                                                                             \
  inline double Functor##One(const void* state, double score, const fovea::ScorePosition& at) { \
    const Functor functor{*static_cast<const Parameters*>(state)};                              \
    return fovea::HWY_NAMESPACE::score_one(functor, score, at);                                 \
  }

/// Defines fovea::CustomScore name(Parameters), which dispatches to the best target of the CPU, as
/// the engine does. Use it outside the target's namespace, within #if HWY_ONCE.
#define FOVEA_SCORE_FUNCTION(name, Functor, Parameters)                          \
  HWY_EXPORT(Functor##Tile);                                                     \
  HWY_EXPORT(Functor##One);                                                      \
  HWY_EXPORT(Functor##TileDerivative);                                           \
  HWY_EXPORT(Functor##OneDerivative);                                            \
  fovea::CustomScore name(Parameters parameters) {                               \
    return {.tile = FOVEA_SCORE_TILE_CALL(Functor##Tile),                        \
            .one = FOVEA_SCORE_ONE_CALL(Functor##One),                           \
            .tile_derivative = FOVEA_SCORE_TILE_CALL(Functor##TileDerivative),   \
            .one_derivative = FOVEA_SCORE_ONE_CALL(Functor##OneDerivative),      \
            .state = std::make_shared<const Parameters>(std::move(parameters))}; \
  }

/// Does the same for functors compiled with FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE.
#define FOVEA_SCORE_FUNCTION_WITHOUT_DERIVATIVE(name, Functor, Parameters)       \
  HWY_EXPORT(Functor##Tile);                                                     \
  HWY_EXPORT(Functor##One);                                                      \
  fovea::CustomScore name(Parameters parameters) {                               \
    return {.tile = FOVEA_SCORE_TILE_CALL(Functor##Tile),                        \
            .one = FOVEA_SCORE_ONE_CALL(Functor##One),                           \
            .state = std::make_shared<const Parameters>(std::move(parameters))}; \
  }

// Calls of kernels exported by HWY_EXPORT, used by the macros above.
#define FOVEA_SCORE_TILE_CALL(kernel) \
  [](const void* state, const fovea::ScoreTile& tile) { HWY_DYNAMIC_DISPATCH(kernel)(state, tile); }
#define FOVEA_SCORE_ONE_CALL(kernel)                                    \
  [](const void* state, double score, const fovea::ScorePosition& at) { \
    return HWY_DYNAMIC_DISPATCH(kernel)(state, score, at);              \
  }

#endif  // FOVEA_CUSTOM_SCORE_H_

// Compiled once per target.
#if defined(FOVEA_CUSTOM_SCORE_PER_TARGET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_CUSTOM_SCORE_PER_TARGET_H_
#undef FOVEA_CUSTOM_SCORE_PER_TARGET_H_
#else
#define FOVEA_CUSTOM_SCORE_PER_TARGET_H_
#endif

#include "fovea/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::HWY_NAMESPACE {

/// The positions of a vector of scores: consecutive queries and one key.
template <class D>
class ScoreLanes {
  using DInt = hwy::HWY_NAMESPACE::RebindToSigned<D>;
  using Int = hwy::HWY_NAMESPACE::TFromD<DInt>;

 public:
  explicit ScoreLanes(const ScorePosition& first) : first_(first) {}

  /// Returns the index of the batch item or packed sequence.
  std::int64_t batch() const { return first_.batch; }
  std::int64_t head() const { return first_.head; }
  std::int64_t key() const { return first_.key; }
  /// Returns consecutive query indices, as integers with the width of the scores.
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<DInt> queries() const {
    return hwy::HWY_NAMESPACE::Iota(DInt(), static_cast<Int>(first_.query));
  }
  /// Returns the distance from the key to each query after alignment: query + offset - key. The
  /// distance of the first query is clamped to +-2^30.
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<DInt> distances() const {
    constexpr std::int64_t kMax = std::int64_t{1} << 30;
    const std::int64_t distance =
        std::clamp(first_.query + first_.offset - first_.key, -kMax, kMax);
    return hwy::HWY_NAMESPACE::Iota(DInt(), static_cast<Int>(distance));
  }

 private:
  ScorePosition first_;
};

/// Returns whether a functor has a derivative.
template <class Functor>
constexpr bool has_derivative() {
  using D = hwy::HWY_NAMESPACE::CappedTag<float, 1>;
  return requires(const Functor& functor, D d, hwy::HWY_NAMESPACE::Vec<D> score,
                  const ScoreLanes<D>& at) {
    functor.derivative(d, score, at);
  };
}

/// A functor that computes the derivative of another functor.
template <class Functor>
struct DerivativeOf {
  const Functor& functor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V score, const ScoreLanes<D>& at) const {
    if constexpr (has_derivative<Functor>()) {
      return functor.derivative(d, score, at);
    } else {
      return score;  // unreachable: FOVEA_SCORE_KERNELS rejects the functor
    }
  }
};

/// Computes scores = factor * functor(scores) for the lanes [begin, end) of a tile, whole vectors
/// of D and at least one.
template <class D, class Functor>
HWY_INLINE void score_lanes(D d, const Functor& functor, const ScoreTile& tile, std::int64_t begin,
                            std::int64_t end) {
  namespace hn = hwy::HWY_NAMESPACE;
  // Copies, which do not change as scores are stored: the functor's constants are set up once.
  const std::int64_t keys = tile.keys, stride = tile.stride;
  const auto factor = hn::Set(d, tile.factor);
  float* scores = tile.scores;
  ScorePosition at = tile.first;
  const std::int64_t query = at.query;
  for (std::int64_t k = 0; k < keys; ++k, ++at.key, scores += stride) {
    std::int64_t i = begin;
    do {
      at.query = query + i;
      const auto result = functor(d, hn::LoadU(d, scores + i), ScoreLanes<D>(at));
      hn::StoreU(hn::Mul(factor, result), d, scores + i);
      i += static_cast<std::int64_t>(hn::Lanes(d));
    } while (i < end);
  }
}

/// Computes scores = factor * functor(scores) for a tile.
template <class Functor>
HWY_INLINE void score_tile(const Functor& functor, const ScoreTile& tile) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = tile.lanes / lanes * lanes;
  if (whole > 0) score_lanes(d, functor, tile, 0, whole);
  // Lanes are left over if the engine's vectors are shorter than those used above.
  if (whole < tile.lanes) score_lanes(hn::CappedTag<float, 1>(), functor, tile, whole, tile.lanes);
}

/// Applies the functor to one score in double precision.
template <class Functor>
HWY_INLINE double score_one(const Functor& functor, double score, const ScorePosition& at) {
  namespace hn = hwy::HWY_NAMESPACE;
  using D = hn::CappedTag<double, 1>;
  return hn::GetLane(functor(D(), hn::Set(D(), score), ScoreLanes<D>(at)));
}

}  // namespace fovea::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_CUSTOM_SCORE_PER_TARGET_H_
