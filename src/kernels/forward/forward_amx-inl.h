// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the forward pass for the tile unit.

#pragma once

#include <xmmintrin.h>

#include "kernels/forward/forward-inl.h"
#include "kernels/forward/forward_bf16.h"
#include "kernels/simd/tile_unit-inl.h"
#include "kernels/tile/amx_keys-inl.h"
#include "kernels/tile/amx_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Flushes subnormal results to zero for the duration of a work item. Weights below 2^-126 would
/// take over a hundred cycles each.
class FlushToZero {
 public:
  FlushToZero() { _mm_setcsr(before_ | 0x8000); }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  const unsigned before_ = _mm_getcsr();
};

template <class Numbers>
std::size_t amx_scratch_bytes(const ForwardSetup& setup) {
  using Keys = AmxKeys<Numbers>;
  return setup.lenses.any() ? item_scratch_bytes<Keys, ItemLenses<Numbers>>(setup)
                            : item_scratch_bytes<Keys, NoLenses>(setup);
}

template <class Numbers>
void amx_item(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next,
              std::byte* scratch, const std::stop_token& stop) {
  const TileUnitSession session;
  const FlushToZero flush;
  if (setup.lenses.any()) {
    ItemPass<AmxKeys<Numbers>, ItemLenses<Numbers>>(setup, item, next, scratch).run(stop);
  } else {
    ItemPass<AmxKeys<Numbers>, NoLenses>(setup, item, next, scratch).run(stop);
  }
}

inline const ForwardFunctions* amx_functions(const ForwardSetup& setup) {
  static constexpr ForwardFunctions kBf16{&amx_scratch_bytes<AmxBf16>, &amx_item<AmxBf16>,
                                          kPanelLanes, AmxBf16::kBlockKeys};
  return setup.types.all(DType::kBFloat16) ? &kBf16 : nullptr;
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
