// SPDX-License-Identifier: Apache-2.0
//
// Numbers of options that are not in the JSON text but in a tensor beside it: the text has the
// tensor's name.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea::scene {

/// Returns the tensor of this name. Throws InvalidArgument if there is none. If the function is
/// empty, names are not accepted in place of numbers.
using TensorLookup = std::function<TensorRef(const std::string& name)>;

/// Keeps a tensor and returns the name under which TensorLookup will find it. `what` tells what the
/// numbers are: "documents", "sinks".
using TensorNaming = std::function<std::string(std::string_view what, const TensorRef& tensor)>;

}  // namespace fovea::scene
