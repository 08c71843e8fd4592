// SPDX-License-Identifier: Apache-2.0
//
// The scratch memory of decoding (decode-inl.h).

#if defined(FOVEA_KERNELS_DECODE_SCRATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_DECODE_SCRATCH_INL_H_
#undef FOVEA_KERNELS_DECODE_SCRATCH_INL_H_
#else
#define FOVEA_KERNELS_DECODE_SCRATCH_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/decode/decode.h"
#include "kernels/simd/arena.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Layout of one thread's scratch memory.
struct DecodeScratch {
  float* queries;         // [rows][query_stride]
  float* scores;          // [heads][up to kDecodeRowsTogether][chunk_keys], later the weights
  float* context;         // [rows][context_stride]
  float* maximum;         // [rows], running maximum of scores times log2(e)
  float* sum;             // [rows]
  KeyRange* ranges;       // [rows], visible keys
  float* by_distance;     // [chunk_keys], position biases
  std::uint8_t* visible;  // [chunk_keys]
  std::int64_t query_stride, context_stride;

  template <class Arithmetic>
  std::size_t lay_out(std::byte* base, const DecodeSetup& setup) {
    const std::int64_t rows = setup.most_rows();
    const ScoreOptions& score = setup.options->score;
    const bool position_bias = score.alibi.has_value() || score.relative.has_value();
    query_stride = Arithmetic::query_size(setup.head_dim);
    context_stride = Arithmetic::context_size(setup.value_dim);
    Arena arena(base);
    queries = arena.take<float>(rows * query_stride);
    scores = arena.take<float>(setup.most_heads *
                               std::min(kDecodeRowsTogether, setup.most_rows_of_head()) *
                               setup.chunk_keys);
    context = arena.take<float>(rows * context_stride);
    maximum = arena.take<float>(rows);
    sum = arena.take<float>(rows);
    ranges = arena.take<KeyRange>(rows);
    by_distance = arena.take<float>(position_bias ? setup.chunk_keys : 0);
    visible = arena.take<std::uint8_t>(setup.options->mask.allows_all() ? 0 : setup.chunk_keys);
    return arena.used();
  }
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_DECODE_SCRATCH_INL_H_
