// SPDX-License-Identifier: Apache-2.0
//
// The engine and the reference behind two C functions, for suites of others that have their
// problems in NumPy arrays of any strides. tests/peers/run compiles it against build/release;
// tests/peers/engine.py calls it.

#include <cmath>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fovea/attention.h"
#include "fovea/reference.h"

/// An array of NumPy's: `type` is its dtype.char, strides count elements. Without data: absent.
struct peer_tensor {
  void* data;
  std::int64_t type, rank;
  std::int64_t extents[fovea::kMaxRank], strides[fovea::kMaxRank];
};

struct peer_problem {
  peer_tensor query, key, value;
  peer_tensor bias;     // added to the scores
  peer_tensor visible;  // bool: a dense mask
  std::int64_t causal;
  const std::int64_t* offsets;  // where the queries stand; null: bottom-right
  std::int64_t offset_count;
  const std::int64_t* key_lengths;  // null: all keys are real
  std::int64_t key_length_count;
  double scale;  // nan: the default
  double softcap;
};

namespace {

fovea::DType dtype_of(std::int64_t type) {
  switch (type) {
    case 'f':
      return fovea::DType::kFloat32;
    case 'd':
      return fovea::DType::kFloat64;
    case '?':
      return fovea::DType::kBool;
    default:
      throw std::invalid_argument("engine_call: no such type of NumPy's is expected");
  }
}

fovea::MutableTensorView view_of(const peer_tensor& tensor) {
  if (tensor.data == nullptr) return {};
  const auto rank = static_cast<std::size_t>(tensor.rank);
  return {tensor.data, dtype_of(tensor.type), fovea::Shape(std::span(tensor.extents, rank)),
          fovea::Strides(std::span(tensor.strides, rank))};
}

std::vector<std::int64_t> numbers(const std::int64_t* begin, std::int64_t count) {
  return {begin, begin + count};
}

fovea::AttentionOptions options_of(const peer_problem& problem) {
  fovea::AttentionOptions options;
  if (problem.causal != 0) options.mask = options.mask & fovea::causal();
  if (problem.visible.data != nullptr) {
    options.mask = options.mask & fovea::dense(fovea::TensorView(view_of(problem.visible)));
  }
  if (problem.key_lengths != nullptr) {
    options.mask =
        options.mask & fovea::key_lengths(numbers(problem.key_lengths, problem.key_length_count));
  }
  if (problem.offsets != nullptr) {
    options.alignment = fovea::Alignment::offsets(numbers(problem.offsets, problem.offset_count));
  }
  if (problem.bias.data != nullptr) options.score.bias = fovea::TensorView(view_of(problem.bias));
  if (!std::isnan(problem.scale)) options.score.scale = problem.scale;
  options.score.softcap = problem.softcap;
  return options;
}

/// The array of a step, or of the last step before it that the problem has.
const fovea::Tensor& step_named(const fovea::reference::Steps& steps, const std::string& name) {
  if (name == "context") return steps.context;
  if (name == "lse") return steps.lse;
  if (name == "weights") return steps.weights;
  const fovea::Tensor* last = nullptr;
  const auto reached = [&](const char* step, const fovea::Tensor& tensor) {
    if (tensor.defined()) last = &tensor;
    return name == step;
  };
  if (reached("scores", steps.scores) || reached("scaled_scores", steps.scaled_scores) ||
      reached("softcapped_scores", steps.softcapped_scores) ||
      reached("biased_scores", steps.biased_scores) ||
      reached("masked_scores", steps.masked_scores)) {
    return *last;
  }
  throw std::invalid_argument("engine_call: no step is called " + name);
}

/// Null, or what went wrong.
template <class Action>
const char* message_of(Action&& action) {
  static thread_local std::string message;
  try {
    action();
    return nullptr;
  } catch (const std::exception& problem) {
    message = problem.what();
    return message.c_str();
  }
}

}  // namespace

extern "C" {

/// attention_forward.
const char* peer_attention_forward(const peer_problem* problem, const peer_tensor* context,
                                   const peer_tensor* lse) {
  return message_of([&] {
    fovea::attention_forward(view_of(problem->query), view_of(problem->key),
                             view_of(problem->value), options_of(*problem),
                             {.context = view_of(*context), .lse = view_of(*lse)});
  });
}

/// One array of reference::attention_steps, by its name, into float64 of the same shape.
const char* peer_attention_step(const peer_problem* problem, const char* name,
                                const peer_tensor* output) {
  return message_of([&] {
    const fovea::reference::Inputs inputs = {view_of(problem->query), view_of(problem->key),
                                             view_of(problem->value)};
    const auto steps = fovea::reference::attention_steps(inputs, options_of(*problem));
    const fovea::Tensor& step = step_named(steps, name);
    const fovea::MutableTensorView to = view_of(*output);
    if (to.shape() != step.shape() || to.dtype() != fovea::DType::kFloat64) {
      throw std::invalid_argument("engine_call: the output is not float64 " +
                                  fovea::to_string(step.shape()));
    }
    fovea::for_each_index(
        step.shape(), [&](const fovea::Index& index) { to.at<double>(index) = step.value(index); });
  });
}
}
