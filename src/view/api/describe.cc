// SPDX-License-Identifier: Apache-2.0
//
// Inputs as JSON (describe.h).

#include "view/api/describe.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "view/http/http.h"

namespace fovea::view {
namespace {

bool same_tokens(const Layer& layer) {
  if (layer.query_tokens == layer.key_tokens) return layer.query_tokens != nullptr;
  return layer.query_tokens && layer.key_tokens && *layer.query_tokens == *layer.key_tokens;
}

std::string describe_layer(const Layer& layer) {
  const RecordedAttention& attention = layer.attention;
  std::vector<std::int64_t> heads;
  for (std::int64_t head = 0; head < layer.heads(); ++head) {
    heads.push_back(attention.model_head(head));
  }
  return fmt::format(
      "{{\"label\":{},\"layer\":{},\"kind\":{},\"batch\":{},\"name\":{},\"heads\":[{}],"
      "\"queries\":{},\"keys\":{},\"head_dim\":{},\"dtype\":{},\"mask\":{},\"score\":{},"
      "\"query_tokens\":{},\"key_tokens\":{},\"values\":{},\"same_tokens\":{}}}",
      json_text(layer.label), attention.layer, json_text(attention_kind_name(attention.kind)),
      layer.batch, json_text(attention.name), fmt::join(heads, ","), layer.queries(), layer.keys(),
      attention.query->extent(3), json_text(dtype_name(attention.query->dtype())),
      json_text(layer.mask_words), json_text(layer.score_words), layer.query_tokens != nullptr,
      layer.key_tokens != nullptr, attention.value.defined(), same_tokens(layer));
}

}  // namespace

std::string describe(const Input& input) {
  std::string layers;
  for (const Layer& layer : input.layers) {
    layers += (layers.empty() ? "" : ",") + describe_layer(layer);
  }
  const std::string* changed = input.changed_file();
  return fmt::format(
      "{{\"id\":{},\"name\":{},\"path\":{},\"kind\":{},\"bytes\":{},\"fingerprint\":{},\"title\":{}"
      ","
      "\"model\":{},\"source\":{},\"changed\":{},\"layers\":[{}]}}",
      json_text(input.id), json_text(input.name), json_text(input.path),
      json_text(input_kind_name(input.kind)), input.bytes, json_text(input.fingerprint),
      json_text(input.title), json_text(input.model), json_text(input.source),
      changed != nullptr ? json_text(*changed) : "null", layers);
}

}  // namespace fovea::view
