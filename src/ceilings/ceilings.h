// SPDX-License-Identifier: Apache-2.0
//
// The performance ceilings of this machine: peak multiply-adds per second and bytes read from
// memory per second. Benchmarks report a kernel's speed as a share of these ceilings, measured in
// the same minute, because clock rates and the load of other processes change.

#pragma once

#include <cstddef>
#include <memory>

#include "fovea/tensor.h"

namespace fovea::kernels {

struct CeilingOptions {
  /// The number of concurrent threads, whose rates are summed. Subject to the limits of OpenMP.
  int threads = 1;
  /// The approximate duration of the measurement, excluding memory allocation.
  double seconds = 1.0;
};

/// Returns the peak rate of float32 multiply-adds on the active target, with no waiting for memory
/// or earlier results, in 10^9 floating-point operations per second (two per multiply-add). The
/// result is the median of several rounds.
///
/// Errors  throws InvalidArgument if `threads` is less than 1, or if choose_target() throws it.
double fma_ceiling_gflops(const CeilingOptions& options = {});

/// Returns the peak rate for bfloat16: that of the tile unit, on random operands, or that of pairs
/// (vdpbf16ps of AVX-512; two products and two sums are four flop); 0 if the active target has
/// neither.
///
/// Errors  same as fma_ceiling_gflops().
double bf16_ceiling_gflops(const CeilingOptions& options = {});

/// Returns the peak rate for products of numbers of type `dtype`: bf16_ceiling_gflops() for
/// bfloat16, if it is not 0. For all other types fma_ceiling_gflops(), or a sixth of the tile
/// unit's rate if that is higher, because the unit multiplies floats in three parts by six
/// products.
///
/// Errors  same as fma_ceiling_gflops().
double product_ceiling_gflops(DType dtype, const CeilingOptions& options = {});

/// Returns the size of the last-level cache in bytes, 0 if the system does not tell.
std::size_t last_level_cache_bytes();

/// The bandwidth of sequential reads from a buffer in huge pages, if the system has them.
/// Allocating and writing it takes longer than a measurement, so later measurements with the same
/// number of threads reuse it.
class ReadCeiling {
 public:
  ReadCeiling();
  ~ReadCeiling();

  /// Returns the bandwidth in 10^9 bytes per second, the median of several rounds, while all
  /// threads together read `bytes` bytes again and again, which caches may hold. 0 stands for the
  /// whole buffer, which is far larger than the last-level cache.
  ///
  /// Errors  same as fma_ceiling_gflops(); also throws std::bad_alloc if the buffer (up to 1 GiB)
  ///         cannot be allocated.
  double gb_per_s(const CeilingOptions& options = {}, std::size_t bytes = 0);

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
  int threads_ = 0;  ///< the thread count for which the buffer was allocated
};

}  // namespace fovea::kernels
