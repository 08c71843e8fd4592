// SPDX-License-Identifier: Apache-2.0
//
// Sums and rounding of rows (write_row.h), compiled once per SIMD target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/write_row.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// The compiler vectorises the loops over columns and moves the test for the first row out of them.
void WriteSum(const WeightedRow* rows, std::int64_t count, std::int64_t columns, DType dtype,
              void* to) {
  constexpr std::int64_t kTogether = 128;
  double sums[kTogether];
  float rounded[kTogether];
  for (std::int64_t first = 0; first < columns; first += kTogether) {
    const std::int64_t width = std::min(kTogether, columns - first);
    if (count == 0) std::fill_n(sums, width, 0.0);
    for (std::int64_t n = 0; n < count; ++n) {
      const double weight = rows[n].weight;
      const float* const row = rows[n].row + first;
      for (std::int64_t c = 0; c < width; ++c) {
        const double product = weight * static_cast<double>(row[c]);
        sums[c] = n == 0 ? product : sums[c] + product;
      }
    }
    for (std::int64_t c = 0; c < width; ++c) rounded[c] = static_cast<float>(sums[c]);
    WriteRow(rounded, width, dtype,
             static_cast<std::byte*>(to) + first * static_cast<std::int64_t>(dtype_size(dtype)));
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(WriteRow);
HWY_EXPORT(WriteSum);

void write_row(const float* from, std::int64_t count, DType dtype, void* to) {
  HWY_DYNAMIC_DISPATCH(WriteRow)(from, count, dtype, to);
}

void write_sum(const WeightedRow* rows, std::int64_t count, std::int64_t columns, DType dtype,
               void* to) {
  HWY_DYNAMIC_DISPATCH(WriteSum)(rows, count, columns, dtype, to);
}

}  // namespace fovea::kernels
#endif
