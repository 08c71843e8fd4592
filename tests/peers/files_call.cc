// SPDX-License-Identifier: Apache-2.0
//
// A C function that reads and writes files with Fovea, for tests/peers/files_suite.py, which
// compares them with NumPy and safetensors. tests/peers/run compiles it against build/release.

#include <exception>
#include <string>
#include <vector>

#include "fovea/files.h"

extern "C" {

/// Copies the tensors of a file to another file, whose extension sets the format. With `bfloat16`,
/// 2-byte elements without a type are read as bfloat16. Returns null, or an error message.
const char* peer_copy_tensors(const char* from, const char* to, bool bfloat16) {
  static thread_local std::string message;
  try {
    const fovea::TensorFile file = fovea::TensorFile::open(from);
    std::vector<fovea::TensorRef> kept;
    std::vector<fovea::NamedTensor> tensors;
    for (const fovea::TensorInfo& info : file.tensors()) {
      const bool untyped = bfloat16 && !info.unreadable.empty();
      const std::string name = untyped && !info.name.empty() ? info.name + ":" : info.name;
      kept.push_back(file.read(untyped ? name + "bf16" : name));
      tensors.push_back({info.name.empty() ? "tensor" : info.name, kept.back().view()});
    }
    fovea::write_tensors(to, tensors);
    return nullptr;
  } catch (const std::exception& problem) {
    message = problem.what();
    return message.c_str();
  }
}
}
