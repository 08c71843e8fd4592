// SPDX-License-Identifier: Apache-2.0
//
// Asks Linux for tile registers (tile_permission.h).

#include "kernels/simd/tile_permission.h"

#if defined(__linux__) && defined(__x86_64__)
#include <cerrno>
#include <cstring>

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fovea::kernels {
namespace {

#if defined(__linux__) && defined(__x86_64__)

bool cpu_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  return (d & kAmxBf16) != 0 && (d & kAmxTile) != 0;
}

TilePermission ask() {
  // asm/prctl.h of Linux 5.16 and later, which older systems lack.
  constexpr long kGetPermission = 0x1022, kAskPermission = 0x1023;
  constexpr int kTileData = 18;
  if (!cpu_has_tiles()) return {};
  unsigned long granted = 0;
  if (syscall(SYS_arch_prctl, kAskPermission, kTileData) != 0 ||
      syscall(SYS_arch_prctl, kGetPermission, &granted) != 0) {
    return {false, fmt::format("the system refuses tile registers: {}", std::strerror(errno))};
  }
  if ((granted >> kTileData & 1) == 0) return {false, "the system has not granted tile registers"};
  return {true, ""};
}

#else

TilePermission ask() { return {}; }

#endif

}  // namespace

const TilePermission& tile_permission() {
  static const TilePermission permission = ask();
  return permission;
}

}  // namespace fovea::kernels
