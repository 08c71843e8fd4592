// SPDX-License-Identifier: Apache-2.0
//
// Fuzzer for the .safetensors reader (fuzz.h).

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fovea::test::fuzz_file(data, size, fovea::FileFormat::kSafetensors);
}
