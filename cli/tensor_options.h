// SPDX-License-Identifier: Apache-2.0
//
// Tensors and lists of numbers that options name: FILE, FILE:NAME, "-", or the numbers themselves.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::cli {

/// Reads what options name. Messages begin with the option; standard input serves one of them.
///
/// Errors  throw InvalidArgument and IoError, as reading does.
class TensorOptions {
 public:
  /// "FILE[:NAME]" or "-".
  TensorRef tensor(const std::string& option, const std::string& spec);

  /// "3,4", or a tensor of integers that has at most one dimension.
  std::vector<std::int64_t> whole_numbers(const std::string& option, const std::string& text);

  /// "0.5,-inf", or a tensor of floats or integers that has at most one dimension.
  std::vector<double> numbers(const std::string& option, const std::string& text);

 private:
  /// A tensor in place of a list of what `expected` says.
  TensorRef list(const std::string& option, const std::string& text, const char* expected);

  std::string standard_input_;  // the option that has taken it
};

/// Whether there is such a file, or its name ends as one of a tensor does.
bool names_tensor(const std::string& spec);

}  // namespace fovea::cli
