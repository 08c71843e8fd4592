// SPDX-License-Identifier: Apache-2.0
//
// Inputs, layers and heads by the names that paths and arguments give them.

#pragma once

#include <string>
#include <vector>

#include "view/explorer/explorer.h"
#include "view/input/input.h"

namespace fovea::view {

/// A head, or a layer with the head 0.
struct NamedPlace {
  const Input& input;
  const Layer& layer;
  HeadPlace place;
  std::string name;  ///< "13.2"
};

// Each function throws HttpError 404 for a name that is not open, and all except find_input()
// HttpError 409 for a file that has changed.

/// Returns the index of an input, which may have changed.
std::size_t find_input(const std::vector<Input>& inputs, const std::string& id);
const Input& current_input(const std::vector<Input>& inputs, const std::string& id);
NamedPlace named_layer(const std::vector<Input>& inputs, const std::string& id,
                       const std::string& label);
/// `name` is "LAYER.HEAD", with the number of the head in the model.
NamedPlace named_head(const std::vector<Input>& inputs, const std::string& id,
                      const std::string& name);

}  // namespace fovea::view
