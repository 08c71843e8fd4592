// SPDX-License-Identifier: Apache-2.0
//
// Opening of inputs (open.h).

#include "view/input/open.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"
#include "fovea/scene.h"

#include "core/fail.h"
#include "io/mapped_file.h"
#include "recording/words.h"

namespace fovea::view {
namespace {

/// A hash for fingerprints, of 8 bytes at a time: not secure, but fast, and every bit counts.
class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes) {
    add(std::uint64_t{bytes.size()});
    std::size_t at = 0;
    for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      add(word);
    }
    std::uint64_t rest = 0;
    // An empty span may have no address.
    if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
    add(rest);
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(std::uint64_t word) {
    // The finaliser of MurmurHash3.
    state_ = (std::rotl(state_, 29) ^ word) * 0xff51afd7ed558ccdULL;
    state_ ^= state_ >> 33;
    state_ *= 0xc4ceb9fe1a85ec53ULL;
    state_ ^= state_ >> 29;
  }
  std::string hex() const { return fmt::format("{:016x}", state_); }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15ULL;
};

/// Adds a file: all of it, or if it is large, its first and last bytes and samples between them.
void add_file(Fingerprint& fingerprint, const std::string& path) {
  constexpr std::size_t kWhole = std::size_t{64} << 20;
  constexpr std::size_t kSamples = 4096, kSample = 4096;
  const FileBytes file = map_file(path);
  const std::size_t size = file.bytes.size();
  if (size <= kWhole) return fingerprint.add(file.bytes);
  fingerprint.add(std::uint64_t{size});
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t first = (size - kSample) / (kSamples - 1) * i;
    fingerprint.add(file.bytes.subspan(i + 1 < kSamples ? first : size - kSample, kSample));
  }
}

/// Returns the name with other characters than letters, digits, '.', '_' and '-' replaced.
std::string plain_name(std::string_view name) {
  constexpr std::size_t kLongest = 64;
  std::string plain(name.substr(0, kLongest));
  for (char& c : plain) {
    const auto byte = static_cast<unsigned char>(c);
    const bool kept = byte < 0x80 && (std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '-');
    if (!kept) c = '-';
  }
  return plain;
}

void set_identity(Input& input, std::string_view name, const Fingerprint& fingerprint) {
  constexpr std::size_t kDigits = 8;
  input.fingerprint = fingerprint.hex();
  input.id = plain_name(name) + "-" + input.fingerprint.substr(0, kDigits);
}

/// Sets files, and from the first one name and identity.
void set_files(Input& input, std::vector<OpenedFile> files, std::string_view options) {
  input.files = std::move(files);
  input.path = input.files.front().path;
  input.bytes = input.files.front().state.bytes;
  const std::filesystem::path file(input.path);
  input.name = file.filename().string();
  Fingerprint fingerprint;
  add_file(fingerprint, input.path);
  fingerprint.add(options);
  set_identity(input, file.stem().string(), fingerprint);
}

std::string label_of(const RecordedAttention& attention) {
  const std::string layer = std::to_string(attention.layer);
  if (attention.kind == AttentionKind::kSelf) return layer;
  return fmt::format("{}-{}", attention_kind_name(attention.kind), layer);
}

/// Sets labels: "13", "cross-13"; "13-2" for the second of a layer and kind; "13-b1" for a batch
/// item.
void set_labels(std::vector<Layer>& layers) {
  std::map<std::string, std::vector<std::string>> names;  // of attentions, by their labels
  for (Layer& layer : layers) {
    const RecordedAttention& attention = layer.attention;
    layer.label = label_of(attention);
    std::vector<std::string>& same = names[layer.label];
    auto found = std::ranges::find(same, attention.name);
    if (found == same.end()) found = same.insert(same.end(), attention.name);
    if (found != same.begin()) layer.label += fmt::format("-{}", found - same.begin() + 1);
    if (attention.query->extent(0) > 1) layer.label += fmt::format("-b{}", layer.batch);
  }
}

TokenTexts texts_of(const std::shared_ptr<const Recording>& recording, const TokenList* list) {
  if (list == nullptr) return {};
  return {recording, &list->texts};  // of the recording, which it keeps
}

/// Adds what is shown of a scene, and computes it, which reports its mistakes. The page, which is
/// larger, is rendered on demand.
void add_scene(Input& input, const scene::Scene& scene) {
  input.title = scene.title;
  std::vector<std::string> sequences;
  for (const std::vector<std::string>& tokens : scene.words.tokens) {
    sequences.push_back(fmt::format("{}", fmt::join(tokens, " ")));
  }
  input.source = fmt::format("{}", fmt::join(sequences, " / "));
  const auto trace = std::make_shared<const scene::Trace>(scene::trace_scene(scene));
  input.page = [trace] { return scene::to_html(*trace); };
}

bool is_empty(const RecordedAttention& attention) {
  const ProblemShape shape = attention.shape();
  return shape.q_heads == 0 || shape.q_len == 0 || shape.kv_len == 0;
}

}  // namespace

std::vector<Layer> layers_of(const RecordedAttention& attention) {
  std::vector<Layer> layers;
  const std::int64_t head_dim = attention.query->extent(3);
  for (std::int64_t batch = 0; batch < attention.query->extent(0); ++batch) {
    layers.push_back({.label = {},
                      .batch = batch,
                      .attention = attention,
                      .mask_words = recording::mask_words(attention.options),
                      .score_words = recording::score_words(attention.options.score, head_dim),
                      .query_tokens = {},
                      .key_tokens = {}});
  }
  return layers;
}

Input open_scene(const std::string& path) {
  Input input;
  input.kind = InputKind::kScene;
  set_files(input, {{path, file_state(path)}}, {});
  const scene::Scene scene = scene::load_scene(path);
  try {
    add_scene(input, scene);
  } catch (const InvalidArgument& error) {
    fail("{}: {}", path, error.what());
  }
  return input;
}

Input embedded_scene(const std::string& stem, std::string_view json) {
  Input input;
  input.kind = InputKind::kScene;
  const scene::Scene scene = scene::parse_scene(json);
  input.name = scene.title;
  input.bytes = json.size();
  add_scene(input, scene);
  Fingerprint fingerprint;
  fingerprint.add(json);
  set_identity(input, stem, fingerprint);
  return input;
}

Input open_recording(const std::string& path) {
  Input input;
  input.kind = InputKind::kRecording;
  set_files(input, {{path, file_state(path)}}, {});
  const auto recording = std::make_shared<const Recording>(Recording::open(path));
  if (recording->attentions().empty()) {
    fail("{}: expected attentions, got a recording without any", path);
  }
  input.model = recording->model();
  input.source = recording->source();
  input.recording = recording;
  for (const RecordedAttention& attention : recording->attentions()) {
    if (is_empty(attention)) continue;
    for (Layer& layer : layers_of(attention)) {
      layer.query_tokens = texts_of(recording, recording->query_tokens(attention, layer.batch));
      layer.key_tokens = texts_of(recording, recording->key_tokens(attention, layer.batch));
      layer.words = fmt::format("{} of {}", attention.name, path);
      input.layers.push_back(std::move(layer));
    }
  }
  set_labels(input.layers);
  return input;
}

Input tensors_input(std::vector<OpenedFile> files, std::vector<Layer> layers,
                    std::string_view options) {
  Input input;
  input.kind = InputKind::kTensors;
  set_files(input, std::move(files), options);
  input.layers = std::move(layers);
  set_labels(input.layers);
  return input;
}

}  // namespace fovea::view
