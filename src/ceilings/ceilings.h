// SPDX-License-Identifier: Apache-2.0
//
// The performance ceilings of this machine: peak multiply-adds per second and bytes read from
// memory per second. Benchmarks report a kernel's speed as a share of these ceilings, measured in
// the same minute, because clock rates and the load of other processes change.

#pragma once

#include <memory>

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

/// The memory bandwidth of sequential reads from a buffer far larger than the last-level cache. The
/// buffer is in huge pages if the system has them. Allocating and writing it takes longer than a
/// measurement, so later measurements with the same number of threads reuse it.
class ReadCeiling {
 public:
  ReadCeiling();
  ~ReadCeiling();

  /// Returns the bandwidth in 10^9 bytes per second, the median of several rounds.
  ///
  /// Errors  same as fma_ceiling_gflops(); also throws std::bad_alloc if the buffer (up to 1 GiB)
  ///         cannot be allocated.
  double gb_per_s(const CeilingOptions& options = {});

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
  int threads_ = 0;  ///< the thread count for which the buffer was allocated
};

}  // namespace fovea::kernels
