// SPDX-License-Identifier: Apache-2.0
//
// A score function of your own, compiled for every SIMD target and fused into the engine. This
// header and those it includes, fovea/simd_math-inl.h and fovea/simd_targets.h, are the only ones
// of Fovea that need Highway. In a source file of its own, which Highway compiles once per target:
//
//   #include <fovea/simd_targets.h>               // before Highway: the targets that Fovea has
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "capped.cc"        // this file, as #include would find it
//   #include <hwy/foreach_target.h>
//   // What follows is compiled once per target: foreach_target.h has to stand above it.
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
//     template <class D, class V>                 // D: a tag of float or double; V: its vector
//     HWY_ATTR V operator()(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& at) const {
//       using T = hn::TFromD<D>;
//       const V share = hn::Mul(score, hn::Set(d, static_cast<T>(1 / with.cap)));
//       return hn::Mul(hn::Set(d, static_cast<T>(with.cap)), fovea::HWY_NAMESPACE::tanh(d, share));
//     }
//     template <class D, class V>                 // by the score, for gradients
//     HWY_ATTR V derivative(D d, V score, const fovea::HWY_NAMESPACE::ScoreLanes<D>& at) const {
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
// That defines fovea::CustomScore capped::make_cap(CapParameters), declared wherever it is called:
//
//   options.score.custom = capped::make_cap({.cap = 30});
//
// The functor is asked for whole vectors, which may reach beyond the last query and key: what it
// looks up it has to check. One that no gradients are wanted of needs no derivative, with
// FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE and FOVEA_SCORE_FUNCTION_WITHOUT_DERIVATIVE. tanh is from
// fovea/simd_math-inl.h; hwy/contrib/math/math-inl.h has more functions.

// The parts that are the same for all targets.
#ifndef FOVEA_CUSTOM_SCORE_H_
#define FOVEA_CUSTOM_SCORE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "fovea/attention_options.h"
#include "fovea/simd_targets.h"
// Highway comes after it.
#include <hwy/highway.h>

/// In the target's namespace: compiles `Functor`, an aggregate of `Parameters`, with its derivative
/// for it.
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

/// The same without a derivative: calls that find gradients refuse such a function.
#define FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE(Functor, Parameters)                             \
  inline void Functor##Tile(const void* state, const fovea::ScoreTile& tile) {                  \
    const Functor functor{*static_cast<const Parameters*>(state)};                              \
    fovea::HWY_NAMESPACE::score_tile(functor, tile);                                            \
  }                                                                                             \
  inline double Functor##One(const void* state, double score, const fovea::ScorePosition& at) { \
    const Functor functor{*static_cast<const Parameters*>(state)};                              \
    return fovea::HWY_NAMESPACE::score_one(functor, score, at);                                 \
  }

/// Outside of it, within #if HWY_ONCE: defines fovea::CustomScore name(Parameters), which takes the
/// best target that the CPU has, as the engine does.
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

/// The same of what FOVEA_SCORE_KERNELS_WITHOUT_DERIVATIVE compiled.
#define FOVEA_SCORE_FUNCTION_WITHOUT_DERIVATIVE(name, Functor, Parameters)       \
  HWY_EXPORT(Functor##Tile);                                                     \
  HWY_EXPORT(Functor##One);                                                      \
  fovea::CustomScore name(Parameters parameters) {                               \
    return {.tile = FOVEA_SCORE_TILE_CALL(Functor##Tile),                        \
            .one = FOVEA_SCORE_ONE_CALL(Functor##One),                           \
            .state = std::make_shared<const Parameters>(std::move(parameters))}; \
  }

// Calls of what HWY_EXPORT exports: parts of the above.
#define FOVEA_SCORE_TILE_CALL(kernel) \
  [](const void* state, const fovea::ScoreTile& tile) { HWY_DYNAMIC_DISPATCH(kernel)(state, tile); }
#define FOVEA_SCORE_ONE_CALL(kernel)                                    \
  [](const void* state, double score, const fovea::ScorePosition& at) { \
    return HWY_DYNAMIC_DISPATCH(kernel)(state, score, at);              \
  }

#endif  // FOVEA_CUSTOM_SCORE_H_

// The parts that are compiled once per target.
#if defined(FOVEA_CUSTOM_SCORE_PER_TARGET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_CUSTOM_SCORE_PER_TARGET_H_
#undef FOVEA_CUSTOM_SCORE_PER_TARGET_H_
#else
#define FOVEA_CUSTOM_SCORE_PER_TARGET_H_
#endif

#include "fovea/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::HWY_NAMESPACE {

/// Where the scores of a vector stand: neighbouring queries and one key.
template <class D>
class ScoreLanes {
  using DInt = hwy::HWY_NAMESPACE::RebindToSigned<D>;
  using Int = hwy::HWY_NAMESPACE::TFromD<DInt>;

 public:
  explicit ScoreLanes(const ScorePosition& first) : first_(first) {}

  /// Batch item, or the number of a packed sequence.
  std::int64_t batch() const { return first_.batch; }
  std::int64_t head() const { return first_.head; }
  std::int64_t key() const { return first_.key; }
  /// The queries' numbers as integers of the scores' size, ascending by one.
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<DInt> queries() const {
    return hwy::HWY_NAMESPACE::Iota(DInt(), static_cast<Int>(first_.query));
  }
  /// How far each query stands behind the key, after alignment: query + offset - key. Distances
  /// beyond 2^30 stop growing.
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<DInt> distances() const {
    constexpr std::int64_t kMax = std::int64_t{1} << 30;
    const std::int64_t distance =
        std::clamp(first_.query + first_.offset - first_.key, -kMax, kMax);
    return hwy::HWY_NAMESPACE::Iota(DInt(), static_cast<Int>(distance));
  }

 private:
  ScorePosition first_;
};

/// Whether a functor brings its derivative.
template <class Functor>
constexpr bool has_derivative() {
  using D = hwy::HWY_NAMESPACE::CappedTag<float, 1>;
  return requires(const Functor& functor, D d, hwy::HWY_NAMESPACE::Vec<D> score,
                  const ScoreLanes<D>& at) {
    functor.derivative(d, score, at);
  };
}

/// The derivative of a functor, as a functor.
template <class Functor>
struct DerivativeOf {
  const Functor& functor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V score, const ScoreLanes<D>& at) const {
    if constexpr (has_derivative<Functor>()) {
      return functor.derivative(d, score, at);
    } else {
      return score;  // FOVEA_SCORE_KERNELS has refused it
    }
  }
};

/// scores = factor * functor(scores), from lane `i` of a row on: as many at a time as D has lanes.
/// Returns the first lane that was too much.
template <class D, class Functor>
HWY_INLINE std::int64_t score_lanes(D d, const Functor& functor, ScoreTile tile, ScorePosition at,
                                    float* scores, std::int64_t i) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; i + lanes <= tile.lanes; i += lanes) {
    at.query = tile.first.query + i;
    const auto result = functor(d, hn::LoadU(d, scores + i), ScoreLanes<D>(at));
    hn::StoreU(hn::Mul(hn::Set(d, tile.factor), result), d, scores + i);
  }
  return i;
}

/// scores = factor * functor(scores) over a tile.
template <class Functor>
HWY_INLINE void score_tile(const Functor& functor, const ScoreTile& tile) {
  namespace hn = hwy::HWY_NAMESPACE;
  ScorePosition at = tile.first;
  for (std::int64_t k = 0; k < tile.keys; ++k) {
    at.key = tile.first.key + k;
    float* scores = tile.scores + k * tile.stride;
    const std::int64_t rest = score_lanes(hn::CappedTag<float, 16>(), functor, tile, at, scores, 0);
    // Only where the engine's vectors are shorter than these.
    score_lanes(hn::CappedTag<float, 1>(), functor, tile, at, scores, rest);
  }
}

/// The functor on one score in double precision.
template <class Functor>
HWY_INLINE double score_one(const Functor& functor, double score, const ScorePosition& at) {
  namespace hn = hwy::HWY_NAMESPACE;
  using D = hn::CappedTag<double, 1>;
  return hn::GetLane(functor(D(), hn::Set(D(), score), ScoreLanes<D>(at)));
}

}  // namespace fovea::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_CUSTOM_SCORE_PER_TARGET_H_
