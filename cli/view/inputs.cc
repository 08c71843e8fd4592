// SPDX-License-Identifier: Apache-2.0
//
// Opening of inputs (inputs.h).

#include "cli/view/inputs.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/files.h"
#include "fovea/recording.h"

#include "cli/problem/call.h"
#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/problem/token_file.h"
#include "cli/shell/message.h"
#include "cli/shell/number_list.h"
#include "cli/shell/output.h"
#include "core/fail.h"
#include "view/input/open.h"

namespace fovea::cli {
namespace {

using view::Input;
using view::Layer;
using view::TokenTexts;

/// Returns the options that may name tensor files, that of the queries first.
std::vector<std::string> tensor_specs(const AttendArguments& problem) {
  return {problem.query,     problem.input,       problem.key,      problem.value,
          problem.documents, problem.key_lengths, problem.mask,     problem.alignment,
          problem.bias,      problem.slopes,      problem.relative, problem.sinks};
}

/// Returns a text that changes with the options and with the files that they name.
std::string options_text(const AttendArguments& problem) {
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", problem.length_first,
                  problem.dtype ? dtype_name(*problem.dtype) : "", problem.causal, problem.prefix,
                  problem.window, problem.scale ? fmt::format("{}", *problem.scale) : "",
                  problem.softcap.value_or(0.0), problem.alibi, problem.one_way, problem.distance);
  for (const std::string& value : tensor_specs(problem)) {
    const view::FileState file = view::file_state(parse_tensor_spec(value).path);
    text += fmt::format("\n{} {} {}", value, file.bytes, file.time);
  }
  return text;
}

TokenTexts texts_from(const std::string& option, const std::string& path) {
  if (path.empty()) return {};
  return std::make_shared<const std::vector<std::string>>(read_tokens(option, path));
}

void require_count(const char* option, const std::string& path, const TokenTexts& tokens,
                   std::int64_t count, const char* what) {
  if (!tokens || static_cast<std::int64_t>(tokens->size()) == count) return;
  fail("{}: {}: expected {} lines, one for each {}, got {}", option, path, count, what,
       tokens->size());
}

/// Reads tensors with the options for masks, scores and tokens.
class TensorReader {
 public:
  explicit TensorReader(const ViewSources& sources)
      : sources_(sources),
        rules_(read_rules(sources.problem)),
        tokens_(texts_from("--tokens", sources.tokens)),
        query_tokens_(texts_from("--query-tokens", sources.query_tokens)) {}

  /// Adds the layers of one problem.
  void add(const AttendArguments& problem, const std::string& name, std::int64_t layer) {
    for (const std::string& spec : tensor_specs(problem)) watch(parse_tensor_spec(spec).path);
    watch(sources_.tokens);
    watch(sources_.query_tokens);
    const AttendInputs inputs = read_inputs(problem, ValueWish::kIfGiven);
    const ProblemShape& shape = inputs.shape;
    if (shape.batch == 0 || shape.q_heads == 0 || shape.q_len == 0 || shape.kv_len == 0) {
      fail("{}: expected queries and keys, got none", inputs.words());
    }
    require_fit(rules_.options(), shape);
    require_count("--tokens", sources_.tokens, tokens_, shape.kv_len, "key");
    require_count("--query-tokens", sources_.query_tokens, query_tokens_, shape.q_len, "query");
    const RecordedAttention attention = {.name = name,
                                         .layer = layer,
                                         .options = rules_.options(),
                                         .query = owned(inputs.query),
                                         .key = owned(inputs.key)};
    for (Layer& each : view::layers_of(attention)) {
      each.mask_words = rules_.mask_words;
      each.score_words = rules_.score_words(inputs.head_dim());
      each.key_tokens = tokens_;
      each.query_tokens = query_tokens_;
      if (!query_tokens_ && shape.q_len == shape.kv_len) each.query_tokens = tokens_;
      each.words = inputs.words();
      layers_.push_back(std::move(each));
    }
  }

  Input input() {
    return view::tensors_input(std::move(files_), std::move(layers_),
                               options_text(sources_.problem));
  }

 private:
  /// Returns the tensor as [batch, heads, length, dim], with the owner of its memory.
  static TensorRef owned(const AttendTensor& tensor) {
    return {tensor.view, std::make_shared<const TensorRef>(tensor.tensor)};
  }

  /// Keeps the state of a file, unless the text is none: options may also have values as text.
  void watch(const std::string& path) {
    const view::FileState state = view::file_state(path);
    if (state == view::FileState{}) return;
    if (std::ranges::find(files_, path, &view::OpenedFile::path) != files_.end()) return;
    files_.push_back({path, state});
  }

  const ViewSources& sources_;
  AttendRules rules_;
  TokenTexts tokens_, query_tokens_;
  std::vector<view::OpenedFile> files_;
  std::vector<Layer> layers_;
};

/// Returns L for "layers.L.query".
std::optional<std::int64_t> layer_of(const std::string& name) {
  constexpr std::string_view kBefore = "layers.", kAfter = ".query";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter) ||
      name.size() <= kBefore.size() + kAfter.size()) {
    return {};
  }
  const auto layer = parse_number<std::int64_t>(
      std::string_view(name).substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size()));
  return layer && *layer >= 0 ? layer : std::nullopt;
}

Input open_tensors(const ViewSources& sources, const std::string& path) {
  std::vector<std::int64_t> layers;
  const TensorFile file = TensorFile::open(path);
  for (const TensorInfo& info : file.tensors()) {
    if (const auto layer = layer_of(info.name)) layers.push_back(*layer);
  }
  std::ranges::sort(layers);
  TensorReader reader(sources);
  AttendArguments problem = sources.problem;
  problem.query.clear();
  problem.key.clear();
  problem.value.clear();
  problem.input = path;
  if (layers.empty()) {
    try {
      reader.add(problem, "attention", 0);
    } catch (const InvalidArgument& error) {
      // The file was given without an option.
      constexpr std::string_view kOption = "--input: ";
      const std::string_view message = error.what();
      if (!message.starts_with(kOption)) throw;
      throw InvalidArgument(std::string(message.substr(kOption.size())));
    }
  }
  problem.input.clear();
  for (const std::int64_t layer : layers) {
    problem.query = fmt::format("{}:layers.{}.query", path, layer);
    problem.key = fmt::format("{}:layers.{}.key", path, layer);
    reader.add(problem, fmt::format("layers.{}", layer), layer);
  }
  return reader.input();
}

/// Returns the tensors that the options name.
Input open_named_tensors(const ViewSources& sources) {
  TensorReader reader(sources);
  reader.add(sources.problem, "attention", 0);
  return reader.input();
}

Input open_file(const ViewSources& sources, const std::string& path) {
  if (ending_of(path) == ".json") return view::open_scene(path);
  return is_recording(path) ? view::open_recording(path) : open_tensors(sources, path);
}

}  // namespace

std::vector<Input> open_inputs(const ViewSources& sources) {
  std::vector<Input> inputs;
  for (const std::string& file : sources.files) inputs.push_back(open_file(sources, file));
  if (sources.tensor_options) inputs.push_back(open_named_tensors(sources));
  const auto tensors = std::ranges::count(inputs, view::InputKind::kTensors, &Input::kind);
  if (sources.rule_options && tensors == 0) {
    throw UsageError("options for masks, scores and tokens go with tensors");
  }
  if (inputs.empty()) {
    for (const SceneFile& file : scene_files()) {
      inputs.push_back(view::embedded_scene(std::string(file.stem), file.json));
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (inputs[i].id != inputs[j].id) continue;
      fail("{}: expected each input once, got its content twice", inputs[i].path);
    }
  }
  return inputs;
}

Input reopen_input(const ViewSources& sources, const Input& input) {
  const bool file = std::ranges::find(sources.files, input.path) != sources.files.end();
  return file ? open_file(sources, input.path) : open_named_tensors(sources);
}

}  // namespace fovea::cli
