// SPDX-License-Identifier: Apache-2.0
//
// Worker of bench/training for Fovea: trains a transformer with the layers of fovea::nn, controlled
// by bench/training/run. torch_worker.py has the same model in PyTorch.
//
//   training_worker TASK PARAMETERS BATCHES
//
// TASK is task.json, the other two are .safetensors files. Requests and answers are lines of JSON
// on standard input and output. Requests {"do": ...} and their answers:
//
//   "versions"                        {"versions": {...}, "compiler": ..., "target": ...}
//   "begin", "dropout": p, "seed": n  {}; loads the parameters from the file, makes no step
//   "steps", "count": n               {"losses", "norms", "seconds"}: loss, gradient norm and time
//                                     of each step
//   "ceiling", "threads": n           {"gflops"}: peak rate of float32 multiply-adds
//
// Exits at the end of its input.

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "fovea/files.h"
#include "fovea/info.h"
#include "fovea/nn/cross_entropy.h"
#include "fovea/nn/embedding.h"
#include "fovea/nn/linear.h"
#include "fovea/nn/model.h"
#include "fovea/nn/optimizer.h"
#include "fovea/nn/transformer.h"
#include "fovea/tensor.h"

#include "ceilings/ceilings.h"

namespace {

using nlohmann::json;

/// Sizes of the model and options of the optimizer, named as in task.json.
struct Task {
  std::int64_t width, heads, layers, inner, vocabulary, length;
  double learning_rate, weight_decay, clip;

  static Task read(const std::string& path) {
    const json from = json::parse(std::ifstream(path));
    return {from.at("width"),         from.at("heads"),        from.at("layers"),
            from.at("inner"),         from.at("vocabulary"),   from.at("length"),
            from.at("learning_rate"), from.at("weight_decay"), from.at("clip")};
  }
};

/// Embeddings, the transformer and a linear projection to the vocabulary, with the same parameter
/// names as in torch_worker.py.
class Translator {
 public:
  Translator(const Task& task, double dropout, std::uint64_t seed)
      : model_(seed),
        source_embedding_(model_.scope("source_embedding"), task.vocabulary, task.width),
        target_embedding_(model_.scope("target_embedding"), task.vocabulary, task.width),
        positions_(model_.scope(), fovea::nn::PositionKind::kSinusoidal, task.length, task.width),
        transformer_(
            model_.scope("transformer"), task.layers, task.layers,
            {.width = task.width, .heads = task.heads, .inner = task.inner, .dropout = dropout}),
        output_(model_.scope("output"), task.width, task.vocabulary) {}

  fovea::nn::Model& model() { return model_; }

  double forward(const fovea::TensorView& source, const fovea::TensorView& target,
                 const fovea::TensorView& wanted) {
    const fovea::MutableTensorView from = source_embedding_.forward(source);
    const fovea::MutableTensorView to = target_embedding_.forward(target);
    positions_.forward(from);
    positions_.forward(to);
    return loss_.forward(output_.forward(transformer_.forward(from, to)), wanted);
  }

  void backward() {
    const auto grad = transformer_.backward(output_.backward(loss_.backward()));
    source_embedding_.backward(grad.source);
    target_embedding_.backward(grad.target);
  }

 private:
  fovea::nn::Model model_;
  fovea::nn::Embedding source_embedding_, target_embedding_;
  fovea::nn::Positions positions_;
  fovea::nn::Transformer transformer_;
  fovea::nn::Linear output_;
  fovea::nn::CrossEntropy loss_;
};

/// Returns the matrix at index `number` of the first dimension.
fovea::TensorView item(const fovea::TensorView& of, std::int64_t number) {
  const std::int64_t bytes = of.strides()[0] * static_cast<std::int64_t>(sizeof(std::int64_t));
  return {static_cast<const std::byte*>(of.data()) + number * bytes, of.dtype(),
          fovea::Shape{of.extent(1), of.extent(2)}, fovea::Strides{of.strides()[1], 1}};
}

/// The state of the training.
class Training {
 public:
  Training(const Task& task, const fovea::TensorFile& parameters, double dropout,
           std::uint64_t seed)
      : task_(task),
        translator_(task, dropout, seed),
        adam_((load(parameters), translator_.model().parameters()),
              {.weight_decay = task.weight_decay}) {}

  /// Makes `count` steps. The batch number is the step number modulo the number of batches.
  json steps(const fovea::TensorFile& batches, std::int64_t count) {
    const fovea::TensorRef source = batches.read("source"), target = batches.read("target"),
                           wanted = batches.read("wanted");
    json result{{"losses", json::array()}, {"norms", json::array()}, {"seconds", json::array()}};
    fovea::nn::Parameters& parameters = translator_.model().parameters();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t number = adam_.steps() % source.view().extent(0);
      const auto start = std::chrono::steady_clock::now();
      parameters.zero_gradients();
      translator_.model().train(static_cast<std::uint32_t>(adam_.steps()));
      const double loss = translator_.forward(
          item(source.view(), number), item(target.view(), number), item(wanted.view(), number));
      translator_.backward();
      const double norm = fovea::nn::clip_gradients(parameters, task_.clip);
      adam_.step(task_.learning_rate);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      result["losses"].push_back(loss);
      result["norms"].push_back(norm);
      result["seconds"].push_back(elapsed.count());
    }
    return result;
  }

 private:
  void load(const fovea::TensorFile& file) {
    fovea::nn::Parameters& parameters = translator_.model().parameters();
    std::size_t loaded = 0;
    for (fovea::nn::Parameter& parameter : parameters) {
      const fovea::Tensor value(file.read(parameter.name).view());
      if (value.shape() != parameter.value.shape()) {
        throw std::runtime_error(parameter.name + ": expected " +
                                 to_string(parameter.value.shape()) + ", got " +
                                 to_string(value.shape()));
      }
      parameter.value = value;
      ++loaded;
    }
    if (loaded != file.tensors().size()) {
      throw std::runtime_error("the file has parameters that the model has not");
    }
  }

  Task task_;
  Translator translator_;
  fovea::nn::Adam adam_;
};

void serve(char** arguments) {
  const Task task = Task::read(arguments[1]);
  const auto parameters = fovea::TensorFile::open(arguments[2]);
  const auto batches = fovea::TensorFile::open(arguments[3]);
  std::unique_ptr<Training> training;
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line);
    const std::string what = request.at("do");
    json answer = json::object();
    if (what == "versions") {
      const fovea::BuildInfo info = fovea::build_info();
      answer = {{"versions", {{"fovea", info.version}}},
                {"compiler", info.compiler},
                {"target", info.target}};
    } else if (what == "begin") {
      training.reset();
      training = std::make_unique<Training>(task, parameters, request.at("dropout"),
                                            request.at("seed").get<std::uint64_t>());
    } else if (what == "steps") {
      answer = training->steps(batches, request.at("count"));
    } else if (what == "ceiling") {
      answer["gflops"] =
          fovea::kernels::fma_ceiling_gflops({.threads = request.at("threads"), .seconds = 0.2});
    } else {
      throw std::runtime_error("no such request: " + what);
    }
    std::cout << answer.dump() << std::endl;
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count != 4) throw std::runtime_error("expected TASK PARAMETERS BATCHES");
    serve(arguments);
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "training_worker: " << problem.what() << '\n';
    return 1;
  }
}
