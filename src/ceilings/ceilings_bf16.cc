// SPDX-License-Identifier: Apache-2.0
//
// Independent products of bfloat16 (ceilings_bf16.h), the counterpart of the float32 loop in
// ceilings.cc. Compiled for processors with vdpbf16ps (bf16_target-inl.h).

#include "ceilings/ceilings_bf16.h"

#include <cstddef>

#include "kernels/simd/bf16_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ceilings/ceilings_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/bf16_target-inl.h"

#if FOVEA_BF16_TARGET
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

double multiply_add(std::int64_t rounds, float& used) {
  // On Zen 4, vdpbf16ps has a latency of six cycles and a throughput of one per cycle.
  constexpr std::size_t kChains = 14;
  constexpr double kFlop = 2.0 * 32.0;
  // The operands are the pairs (1, 0) and (0, 1). Both products are 0, so sums do not overflow. The
  // speed does not depend on the values.
  const __m512i factor = _mm512_set1_epi32(0x3f80);
  const __m512i term = _mm512_set1_epi32(0x3f800000);
  __m512 chains[kChains];
  for (std::size_t i = 0; i < kChains; ++i) chains[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (__m512& chain : chains) {
      chain = _mm512_dpbf16_ps(chain, reinterpret_cast<__m512bh>(factor),
                               reinterpret_cast<__m512bh>(term));
    }
  }
  for (const __m512& chain : chains) used += _mm512_reduce_add_ps(chain);
  return kFlop * static_cast<double>(rounds) * static_cast<double>(kChains);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#define FOVEA_HAS_BF16_CEILING
#endif

#if HWY_ONCE
namespace fovea::kernels {

double multiply_add_bf16(std::int64_t rounds, float& used) {
#ifdef FOVEA_HAS_BF16_CEILING
  return N_AVX3_BF16::multiply_add(rounds, used);
#else
  static_cast<void>(rounds);
  static_cast<void>(used);
  return 0.0;
#endif
}

}  // namespace fovea::kernels
#endif
