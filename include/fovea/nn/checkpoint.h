// SPDX-License-Identifier: Apache-2.0
//
// Parameters in files, by their names.

#pragma once

#include <string>

#include "fovea/export.h"
#include "fovea/nn/parameters.h"

namespace fovea::nn {

/// Writes all parameters, each under its name and in its type, in the format that the path's ending
/// says (fovea/files.h): .safetensors is what PyTorch's state_dict() of the same modules is saved
/// as. An existing file is replaced in one step or stays as it was. Throws as write_tensors.
FOVEA_API void save_parameters(const Parameters& parameters, const std::string& path);

/// Reads them back, one to one: every parameter has a tensor of its name and shape in the file, and
/// every tensor of the file is a parameter's. Tensors may be of any type of float, and are rounded
/// to the parameters'. Gradients stay as they are.
///
/// Throws as TensorFile, and InvalidArgument naming what is missing, what is not expected and what
/// has another shape or no type of float, before any parameter is changed.
FOVEA_API void load_parameters(Parameters& parameters, const std::string& path);

}  // namespace fovea::nn
