// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training run (run_folder.h).

#include "train/run_folder.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"
#include "fovea/files.h"
#include "fovea/nn/checkpoint.h"

#include "io/mapped_file.h"
#include "io/output_file.h"
#include "json/json_reader.h"

namespace fovea::train {
namespace {

constexpr const char* kModel = "model.json";
constexpr const char* kSettings = "run.json";
constexpr const char* kBest = "model.safetensors";
constexpr const char* kCheckpoint = "checkpoint.safetensors";
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 31;

/// Reads the tensors of a file by name into existing tensors of the same shape and dtype.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(TensorFile::open(path)) {}

  void read(const std::string& name, const MutableTensorView& to) {
    const auto found = std::ranges::find(file_.tensors(), name, &TensorInfo::name);
    if (found == file_.tensors().end()) {
      throw InvalidArgument(fmt::format(
          "{}: expected a tensor \"{}\", which a model of model.json's kind has, got none", path_,
          name));
    }
    const TensorRef tensor = file_.read(name);
    if (tensor->dtype() != to.dtype() || tensor->shape() != to.shape()) {
      throw InvalidArgument(fmt::format("{}: {}: expected {} {}, got {} {}", path_, name,
                                        dtype_name(to.dtype()), to_string(to.shape()),
                                        dtype_name(tensor->dtype()), to_string(tensor->shape())));
    }
    const Tensor copy(tensor.view());
    std::memcpy(to.data(), copy.view().data(),
                static_cast<std::size_t>(to.size()) * dtype_size(to.dtype()));
    ++count_;
  }
  /// Throws InvalidArgument unless all tensors of the file were read.
  void finish() const {
    if (count_ != file_.tensors().size()) {
      throw InvalidArgument(fmt::format("{}: expected {} tensors, as model.json's kind has, got {}",
                                        path_, count_, file_.tensors().size()));
    }
  }

 private:
  std::string path_;
  TensorFile file_;
  std::size_t count_ = 0;
};

Vocabulary vocabulary(const scene::JsonNode& node) {
  std::vector<std::string> symbols;
  for (const scene::JsonNode& symbol : node.array()) symbols.push_back(symbol.string());
  return Vocabulary(std::move(symbols));
}

scene::JsonNode at(const scene::JsonNode& node, std::string_view key) {
  const std::optional<scene::JsonNode> found = node.find(key);
  if (!found) node.fail(fmt::format("expected \"{}\", got none", key));
  return *found;
}

Model parse_model(std::string_view json) {
  const scene::JsonDocument document = scene::parse_json(json, "model");
  const scene::JsonNode root = document.root("model");
  Model model;
  model.source = vocabulary(at(root, "source_symbols"));
  model.target = vocabulary(at(root, "target_symbols"));
  TranslatorOptions& options = model.options;
  options.architecture = static_cast<Architecture>(
      at(root, "architecture")
          .choice({std::string(architecture_name(Architecture::kTransformer)),
                   std::string(architecture_name(Architecture::kGru))}));
  options.source_symbols = model.source.size();
  options.target_symbols = model.target.size();
  for (const auto& [key, number] : {std::pair("max_length", &options.max_length),
                                    {"width", &options.width},
                                    {"heads", &options.heads},
                                    {"inner", &options.inner},
                                    {"encoder_layers", &options.encoder_layers},
                                    {"decoder_layers", &options.decoder_layers}}) {
    *number = at(root, key).integer(1, kMaxNumber);
  }
  options.rotary_base = at(root, "rotary_base").number();
  options.dropout = at(root, "dropout").number();
  options.seed = static_cast<std::uint64_t>(at(root, "seed").integer(0, 0xFFFFFFFF));
  model.translator = make_translator(options);
  return model;
}

/// Returns parse(contents of the file). Prepends the path to error messages.
template <class Parse>
auto read_json(const std::string& path, const Parse& parse) {
  const FileBytes file = map_file(path);
  try {
    return parse({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace

bool RunFolder::has_checkpoint() const {
  std::error_code error;
  return std::filesystem::exists(file(kCheckpoint), error);
}

void RunFolder::begin(const Model& model, const RunSettings& settings) const {
  const TranslatorOptions& options = model.options;
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    throw OutputError(fmt::format("{}: cannot be created as a folder: {}", path_, error.message()));
  }
  const nlohmann::ordered_json json = {{"architecture", architecture_name(options.architecture)},
                                       {"max_length", options.max_length},
                                       {"width", options.width},
                                       {"heads", options.heads},
                                       {"inner", options.inner},
                                       {"encoder_layers", options.encoder_layers},
                                       {"decoder_layers", options.decoder_layers},
                                       {"rotary_base", options.rotary_base},
                                       {"dropout", options.dropout},
                                       {"seed", options.seed},
                                       {"source_symbols", model.source.symbols()},
                                       {"target_symbols", model.target.symbols()}};
  save_page(kModel, json.dump(1) + "\n");
  save_page(kSettings, to_json(settings));
}

void RunFolder::save_page(const char* name, const std::string& text) const {
  OutputFile out(file(name));
  out.write(text);
  out.finish();
}

std::string RunFolder::read_page(const char* name) const {
  std::ifstream in(file(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

RunSettings RunFolder::read_settings() const {
  return read_json(file(kSettings), parse_run_settings);
}

Model RunFolder::read_model() const { return read_json(file(kModel), parse_model); }

void RunFolder::save_best(const Translator& translator) const {
  nn::save_parameters(translator.model().parameters(), file(kBest));
}

void RunFolder::load_best(Translator& translator) const {
  nn::load_parameters(translator.model().parameters(), file(kBest));
}

namespace {

/// Calls visit(name, tensor) for every tensor of a checkpoint.
template <class Optimizer, class Visitor>
void for_each_tensor(Optimizer& adam, Tensor& counts, Tensor& best, const Visitor& visit) {
  for (auto& moments : adam.moments()) {
    visit(moments.parameter->name, moments.parameter->value);
    visit("optimizer.mean." + moments.parameter->name, moments.mean);
    visit("optimizer.square." + moments.parameter->name, moments.square);
  }
  visit("run.counts", counts);
  visit("run.best", best);
}

}  // namespace

void RunFolder::save_checkpoint(const nn::Adam& adam, const RunState& state) const {
  Tensor counts = Tensor::from<std::int64_t>(
      {4}, {state.steps, state.best_step, state.worse, state.fingerprint});
  Tensor best = Tensor::from<double>({1}, {state.best});
  std::vector<NamedTensor> tensors;
  for_each_tensor(adam, counts, best, [&](const std::string& name, const Tensor& tensor) {
    tensors.push_back({name, tensor});
  });
  write_tensors(file(kCheckpoint), tensors);
}

RunState RunFolder::load_checkpoint(nn::Adam& adam) const {
  Tensor counts(DType::kInt64, {4}), best(DType::kFloat64, {1});
  Reader reader(file(kCheckpoint));
  for_each_tensor(adam, counts, best,
                  [&](const std::string& name, Tensor& tensor) { reader.read(name, tensor); });
  reader.finish();
  const std::span<const std::int64_t> numbers = std::as_const(counts).span<std::int64_t>();
  adam.set_steps(numbers[0]);
  return {numbers[0], best.at<double>({0}), numbers[1], numbers[2], numbers[3]};
}

}  // namespace fovea::train
