// SPDX-License-Identifier: Apache-2.0
//
// Worker of bench/threads/run: measures the time of one call after a pause.
//
//   threads_worker CASE THREADS PAUSE CALLS
//
// Calls CASE, of the list below, with at most THREADS threads, after PAUSE milliseconds of sleep
// each. Prints the microseconds that each of the CALLS calls took, one a line. Linked to the shared
// libraries, so that LD_LIBRARY_PATH selects the build that is measured.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/nn/model.h"
#include "fovea/nn/transformer.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

namespace {

using fovea::DType;
using fovea::Shape;
using fovea::Tensor;
using Call = std::function<void()>;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDim = 64;
constexpr int kWarmUp = 10;

/// The tensors of an attention call, float32, D = 64.
struct Problem {
  Problem(std::int64_t heads, std::int64_t q_len, std::int64_t kv_len, int threads)
      : query(drawn(heads, q_len)),
        key(drawn(heads, kv_len)),
        value(drawn(heads, kv_len)),
        grad_context(drawn(heads, q_len)),
        context(DType::kFloat32, {1, heads, q_len, kDim}),
        lse(DType::kFloat32, {1, heads, q_len}),
        grad_query(DType::kFloat32, {1, heads, q_len, kDim}),
        grad_key(DType::kFloat32, {1, heads, kv_len, kDim}),
        grad_value(DType::kFloat32, {1, heads, kv_len, kDim}) {
    options.execution.threads = threads;
  }

  void forward() { fovea::attention_forward(query, key, value, options, {.context = context}); }
  void decode() { fovea::attention_decode(query, key, value, options, {.context = context}); }
  void backward() {
    fovea::attention_backward(
        {query, key, value, context, lse, grad_context}, options,
        {.grad_query = grad_query, .grad_key = grad_key, .grad_value = grad_value});
  }

  fovea::AttentionOptions options;
  Tensor query, key, value, grad_context, context, lse, grad_query, grad_key, grad_value;

 private:
  static Tensor drawn(std::int64_t heads, std::int64_t length) {
    static fovea::RandomState random(1);
    return fovea::convert(random.randn({1, heads, length, kDim}), DType::kFloat32);
  }
};

Call forward_of(std::int64_t heads, std::int64_t length, int threads) {
  const auto problem = std::make_shared<Problem>(heads, length, length, threads);
  return [problem] { problem->forward(); };
}

Call decode_of(std::int64_t heads, std::int64_t keys, int threads) {
  const auto problem = std::make_shared<Problem>(heads, 1, keys, threads);
  return [problem] { problem->decode(); };
}

Call backward_of(std::int64_t heads, std::int64_t length, int threads) {
  const auto problem = std::make_shared<Problem>(heads, length, length, threads);
  fovea::attention_forward(problem->query, problem->key, problem->value, problem->options,
                           {.context = problem->context, .lse = problem->lse});
  return [problem] { problem->backward(); };
}

/// A layer of a transformer: its products are oneDNN's, on OpenMP's threads. OMP_NUM_THREADS limits
/// both kinds of threads.
struct Layer {
  Layer(std::int64_t batch, std::int64_t length)
      : x(fovea::convert(fovea::RandomState(1).randn({batch, length, 256}), DType::kFloat32)) {}

  fovea::nn::Model model{1};
  fovea::nn::TransformerEncoderLayer layer{model.scope(), {.width = 256, .heads = 4}};
  Tensor x;
};

Call layer_of(std::int64_t batch, std::int64_t length, bool with_gradients) {
  const auto layer = std::make_shared<Layer>(batch, length);
  return [layer, with_gradients] {
    layer->layer.forward(layer->x);
    if (with_gradients) layer->layer.backward(layer->x);
  };
}

Call find(const std::string& name, int threads) {
  using Make = std::function<Call()>;
  const std::map<std::string, Make> cases = {
      {"8x64", [=] { return forward_of(8, 64, threads); }},
      {"8x256", [=] { return forward_of(8, 256, threads); }},
      {"8x1024", [=] { return forward_of(8, 1024, threads); }},
      {"2x4096", [=] { return forward_of(2, 4096, threads); }},
      {"decode", [=] { return decode_of(8, 4096, threads); }},
      {"backward", [=] { return backward_of(1, 1024, threads); }},
      {"layer-small", [] { return layer_of(1, 64, false); }},
      {"layer", [] { return layer_of(8, 64, false); }},
      {"layer-step", [] { return layer_of(8, 64, true); }},
      {"layer-long", [] { return layer_of(4, 512, true); }},
  };
  const auto found = cases.find(name);
  if (found == cases.end()) throw std::runtime_error("no case " + name);
  return found->second();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 4) throw std::runtime_error("expected CASE THREADS PAUSE CALLS");
  const Call call = find(arguments[0], std::stoi(arguments[1]));
  const std::chrono::milliseconds pause(std::stoi(arguments[2]));
  const int calls = std::stoi(arguments[3]);
  for (int i = 0; i < kWarmUp; ++i) call();
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const Clock::time_point start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  for (const double time : times) std::cout << time << '\n';
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::cerr << "threads_worker: " << error.what() << '\n';
    return 2;
  }
}
