// SPDX-License-Identifier: Apache-2.0
//
// The tile unit: eight registers of 16 rows of 64 bytes, and the product of two of them. There are
// two implementations, the instructions of AMX-BF16 and an emulation that gives the same bits
// (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS).
//
// Properties of the instructions that the kernels rely on:
//   - A product takes 16 cycles, and chains of products with one sum run at full speed.
//   - `tilezero` is slow: load a tile of zeros instead.
//   - Stores take many slots of the vector ports. Store a sum just before its register is loaded
//   again,
//     never four in a row.
//   - stream() leaves the L1 cache alone. Rows must be aligned to 64 bytes: otherwise a load is six
//   times
//     slower.
//   - While products are in flight, only one 512-bit multiplier is available.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simd/emulation-inl.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

constexpr std::int64_t kUnitRows = 16;         // rows of a tile: of a sum, or of A; pairs of a B
constexpr std::int64_t kUnitRowBytes = 64;     // 16 floats, or 32 bfloat16
constexpr std::int64_t kUnitDepth = 32;        // multiply-adds per element of the sum
constexpr std::int64_t kUnitFloats = 16 * 16;  // 32-bit words of a tile

#if FOVEA_EMULATED

class TileUnit {
 public:
  template <int kTile>
  static HWY_INLINE void load(const void* from, std::int64_t row_bytes) {
    for (std::int64_t r = 0; r < kUnitRows; ++r) {
      std::memcpy(tiles_[kTile].words[r], static_cast<const std::byte*>(from) + r * row_bytes,
                  kUnitRowBytes);
    }
  }
  template <int kTile>
  static HWY_INLINE void stream(const void* from, std::int64_t row_bytes) {
    load<kTile>(from, row_bytes);
  }
  template <int kTile>
  static HWY_INLINE void store(void* to, std::int64_t row_bytes) {
    for (std::int64_t r = 0; r < kUnitRows; ++r) {
      std::memcpy(static_cast<std::byte*>(to) + r * row_bytes, tiles_[kTile].words[r],
                  kUnitRowBytes);
    }
  }

  /// Every element of the sum gets two chains of fused multiply-adds, over the even and over the
  /// odd elements, which are added to each other and then to the sum.
  template <int kSum, int kA, int kB>
  static void multiply() {
    const Floats d;
    const Words words;
    for (std::int64_t r = 0; r < kUnitRows; ++r) {
      auto even = hn::Zero(d), odd = hn::Zero(d);
      for (std::int64_t k = 0; k < kUnitRows; ++k) {
        const auto a = hn::Set(words, tiles_[kA].words[r][k]);
        const auto b = hn::Load(words, tiles_[kB].words[k]);
        even = emulation::multiply_add(emulation::even_of(a), emulation::even_of(b), even);
        odd = emulation::multiply_add(emulation::odd_of(a), emulation::odd_of(b), odd);
      }
      const Vector products = emulation::flushed(hn::Add(even, odd));
      const Vector sum = emulation::flushed(hn::BitCast(d, hn::Load(words, tiles_[kSum].words[r])));
      hn::Store(hn::BitCast(words, emulation::flushed(hn::Add(sum, products))), words,
                tiles_[kSum].words[r]);
    }
  }

 private:
  struct alignas(64) Tile {
    std::uint32_t words[kUnitRows][16];
  };
  static inline thread_local Tile tiles_[8] = {};
};

/// Has no effect.
class TileUnitSession {};

#else

// Inline assembly, because the intrinsics of GCC 12 name too little of the memory that they access:
// _tile_loadd() moves past stores, and _tile_loadconfig() reads bytes that are not written yet.
// Besides, no compiler flag is needed.
class TileUnit {
 public:
  template <int kTile>
  static HWY_INLINE void load(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  /// Loads without keeping the lines in the L1 cache.
  template <int kTile>
  static HWY_INLINE void stream(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static HWY_INLINE void store(void* to, std::int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kTile) : "memory");
  }
  /// Computes sum[r][c] += sum over k < 32 of a[r][k] * b[k / 2][2 c + k % 2], in bfloat16 with
  /// float32 sums.
  template <int kSum, int kA, int kB>
  static HWY_INLINE void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

/// Configures the tiles of this thread for the duration of a work item, and afterwards restores the
/// configuration of other code, if there was one.
class TileUnitSession {
 public:
  TileUnitSession() {
    asm volatile("sttilecfg (%0)" ::"r"(before_) : "memory");
    alignas(64) std::uint8_t ours[64] = {1};  // palette 1
    for (int tile = 0; tile < 8; ++tile) {
      ours[16 + 2 * tile] = kUnitRowBytes;
      ours[48 + tile] = kUnitRows;
    }
    asm volatile("ldtilecfg (%0)" ::"r"(ours) : "memory");
  }
  ~TileUnitSession() {
    if (before_[0] == 0) {
      asm volatile("tilerelease" ::: "memory");
    } else {
      asm volatile("ldtilecfg (%0)" ::"r"(before_) : "memory");
    }
  }
  TileUnitSession(const TileUnitSession&) = delete;
  TileUnitSession& operator=(const TileUnitSession&) = delete;

 private:
  alignas(64) std::uint8_t before_[64];
};

#endif  // FOVEA_EMULATED

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
