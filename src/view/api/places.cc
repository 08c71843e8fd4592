// SPDX-License-Identifier: Apache-2.0
//
// Names of inputs, layers and heads (places.h).

#include "view/api/places.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "view/api/arguments.h"
#include "view/http/http.h"

namespace fovea::view {

std::size_t find_input(const std::vector<Input>& inputs, const std::string& id) {
  const auto found = std::ranges::find(inputs, id, &Input::id);
  if (found != inputs.end()) return static_cast<std::size_t>(found - inputs.begin());
  throw HttpError(404, "not_found", fmt::format("no input \"{}\" is open", id));
}

const Input& current_input(const std::vector<Input>& inputs, const std::string& id) {
  const Input& input = inputs[find_input(inputs, id)];
  if (const std::string* file = input.changed_file()) {
    throw HttpError(409, "changed", fmt::format("{} has changed since it was opened", *file));
  }
  return input;
}

NamedPlace named_layer(const std::vector<Input>& inputs, const std::string& id,
                       const std::string& label) {
  const Input& input = current_input(inputs, id);
  const auto layer = std::ranges::find(input.layers, label, &Layer::label);
  if (layer == input.layers.end()) {
    throw HttpError(404, "not_found", fmt::format("{} has no layer \"{}\"", id, label));
  }
  const HeadPlace place = {.input = static_cast<std::size_t>(&input - inputs.data()),
                           .layer = static_cast<std::size_t>(layer - input.layers.begin())};
  return {input, *layer, place, label};
}

NamedPlace named_head(const std::vector<Input>& inputs, const std::string& id,
                      const std::string& name) {
  const std::size_t dot = name.rfind('.');
  NamedPlace named = named_layer(inputs, id, name.substr(0, dot));
  named.name = name;
  const auto number = whole_number(std::string_view(name).substr(dot + 1));
  std::int64_t& head = named.place.head;
  for (; number && head < named.layer.heads(); ++head) {
    if (named.layer.attention.model_head(head) == *number) return named;
  }
  throw HttpError(404, "not_found", fmt::format("{} has no head \"{}\"", id, name));
}

}  // namespace fovea::view
