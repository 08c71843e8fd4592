// SPDX-License-Identifier: Apache-2.0
//
// Rounding of rows (write_row.h), compiled once per SIMD target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/write_row.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <type_traits>

#include <hwy/highway.h>

#include "kernels/simd/storage-inl.h"
#include "kernels/simd/write_row.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

void WriteRow(const float* from, std::int64_t count, DType dtype, void* to) {
  with_element_type(dtype, [&](auto* type) {
    using T = std::remove_cvref_t<decltype(*type)>;
    write_numbers(from, count, static_cast<T*>(to));
  });
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(WriteRow);

void write_row(const float* from, std::int64_t count, DType dtype, void* to) {
  HWY_DYNAMIC_DISPATCH(WriteRow)(from, count, dtype, to);
}

}  // namespace fovea::kernels
#endif
