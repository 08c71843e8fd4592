// SPDX-License-Identifier: Apache-2.0
//
// The description of a recording as text: the metadata of the .safetensors file
// (docs/recordings.md).

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/recording.h"

#include "json/json_reader.h"
#include "json/tensor_lookup.h"

namespace fovea::recording {

/// The keys of the metadata, and the version of the format that this code writes. A reader of
/// version 1 reads every 1.x.
inline constexpr std::string_view kVersionKey = "fovea.recording";
inline constexpr std::string_view kVersion = "1";
inline constexpr std::string_view kContentKey = "fovea";

/// The metadata, apart from the attentions and tokens.
struct Heading {
  std::string model;
  std::string source;
  std::string written_by;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Returns the names of an attention's and a token list's tensors.
std::string tensor_name(std::string_view attention, std::string_view what);
std::string token_tensor_name(std::string_view list, std::string_view what);

/// Returns the metadata. Options refer to tensors by the names that `name(attention, what, tensor)`
/// returns.
using OptionNaming = std::function<std::string(const RecordedAttention& of, std::string_view what,
                                               const TensorRef& tensor)>;
Metadata write_metadata(const Heading& heading, const std::vector<RecordedAttention>& attentions,
                        const std::vector<TokenList>& tokens, const OptionNaming& name);

/// The part of the metadata that is read before any tensor is looked up: attentions without tensors
/// and options.
struct Description {
  Heading heading;
  scene::JsonDocument document;
  /// One per attention: its object in `document`.
  std::vector<scene::JsonNode> nodes;
  std::vector<RecordedAttention> attentions;
  std::vector<TokenList> tokens;  ///< names and grids
};

/// Parses the metadata. Throws InvalidArgument if it is malformed, has no recording or one of a
/// newer major version. Unknown keys are ignored, except in options.
Description read_metadata(const Metadata& metadata);

/// Returns the options of an attention, whose tensors must be set.
AttentionOptions read_options(const scene::JsonNode& node, const RecordedAttention& attention,
                              const scene::TensorLookup& tensors);

}  // namespace fovea::recording
