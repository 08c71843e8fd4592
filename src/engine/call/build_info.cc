// SPDX-License-Identifier: Apache-2.0
//
// Build information (fovea/info.h). The build system defines FOVEA_VERSION and FOVEA_BUILD_TYPE as
// string literals. The rest comes from the compiler, the kernels and the operating system.

#include <algorithm>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "fovea/info.h"

#if defined(__linux__)
#include <cerrno>
#include <memory>

#include <sched.h>
#endif

#include "kernels/simd/target.h"
#include "kernels/simd/tile_permission.h"

namespace fovea {
namespace {

std::string compiler_name() {
  // Clang also defines __GNUC__, so it must be tested first.
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

#if defined(__linux__)
struct CpuSetDelete {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// Returns the number of CPUs in the affinity mask, or 0 if it cannot be read.
int affinity_count() {
  // If the machine has more CPUs than the set has bits, sched_getaffinity() fails with EINVAL.
  constexpr int kMaxCpus = 1 << 20;
  for (int cpus = CPU_SETSIZE; cpus <= kMaxCpus; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, CpuSetDelete> set(CPU_ALLOC(static_cast<std::size_t>(cpus)));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    if (set == nullptr) return 0;
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
    if (errno != EINVAL) return 0;
  }
  return 0;
}
#else
int affinity_count() { return 0; }
#endif

int usable_threads() {
  const int count = affinity_count();
  if (count > 0) return count;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::vector<BuildInfo::Products> products() {
  const std::string float32 =
      kernels::fma_active() ? "fused multiply-adds" : "multiplications and additions";
  const std::string converted = "as float32";
  switch (kernels::tile_unit_active()) {
    case kernels::UnitKind::kHardware:
    case kernels::UnitKind::kEmulated:
      return {{"float32",
               "three bfloat16 parts each, by the tile unit; lenses, decoding and few queries: " +
                   float32},
              {"bfloat16", "by the tile unit; decoding: " + converted},
              {"float16", converted}};
    case kernels::UnitKind::kNone:
      break;
  }
  std::string bfloat16 =
      kernels::bf16_dots_active() != kernels::UnitKind::kNone ? "pairs, by vdpbf16ps" : converted;
  const std::string& refusal = kernels::tile_permission().refusal;
  if (!refusal.empty()) bfloat16 += "; not by the tile unit: " + refusal;
  return {{"float32", float32}, {"bfloat16", bfloat16}, {"float16", converted}};
}

}  // namespace

BuildInfo build_info() {
  constexpr std::string_view build_type = FOVEA_BUILD_TYPE;
  return {.version = FOVEA_VERSION,
          .compiler = compiler_name(),
          .build_type = std::string(build_type.empty() ? "unspecified" : build_type),
          .targets = kernels::available_targets(),
          .target = kernels::active_target(),
          .products = products(),
          .threads = usable_threads()};
}

}  // namespace fovea
