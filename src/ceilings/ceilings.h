// SPDX-License-Identifier: Apache-2.0
//
// How fast this machine could be at best: multiply-adds per second, and bytes read from memory per
// second. Benchmarks give a kernel's speed as a share of these, measured in the same minute, for
// clocks and neighbours change.

#pragma once

#include <memory>

namespace fovea::kernels {

struct CeilingOptions {
  /// This many threads work at once; their rates are added up. OpenMP's own limits hold.
  int threads = 1;
  /// About how long the measurement takes, but for getting the memory that is read.
  double seconds = 1.0;
};

/// What the active target's float32 multiply-add reaches where nothing waits for memory or for an
/// earlier result, in 10^9 floating-point operations per second (a multiply-add counts two): the
/// median of several rounds.
///
/// Errors  throws InvalidArgument for fewer than one thread, and as choose_target.
double fma_ceiling_gflops(const CeilingOptions& options = {});

/// The same of pairs of bfloat16 (AVX-512's vdpbf16ps; two products and two sums are four flop);
/// 0 where the active target has none.
///
/// Errors  as fma_ceiling_gflops.
double bf16_ceiling_gflops(const CeilingOptions& options = {});

/// How fast memory is read in address order, from a buffer far larger than the last-level cache, in
/// huge pages where the system has them. Getting and writing it takes longer than a measurement,
/// so it stays for those that follow with as many threads.
class ReadCeiling {
 public:
  ReadCeiling();
  ~ReadCeiling();

  /// In 10^9 bytes per second: the median of several rounds.
  ///
  /// Errors  as fma_ceiling_gflops; std::bad_alloc when the memory (up to 1 GiB) is not there.
  double gb_per_s(const CeilingOptions& options = {});

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
  int threads_ = 0;  ///< that the buffer lies near to
};

}  // namespace fovea::kernels
