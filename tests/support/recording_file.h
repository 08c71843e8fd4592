// SPDX-License-Identifier: Apache-2.0
//
// A small recording as text and bytes, to be changed by tests of malformed files. Nothing here uses
// the writer.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "fovea/files.h"
#include "fovea/recording.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {

/// A tensor as a .safetensors file stores it.
struct StoredTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// Returns a tensor of zeros. `size` is the number of bytes per element.
inline StoredTensor zeros(std::string name, std::string type, std::vector<std::int64_t> shape,
                          std::size_t size) {
  std::size_t bytes = size;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {std::move(name), std::move(type), std::move(shape), std::string(bytes, '\0')};
}

inline StoredTensor integers(std::string name, std::vector<std::int64_t> shape,
                             const std::vector<std::int64_t>& numbers) {
  std::string bytes;
  for (const std::int64_t number : numbers) {
    bytes += little_endian(static_cast<std::uint64_t>(number), 8);
  }
  return {std::move(name), "I64", std::move(shape), std::move(bytes)};
}

/// The parts of a recording: metadata and tensors.
struct RecordingParts {
  std::string version = "1";
  nlohmann::ordered_json content;
  std::vector<StoredTensor> tensors;

  nlohmann::ordered_json& attention() { return content["attentions"][0]; }
  nlohmann::ordered_json& options() { return attention()["options"]; }
  StoredTensor& tensor(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const StoredTensor& each) { return each.name == name; });
  }
  void remove(std::string_view name) {
    std::erase_if(tensors, [&](const StoredTensor& each) { return each.name == name; });
  }
};

/// Returns the bytes of a recording with the text `content` as its description.
inline std::string recording_bytes(const RecordingParts& parts, const std::string& content) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"fovea.recording", parts.version}, {"fovea", content}};
  std::string data;
  for (const StoredTensor& each : parts.tensors) {
    const std::size_t begin = data.size();
    data += each.bytes;
    header[each.name] = {
        {"dtype", each.type}, {"shape", each.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_file(header.dump(), data);
}

inline std::string recording_bytes(const RecordingParts& parts) {
  return recording_bytes(parts, parts.content.dump());
}

/// Opens a recording from memory. Messages call it "file"; `bytes` must outlive the result.
inline Recording open_recording(const std::string& bytes) {
  return Recording::from_file(open_bytes(FileFormat::kSafetensors, bytes));
}

/// Returns the error message of opening a recording, or "no error".
inline std::string complaint_about(const std::string& bytes) {
  return message_of([&] { open_recording(bytes); });
}

/// Returns a valid recording of one attention, "layers.0", of batch 2, 2 query heads, 1 key head, 2
/// queries, 3 keys and head_dim 2, with a tensor for every option.
inline RecordingParts small_recording() {
  RecordingParts parts;
  parts.content = nlohmann::ordered_json::parse(R"({
    "model": "m", "written_by": "hand",
    "attentions": [{"name": "layers.0", "layer": 0, "kind": "self", "query_tokens": ["a", "b"],
                    "key_tokens": "keys", "options": {}}],
    "tokens": [{"name": "a"}, {"name": "b"}, {"name": "keys"}]})");
  parts.tensors = {zeros("layers.0.query", "F32", {2, 2, 2, 2}, 4),
                   zeros("layers.0.key", "F32", {2, 1, 3, 2}, 4),
                   zeros("layers.0.lse", "F32", {2, 2, 2}, 4),
                   zeros("layers.0.value", "F32", {2, 1, 3, 5}, 4),
                   integers("layers.0.documents", {2, 2}, {0, 1, 0, 0}),
                   integers("layers.0.documents.2", {2, 3}, {0, 1, 1, 0, 0, 2}),
                   integers("layers.0.key_lengths", {2}, {3, 2}),
                   zeros("layers.0.dense", "BOOL", {2, 3}, 1),
                   zeros("layers.0.bias", "F32", {2, 3}, 4),
                   zeros("layers.0.slopes", "F64", {2}, 8),
                   zeros("layers.0.sinks", "F64", {2}, 8),
                   zeros("layers.0.relative", "F32", {8, 2}, 4),
                   integers("tokens.a.offsets", {3}, {0, 1, 2}),
                   {"tokens.a.text", "U8", {2}, "xy"},
                   integers("tokens.a.ids", {2}, {7, 8}),
                   integers("tokens.b.offsets", {3}, {0, 2, 2}),
                   {"tokens.b.text", "U8", {2}, "é"},
                   integers("tokens.keys.offsets", {4}, {0, 1, 2, 3}),
                   {"tokens.keys.text", "U8", {3}, "uvw"}};
  return parts;
}

}  // namespace fovea::test
