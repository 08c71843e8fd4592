// SPDX-License-Identifier: Apache-2.0
//
// The inputs of `fovea view`: scenes, tensors and recordings, opened for looking. Files stay
// memory-mapped; nothing is computed here.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/recording.h"

namespace fovea::view {

/// The tokens along the queries or keys of a layer; null if there are none.
using TokenTexts = std::shared_ptr<const std::vector<std::string>>;

/// One batch item of one attention of an input.
struct Layer {
  /// Unique in the input, of letters, digits and hyphens, for URLs: "13", "cross-13", and with
  /// several batch items "13-b1".
  std::string label;
  std::int64_t batch = 0;
  /// The attention with all its batch items. Its lse is undefined for tensors without one.
  RecordedAttention attention;
  std::string mask_words;  ///< "causal"
  std::string score_words;
  TokenTexts query_tokens, key_tokens;
  std::string words = {};  ///< "layers.3 of run.safetensors", for titles

  std::int64_t queries() const { return attention.query.view().extent(2); }
  std::int64_t keys() const { return attention.key.view().extent(2); }
  std::int64_t heads() const { return attention.query.view().extent(1); }
};

enum class InputKind : std::uint8_t { kScene, kTensors, kRecording };

/// Returns "scene", "tensors" or "recording".
std::string_view input_kind_name(InputKind kind);

/// The size of a file and the time of its last change, in ns; 0 and 0 if it cannot be read.
struct FileState {
  std::uint64_t bytes = 0;
  std::int64_t time = 0;

  friend bool operator==(const FileState&, const FileState&) = default;
};
FileState file_state(const std::string& path);

/// A file that was read, as it was then.
struct OpenedFile {
  std::string path;
  FileState state;
};

struct Input {
  /// The file's name and the first 8 hexadecimal digits of the fingerprint, of letters, digits,
  /// '.', '_' and '-'.
  std::string id;
  std::string name;  ///< the file's name, or the title of an embedded scene
  std::string path;  ///< the first of `files`; empty for what is embedded in the program
  std::vector<OpenedFile> files = {};
  std::uint64_t bytes = 0;  ///< of the first file, or of the embedded scene
  InputKind kind = InputKind::kTensors;
  /// 16 hexadecimal digits of the file's size, its first and last bytes and samples between them,
  /// and of the options.
  std::string fingerprint;
  std::string title;               ///< of a scene
  std::string model, source;       ///< of a recording, in words; may be empty. Words of a scene
  std::vector<Layer> layers = {};  ///< empty for scenes
  /// The recording that the layers are from; null for other kinds.
  std::shared_ptr<const Recording> recording = {};
  /// Of a scene: renders the page of `fovea explain --format html`, on any thread. Empty for other
  /// kinds.
  std::function<std::string()> page = {};

  /// Returns the path of a file whose size or time differ from those when it was opened, or null.
  const std::string* changed_file() const;
};

}  // namespace fovea::view
