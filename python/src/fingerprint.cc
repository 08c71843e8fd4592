// SPDX-License-Identifier: Apache-2.0
//
// A number for the contents of a tensor, by which python/fovea/_observe recognises masks and biases
// that other layers got before.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <nanobind/nanobind.h>

#include "functions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

/// Every step is a bijection of a lane's state that carries bits up by the product and down by the
/// shift. Lanes are independent, so that their products overlap.
std::uint64_t fingerprint(const unsigned char* from, std::size_t size) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;  // odd
  const auto mix = [](std::uint64_t state, std::uint64_t word) {
    state = (state ^ word) * kFactor + 1;
    return state ^ (state >> 32);
  };
  std::array<std::uint64_t, 8> lanes{}, words{};
  const auto add = [&] {
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = mix(lanes[i], words[i]);
  };
  for (; size >= sizeof(words); size -= sizeof(words), from += sizeof(words)) {
    std::memcpy(words.data(), from, sizeof(words));
    add();
  }
  words.fill(0);
  if (size > 0) std::memcpy(words.data(), from, size);
  add();
  std::uint64_t all = size;
  for (const std::uint64_t lane : lanes) all = mix(all, lane);
  return all;
}

}  // namespace

void add_fingerprint(nb::module_& module) {
  module.def(
      "_fingerprint",
      [](std::uintptr_t address, std::size_t size) {
        const nb::gil_scoped_release released;
        return fingerprint(reinterpret_cast<const unsigned char*>(address), size);
      },
      "address"_a, "size"_a, "Returns a number for `size` bytes of readable memory at `address`.");
}

}  // namespace fovea::python
