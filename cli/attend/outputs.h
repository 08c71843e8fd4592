// SPDX-License-Identifier: Apache-2.0
//
// Output destinations of `fovea attend` for context and lse: two files, one file with both, or
// standard output.

#pragma once

#include <string>

#include "fovea/tensor.h"

namespace fovea::cli {

/// The destination of one tensor. If the path is empty, the tensor is not written.
struct OutputPlace {
  std::string path;
  std::string name;  ///< in an .npz or .safetensors file

  bool wanted() const { return !path.empty(); }
  bool is_standard_output() const { return path == "-"; }
  /// Returns "out.npz:context", "out.npy" or "standard output".
  std::string words() const;
};

struct OutputPlan {
  OutputPlace context;
  OutputPlace lse;

  bool to_standard_output() const {
    return context.is_standard_output() || lse.is_standard_output();
  }
};

/// Parses the values of --output and --lse. Throws InvalidArgument if they are malformed or
/// conflict.
OutputPlan plan_outputs(const std::string& output, const std::string& lse);

/// Throws OutputError if a file cannot be written, so that the error precedes the computation.
void require_writable(const OutputPlan& plan);

/// Writes the tensors that have a destination. A file with both is written atomically. Throws
/// OutputError.
void write_outputs(const OutputPlan& plan, const TensorView& context, const TensorView& lse);

}  // namespace fovea::cli
