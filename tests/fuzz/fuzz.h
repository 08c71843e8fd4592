// SPDX-License-Identifier: Apache-2.0
//
// The common part of the fuzzers: opens a file and reads every element of each tensor. The only
// exception allowed is InvalidArgument; the sanitizers report invalid memory accesses.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "fovea/error.h"
#include "fovea/files.h"

namespace fovea::test {

/// Returns the sum of all elements, so that the compiler cannot remove the reads.
inline double sum_of(const TensorView& tensor) {
  double sum = 0.0;
  for_each_index(tensor.shape(), [&](const Index& index) { sum += tensor.value(index); });
  return sum;
}

inline void read_tensor_of(const TensorFile& file, const std::string& name) {
  try {
    const TensorRef tensor = file.read(name);
    volatile double sum = sum_of(tensor.view());
    static_cast<void>(sum);
  } catch (const InvalidArgument&) {
  }
}

inline int fuzz_file(const std::uint8_t* data, std::size_t size, FileFormat format) {
  try {
    const TensorFile file =
        TensorFile::from_memory(std::as_bytes(std::span(data, size)), format, "fuzz");
    for (const TensorInfo& info : file.tensors()) {
      read_tensor_of(file, info.name);
      read_tensor_of(file, info.name.empty() ? "bf16" : info.name + ":bf16");
    }
    read_tensor_of(file, "");
    read_tensor_of(file, "no such name");
  } catch (const InvalidArgument& error) {
    // Every message starts with the file's name.
    if (!std::string(error.what()).starts_with("fuzz: ")) std::abort();
  }
  return 0;
}

}  // namespace fovea::test
