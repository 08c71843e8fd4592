// SPDX-License-Identifier: Apache-2.0
//
// `fovea record` (command.h).

#include "cli/record/command.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/files.h"
#include "fovea/recording.h"

#include "cli/pages/pages.h"
#include "cli/problem/arguments.h"
#include "cli/problem/call.h"
#include "cli/problem/inputs.h"
#include "cli/problem/options.h"
#include "cli/problem/rules.h"
#include "cli/problem/token_file.h"
#include "cli/shell/call_progress.h"
#include "cli/shell/message.h"
#include "cli/shell/number_list.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/units.h"
#include "core/fail.h"
#include "problem/part.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr const char* kTokensName = "text";

/// An attention to record, and the arguments that name its tensors.
struct Recordable {
  std::string name;
  std::int64_t layer = 0;
  AttendArguments tensors;
};

/// Returns the last whole number in a name; nothing if there is none.
std::optional<std::int64_t> number_in(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto last = std::find_if(name.rbegin(), name.rend(), is_digit);
  if (last == name.rend()) return std::nullopt;
  const auto before = std::find_if_not(last, name.rend(), is_digit);
  return parse_number<std::int64_t>(name.substr(static_cast<std::size_t>(name.rend() - before),
                                                static_cast<std::size_t>(before - last)));
}

/// Returns the prefixes of the tensors "PREFIX.query" of a file, in its order; none if the file has
/// a tensor "query" or is no file of several tensors.
std::vector<std::string> prefixes_in(const TensorFile& file) {
  constexpr std::string_view kQuery = ".query";
  std::vector<std::string> prefixes;
  for (const TensorInfo& info : file.tensors()) {
    if (info.name == "query") return {};
    if (!info.name.ends_with(kQuery)) continue;
    prefixes.push_back(info.name.substr(0, info.name.size() - kQuery.size()));
  }
  return prefixes;
}

class RecordCommand : public Command {
 public:
  explicit RecordCommand(CLI::App& parent);
  int run() const override;

 private:
  void check_usage() const;
  /// Returns what to record: the tensors of the options, or every "PREFIX.query" of --input.
  std::vector<Recordable> recordables() const;
  /// Computes the lse and adds the attention.
  void add(const Recordable& recordable, bool has_tokens, std::int64_t tokens,
           RecordingWriter& writer, Progress& progress) const;

  AttendArguments arguments_;
  std::string name_, model_, source_, tokens_;
  std::optional<std::int64_t> layer_;
  AttentionKind kind_ = AttentionKind::kSelf;
  std::optional<DType> store_;
};

RecordCommand::RecordCommand(CLI::App& parent)
    : Command(parent, "record", "write a recording of tensors in files", kRecordPage) {
  add_tensor_options(*app_, arguments_);
  app_->get_option("--value")->description(
      "Optional: the value, with the heads and length of the key, for contexts and value-weighted "
      "maps.");
  app_->get_option("--input")->description(
      "An .npz or .safetensors file with \"query\", \"key\" and perhaps \"value\"; or with "
      "\"NAME.query\", \"NAME.key\" and perhaps \"NAME.value\" for each of several attentions.");
  app_->get_option("--layout")
      ->description(
          "The order of dimensions: heads first (bhld, the default) or length first (blhd).");
  app_->get_option("--dtype")->description("Convert query, key and value to this type.");
  app_->option_defaults()->group("Options for the recording");
  app_->add_option("--output", arguments_.output, "The recording to write, a .safetensors file.")
      ->type_name("FILE");
  app_->add_option("--tokens", tokens_,
                   "A text file with one token per line for the keys, and for the queries if there "
                   "are as many.")
      ->type_name("FILE");
  app_->add_option("--name", name_, "The name of the attention (default: layers.N).")
      ->type_name("NAME");
  add_index(*app_, "--layer", layer_,
            "Its layer (default 0, or the last number in the name of each of several).");
  add_choice(*app_, "--kind", kind_,
             {{"self", AttentionKind::kSelf},
              {"encoder", AttentionKind::kEncoder},
              {"decoder", AttentionKind::kDecoder},
              {"cross", AttentionKind::kCross}},
             "The kind of attention: self (the default), encoder, decoder or cross.")
      ->type_name("KIND");
  app_->add_option("--model", model_, "The name of the model.")->type_name("NAME");
  app_->add_option("--source", source_, "What is recorded, in words.")->type_name("TEXT");
  add_choice(*app_, "--store", store_,
             {{"f32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"f16", DType::kFloat16}},
             "Store query, key and value in this type; the lse is computed before. Default: their "
             "own.")
      ->type_name("TYPE");
  app_->option_defaults()->group("Options");
  add_threads_option(*app_, arguments_);
  add_mask_options(*app_, arguments_);
  add_score_options(*app_, arguments_);
}

void RecordCommand::check_usage() const {
  check_problem_usage(
      *app_, arguments_, {"--query", "--key"},
      {{"--output", &arguments_.output}, {"--tokens", &tokens_}, {"--name", &name_}});
  if (!given("--output")) throw UsageError("expected --output FILE");
  require_ending("--output", arguments_.output, {".safetensors"}, ".safetensors");
}

std::vector<Recordable> RecordCommand::recordables() const {
  const std::int64_t layer = layer_.value_or(0);
  Recordable one = {name_.empty() ? fmt::format("layers.{}", layer) : name_, layer, arguments_};
  const TensorSpec place = parse_tensor_spec(arguments_.input);
  if (place.path.empty() || place.path == "-") return {one};
  const TensorFile file = TensorFile::open(place.path);
  std::set<std::string> names;
  for (const TensorInfo& info : file.tensors()) names.insert(info.name);
  const std::string type = place.name.empty() ? "" : ":" + place.name;  // ":bf16"
  if (one.tensors.value.empty() && names.contains("value")) {
    one.tensors.value = fmt::format("{}:value{}", place.path, type);
  }
  const std::vector<std::string> prefixes = prefixes_in(file);
  const bool named = !arguments_.query.empty() || !arguments_.key.empty();
  if (prefixes.empty() || named) return {one};
  if (given("--name") || given("--layer")) {
    fail("--{}: expected one attention, got a file with {}", given("--name") ? "name" : "layer",
         prefixes.size());
  }
  std::vector<Recordable> found;
  for (const std::string& prefix : prefixes) {
    Recordable each = {prefix, number_in(prefix).value_or(std::ssize(found)), arguments_};
    each.tensors.input.clear();
    each.tensors.query = fmt::format("{}:{}.query{}", place.path, prefix, type);
    each.tensors.key = fmt::format("{}:{}.key{}", place.path, prefix, type);
    if (names.contains(prefix + ".value")) {
      each.tensors.value = fmt::format("{}:{}.value{}", place.path, prefix, type);
    }
    found.push_back(std::move(each));
  }
  return found;
}

void RecordCommand::add(const Recordable& recordable, bool has_tokens, std::int64_t tokens,
                        RecordingWriter& writer, Progress& progress) const {
  const AttendInputs inputs = read_inputs(recordable.tensors, ValueWish::kIfGiven);
  if (inputs.is_float64()) {
    fail("{}: expected float32, float16 or bfloat16, got float64; --dtype f32 converts",
         inputs.query.place);
  }
  const ProblemShape& shape = inputs.shape;
  AttentionOptions options = read_rules(arguments_).options();
  require_fit(options, shape);
  RecordedAttention attention;
  attention.name = recordable.name;
  attention.layer = recordable.layer;
  attention.kind = kind_;
  attention.options = options;
  attention.query = TensorRef(inputs.query.view);
  attention.key = TensorRef(inputs.key.view);
  const bool values = inputs.value.name != inputs.key.name;
  if (values) attention.value = TensorRef(inputs.value.view);
  if (has_tokens) {
    if (shape.kv_len != tokens) {
      fail("--tokens: {}: expected {} lines, one for each key, got {}", tokens_, shape.kv_len,
           tokens);
    }
    attention.key_tokens = {kTokensName};
    if (shape.q_len == tokens) attention.query_tokens = {kTokensName};
  }
  Tensor lse(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len});
  CallProgress said(progress, useful_flop(shape, inputs.head_dim(), options));
  options.execution.threads = static_cast<int>(arguments_.threads);
  options.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
  AttentionOutputs outputs;
  outputs.lse = lse;
  try {
    attention_forward(inputs.query.view, inputs.key.view, no_value(inputs.key.view), options,
                      outputs);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  progress.clear();
  attention.lse = TensorRef(std::move(lse));
  writer.add(attention);
}

int RecordCommand::run() const {
  check_usage();
  const std::vector<Recordable> all = recordables();
  TokenList tokens;
  if (given("--tokens")) tokens = {.name = kTokensName, .texts = read_tokens("--tokens", tokens_)};
  require_writable(arguments_.output);
  Progress progress;
  RecordingWriter writer(arguments_.output, {.model = model_, .source = source_, .store = store_});
  if (given("--tokens")) writer.add(tokens);
  for (const Recordable& each : all) {
    add(each, given("--tokens"), tokens.size(), writer, progress);
  }
  const std::int64_t bytes = writer.bytes();
  writer.finish();
  write_stdout(fmt::format("recording  {}, {:.4g} MB, written to {}\n",
                           counted(std::ssize(all), "attention"), static_cast<double>(bytes) * 1e-6,
                           visible(arguments_.output)));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_record(CLI::App& parent) {
  return std::make_unique<RecordCommand>(parent);
}

}  // namespace fovea::cli
