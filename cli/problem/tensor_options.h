// SPDX-License-Identifier: Apache-2.0
//
// Tensors and lists of numbers that options name: FILE, FILE:NAME, "-", or the numbers themselves.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::cli {

/// Each reads what the option `option` was given. Messages begin with the option. Throw
/// InvalidArgument and IoError.
///
/// "FILE[:NAME]" or "-".
TensorRef read_tensor_option(const std::string& option, const std::string& spec);
/// "3,4", or a tensor of integers that has at most one dimension.
std::vector<std::int64_t> read_whole_numbers(const std::string& option, const std::string& text);
/// "0.5,-inf", or a tensor of floats or integers that has at most one dimension.
std::vector<double> read_numbers(const std::string& option, const std::string& text);

/// "-", or "-:bf16".
bool is_standard_input(const std::string& spec);

/// Whether there is such a file, or its name ends as one of a tensor does.
bool names_tensor(const std::string& spec);

}  // namespace fovea::cli
