// SPDX-License-Identifier: Apache-2.0
//
// Saving and loading parameters by name.

#pragma once

#include <string>

#include "fovea/export.h"
#include "fovea/nn/parameters.h"

namespace fovea::nn {

/// Writes all parameters by name, without converting types. The path's extension selects the
/// format (fovea/files.h): .npz, or .safetensors, which matches PyTorch's state_dict() of the same
/// modules. An existing file is replaced atomically or left unchanged. Throws InvalidArgument if
/// the extension is another one. Otherwise throws as write_tensors does.
FOVEA_API void save_parameters(const Parameters& parameters, const std::string& path);

/// Reads parameters from a file. The file must have exactly one tensor of the same name and shape
/// for every parameter, and no others. Tensors may have any float type and are rounded to the type
/// of the parameters. Gradients are unchanged.
///
/// Throws as TensorFile does, and InvalidArgument naming the tensors that are missing or
/// unexpected, or that have another shape or a non-float type. No parameter is changed in either
/// case: all tensors are read before the first parameter changes.
FOVEA_API void load_parameters(Parameters& parameters, const std::string& path);

}  // namespace fovea::nn
