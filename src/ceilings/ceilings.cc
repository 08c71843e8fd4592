// SPDX-License-Identifier: Apache-2.0
//
// Measurement of the machine's ceilings (ceilings.h).
//
// Multiply-adds. A core starts at most two FMAs per cycle, each with a latency of 3 to 4 cycles.
// Without FMA instructions, a product and a sum together take 6 to 8 cycles. Fourteen independent
// chains saturate the execution units of current CPUs, and together with the two constant operands
// they fill the sixteen registers of SSE4 and AVX2. On Zen 4, twelve chains are as fast with FMA
// instructions, but 6 % slower on SSE4.
//
// Reading. Each thread repeatedly sums its own part of one buffer, or the beginning of it. Reading
// four places in turn is up to a quarter faster than one after the other on Zen 4, because more of
// the hardware's prefetchers are at work, so both are measured. Eight
// accumulators keep additions from waiting for each other.
//
// Threads. All threads start at a barrier and stop at the same time, and each counts its own work.
// Time is measured only while all threads are running.

#include "ceilings/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fovea/simd_targets.h"  // before Highway

#include "ceilings/ceilings_bf16.h"
#include "ceilings/ceilings_tiles.h"
#include "core/fail.h"
#include "core/large_pages.h"
#include "kernels/simd/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ceilings/ceilings.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns the sum of all lanes of `count` vectors. It depends on every vector, so the compiler
// cannot eliminate their computation.
template <class D, class V>
float sum_of(D d, const V* vectors, std::size_t count) {
  V sum = vectors[0];
  for (std::size_t i = 1; i < count; ++i) sum = hn::Add(sum, vectors[i]);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Runs `rounds` rounds of independent multiply-adds and returns their flop count. `used` receives a
// result that depends on all of them.
double multiply_add(std::int64_t rounds, float& used) {
  constexpr std::size_t kChains = 14;
  const hn::ScalableTag<float> d;
  // Each chain converges to 1, so there are no overflows and no slow subnormal numbers.
  const auto factor = hn::Set(d, 0.999F);
  const auto term = hn::Set(d, 0.001F);
  hn::Vec<decltype(d)> chains[kChains];
  for (std::size_t i = 0; i < kChains; ++i) chains[i] = hn::Set(d, static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (auto& chain : chains) chain = hn::MulAdd(chain, factor, term);
  }
  used = sum_of(d, chains, kChains);
  return 2.0 * static_cast<double>(rounds) * static_cast<double>(kChains * hn::Lanes(d));
}

// Returns the sum of `count` numbers, a multiple of 8 * Lanes(d) for each of `streams` equal parts,
// which are read in turns.
float read(const float* HWY_RESTRICT numbers, std::size_t count, std::size_t streams) {
  constexpr std::size_t kSums = 8;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  const std::size_t part = count / streams;
  for (std::size_t at = 0; at < part; at += kSums * lanes) {
    for (std::size_t start = at; start < count; start += part) {
      for (std::size_t i = 0; i < kSums; ++i) {
        sums[i] = hn::Add(sums[i], hn::LoadU(d, numbers + start + i * lanes));
      }
    }
  }
  return sum_of(d, sums, kSums);
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fovea::kernels {
namespace {

HWY_EXPORT(multiply_add);
HWY_EXPORT(read);

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 9;
// The amount of work between two readings of the clock: some tens of microseconds.
constexpr std::int64_t kMultiplyAddsAtOnce = 10'000;
constexpr std::int64_t kTileProductsAtOnce = 5000;  // groups of four
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
constexpr std::size_t kStreams = 4;
constexpr std::size_t kReadMultiple = kStreams * 4096;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Prevents the compiler from eliminating the computation of `value`.
void keep(float value) { [[maybe_unused]] volatile float kept = value; }

/// Returns the median over rounds of the total rate of all threads. `work(thread, threads)`
/// performs some work and returns the amount.
template <class Work>
double total_rate(const CeilingOptions& options, const Work& work) {
  if (options.threads < 1) {
    fail("threads: expected at least 1, got {}", options.threads);
  }
  const std::chrono::duration<double> round_time(options.seconds / kRounds);
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    double total = 0.0;
    Clock::time_point end;
#pragma omp parallel num_threads(options.threads) reduction(+ : total)
    {
      const int thread = omp_get_thread_num();
      const int threads = omp_get_num_threads();
      work(thread, threads);  // warms up the core
#pragma omp barrier
#pragma omp single
      end = Clock::now() + std::chrono::duration_cast<Clock::duration>(round_time);
      const Clock::time_point start = Clock::now();
      double amount = 0.0;
      do amount += work(thread, threads);
      while (Clock::now() < end);
      total += amount / seconds_since(start);
    }
    rates.push_back(total);
  }
  std::nth_element(rates.begin(), rates.begin() + kRounds / 2, rates.end());
  return rates[kRounds / 2];
}

/// Returns the number of pieces in a buffer eight times the size of the L3 cache, but at least
/// 256 MiB and at most 1 GiB.
std::size_t buffer_pieces() {
  constexpr std::size_t kMin = std::size_t{256} << 20;
  constexpr std::size_t kMax = std::size_t{1} << 30;
  return std::clamp(8 * last_level_cache_bytes(), kMin, kMax) / kBytesAtOnce;
}

}  // namespace

double fma_ceiling_gflops(const CeilingOptions& options) {
  choose_target();
  const auto work = [](int, int) {
    float used = 0.0F;
    const double flop = HWY_DYNAMIC_DISPATCH(multiply_add)(kMultiplyAddsAtOnce, used);
    keep(used);
    return flop;
  };
  return total_rate(options, work) * 1e-9;
}

double bf16_ceiling_gflops(const CeilingOptions& options) {
  const bool tiles = tile_unit_active() == UnitKind::kHardware;
  if (!tiles && bf16_dots_active() != UnitKind::kHardware) return 0.0;
  const auto work = [tiles](int, int) {
    float used = 0.0F;
    const double flop = tiles ? multiply_add_tiles(kTileProductsAtOnce, used)
                              : multiply_add_bf16(kMultiplyAddsAtOnce, used);
    keep(used);
    return flop;
  };
  return total_rate(options, work) * 1e-9;
}

double product_ceiling_gflops(DType dtype, const CeilingOptions& options) {
  constexpr double kProductsOfParts = 6.0;
  const bool tiles = tile_unit_active() == UnitKind::kHardware;
  const bool bfloat16 = dtype == DType::kBFloat16;
  const double pairs = tiles || bfloat16 ? bf16_ceiling_gflops(options) : 0.0;
  if (bfloat16 && pairs > 0.0) return pairs;
  return std::max(fma_ceiling_gflops(options), pairs / kProductsOfParts);
}

std::size_t last_level_cache_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  return static_cast<std::size_t>(std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE)));
#else
  return 0;
#endif
}

/// A buffer divided into pieces of kBytesAtOnce bytes, in huge pages if the system has them.
class ReadCeiling::Buffer {
 public:
  /// Allocates at least one piece per thread.
  explicit Buffer(std::size_t threads) : written_(std::max(buffer_pieces(), threads)) {
    data_ = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    prefer_large_pages(data_, bytes());
  }
  ~Buffer() { ::munmap(data_, bytes()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::size_t pieces() const { return written_.size(); }
  const float* piece(std::size_t index) const { return reinterpret_cast<const float*>(at(index)); }

  /// Writes the pieces in [first, last) that have not been written yet. Threads may call this
  /// concurrently for disjoint ranges. Reads of unwritten pieces would all hit one shared zero
  /// page.
  void write(std::size_t first, std::size_t last) {
    constexpr int kByte = 0x3c;  // four such bytes are a normal float
    for (std::size_t i = first; i < last; ++i) {
      if (!std::exchange(written_[i], std::uint8_t{1})) std::memset(at(i), kByte, kBytesAtOnce);
    }
  }

 private:
  std::size_t bytes() const { return pieces() * kBytesAtOnce; }
  std::byte* at(std::size_t index) const {
    return static_cast<std::byte*>(data_) + index * kBytesAtOnce;
  }

  std::vector<std::uint8_t> written_;  // 1 for each written piece, else 0
  void* data_;
};

ReadCeiling::ReadCeiling() = default;
ReadCeiling::~ReadCeiling() = default;

double ReadCeiling::gb_per_s(const CeilingOptions& options, std::size_t bytes) {
  choose_target();
  if (options.threads != threads_) {
    buffer_.reset();  // before the new allocation, so that the two buffers never coexist
    threads_ = options.threads;
  }
  const auto most_threads = static_cast<std::size_t>(std::max(1, options.threads));
  if (!buffer_) buffer_ = std::make_unique<Buffer>(most_threads);
  const std::size_t pieces = buffer_->pieces();
  struct alignas(64) Place {  // the position of one thread, in a separate cache line
    std::size_t next = 0;     // in bytes, from the beginning of the thread's part
    bool begun = false;
  };
  std::vector<Place> places(most_threads);
  const auto work = [&](int thread, int threads, std::size_t streams) {
    const auto count = static_cast<std::size_t>(threads);
    const auto index = static_cast<std::size_t>(thread);
    const std::size_t first = pieces * index / count;
    const std::size_t last = pieces * (index + 1) / count;
    Place& place = places[index];
    if (!place.begun) {
      // The thread that reads these pieces writes them first, so that they are local to its CPU.
      buffer_->write(first, last);
      place.begun = true;
    }
    const std::size_t part = (last - first) * kBytesAtOnce;
    const std::size_t share = bytes / count / kReadMultiple * kReadMultiple;
    const std::size_t end = bytes == 0 ? part : std::clamp(share, kReadMultiple, part);
    std::size_t done = 0;
    while (done < kBytesAtOnce) {
      const std::size_t now = std::min(kBytesAtOnce, end - place.next);
      const float* const numbers = buffer_->piece(first) + place.next / sizeof(float);
      keep(HWY_DYNAMIC_DISPATCH(read)(numbers, now / sizeof(float), streams));
      place.next = (place.next + now) % end;
      done += now;
    }
    return static_cast<double>(done);
  };
  const CeilingOptions half = {.threads = options.threads, .seconds = options.seconds / 2.0};
  double most = 0.0;
  for (const std::size_t streams : {std::size_t{1}, kStreams}) {
    const auto one = [&](int thread, int threads) { return work(thread, threads, streams); };
    most = std::max(most, total_rate(half, one));
  }
  return most * 1e-9;
}

}  // namespace fovea::kernels

#endif  // HWY_ONCE
