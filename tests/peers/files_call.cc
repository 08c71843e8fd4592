// SPDX-License-Identifier: Apache-2.0
//
// Fovea's readers and writers of files behind a C function, for tests/peers/files_suite.py, which
// compares what NumPy and safetensors write with what they read of Fovea's. tests/peers/run
// compiles it against build/release.

#include <exception>
#include <string>
#include <vector>

#include "fovea/files.h"

extern "C" {

/// Reads a file and writes its tensors into another, whose ending says the format. With `bfloat16`
/// elements of two bytes without a type are bfloat16. Null, or what went wrong.
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
