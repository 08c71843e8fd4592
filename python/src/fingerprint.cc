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

/// Every step is a bijection of the state, so that a change of a single word changes the result's
/// lane. Lanes are independent, so that compilers vectorise the loop.
std::uint64_t fingerprint(const unsigned char* from, std::size_t size) {
  constexpr std::size_t kWords = 16;
  constexpr std::uint32_t kFactor = 0x9E3779B1;  // odd
  std::array<std::uint32_t, kWords> lanes{}, words{};
  const auto add = [&] {
    for (std::size_t i = 0; i < kWords; ++i) lanes[i] = (lanes[i] ^ words[i]) * kFactor + 1;
  };
  for (; size >= sizeof(words); size -= sizeof(words), from += sizeof(words)) {
    std::memcpy(words.data(), from, sizeof(words));
    add();
  }
  words.fill(0);
  std::memcpy(words.data(), from, size);
  add();
  std::uint64_t all = size;
  for (const std::uint32_t lane : lanes) all = (all ^ lane) * 0x9E3779B97F4A7C15 + (all >> 29);
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
