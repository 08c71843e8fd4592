// SPDX-License-Identifier: Apache-2.0
//
// Where `fovea attend` writes context and lse: two files, one file with both, or standard output.

#pragma once

#include <string>

#include "fovea/tensor.h"

namespace fovea::cli {

/// A place for one tensor; without a path it is not written.
struct OutputPlace {
  std::string path;
  std::string name;  ///< in an .npz or .safetensors file

  bool wanted() const { return !path.empty(); }
  bool is_standard_output() const { return path == "-"; }
  /// "out.npz:context", "out.npy" or "standard output".
  std::string words() const;
};

struct OutputPlan {
  OutputPlace context;
  OutputPlace lse;

  bool to_standard_output() const {
    return context.is_standard_output() || lse.is_standard_output();
  }
};

/// Of --output and --lse as they were given. Throws InvalidArgument for what cannot be.
OutputPlan plan_outputs(const std::string& output, const std::string& lse);

/// Fails before the work rather than after it where a file cannot be written. Throws OutputError.
void require_writable(const OutputPlan& plan);

/// Writes what is wanted; a file with both in one step. Throws OutputError.
void write_outputs(const OutputPlan& plan, const TensorView& context, const TensorView& lse);

}  // namespace fovea::cli
