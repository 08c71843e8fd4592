// SPDX-License-Identifier: Apache-2.0
//
// Option values that are tensors or lists of numbers: FILE, FILE:NAME, "-", or the numbers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::cli {

// The following functions read the value of an option. They throw InvalidArgument and IoError with
// messages that begin with the option.

/// Reads "FILE[:NAME]" or "-".
TensorRef read_tensor_option(const std::string& option, const std::string& spec);
/// Reads "3,4", or an integer tensor with at most one dimension.
std::vector<std::int64_t> read_whole_numbers(const std::string& option, const std::string& text);
/// Reads "0.5,-inf", or a tensor of floats or integers with at most one dimension.
std::vector<double> read_numbers(const std::string& option, const std::string& text);

/// Returns whether `spec` is "-" or "-:bf16".
bool is_standard_input(const std::string& spec);

/// Returns whether `spec` names standard input, an existing file, or a file with the extension of a
/// tensor file.
bool names_tensor(const std::string& spec);

}  // namespace fovea::cli
