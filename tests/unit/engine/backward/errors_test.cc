// SPDX-License-Identifier: Apache-2.0
//
// Errors of attention_backward: their messages, and that the gradients are untouched.

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_backward.h"
#include "fovea/attention_options.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/message_of.h"

namespace fovea::test {
namespace {

/// A valid call: query [2, 4, 6, 5], key [2, 2, 8, 5], value [2, 2, 8, 3], bias [6, 8], a relative
/// table [8, 4], 4 sinks. The gradients and lenses lie within one larger buffer, so that inputs can
/// be made to overlap them.
struct BackwardCall {
  BackwardCall() {
    RandomState random(1);
    query = convert(random.randn({2, 4, 6, 5}), DType::kFloat32);
    key = convert(random.randn({2, 2, 8, 5}), DType::kFloat32);
    value = convert(random.randn({2, 2, 8, 3}), DType::kFloat32);
    bias = convert(random.randn({6, 8}), DType::kFloat32);
    options.score = {
        .bias = bias, .relative = RelativeTable{random.randn({8, 4})}, .sinks = {0, 1, -1, 2}};
    results = forward({query, key, value}, options);
    loss = random_loss({query, key, value}, true, 3, DType::kFloat32);
    inputs = backward_inputs({query, key, value}, results, loss);
    gradients = {.grad_query = at(0, {2, 4, 6, 5}),
                 .grad_key = at(1000, {2, 2, 8, 5}),
                 .grad_value = at(2000, {2, 2, 8, 3}),
                 .grad_bias = at(3000, {6, 8}),
                 .grad_relative = at(4000, {8, 4}),
                 .grad_sinks = at(5000, {4}),
                 .lenses = &lenses};
    lenses = {.relevance = at(5500, {2, 4, 8}), .magnitude = at(6000, {2, 4, 8})};
  }
  BackwardCall(const BackwardCall&) = delete;
  BackwardCall& operator=(const BackwardCall&) = delete;

  MutableTensorView at(std::int64_t first, const Shape& shape) {
    return {memory.data() + 500 + first, shape};
  }
  void run() { attention_backward(inputs, options, gradients); }
  bool untouched() const {
    bool same = true;
    for (const float x : memory) same = same && x == kUntouched;
    return same;
  }

  std::vector<float> memory = std::vector<float>(7000, kUntouched);
  Tensor query, key, value, bias;
  Forward results;
  ResultLoss loss;
  AttentionOptions options;
  BackwardInputs inputs;
  BackwardLenses lenses;
  AttentionGradients gradients;
};

struct BadBackward {
  std::string name;
  std::function<void(BackwardCall&)> spoil;
  std::string message;
};
void PrintTo(const BadBackward& bad, std::ostream* stream) { *stream << bad.name; }

template <class Pointee>
BasicTensorView<Pointee> with(const BasicTensorView<Pointee>& view, const Shape& shape) {
  return {view.data(), view.dtype(), shape};
}
template <class Pointee>
BasicTensorView<Pointee> with(const BasicTensorView<Pointee>& view, const Strides& strides,
                              const Shape& shape) {
  return {view.data(), view.dtype(), shape, strides};
}
template <class Pointee>
BasicTensorView<Pointee> with(const BasicTensorView<Pointee>& view, DType dtype) {
  return {view.data(), dtype, view.shape(), view.strides()};
}
template <class Pointee>
BasicTensorView<Pointee> without_data(const BasicTensorView<Pointee>& view) {
  return {nullptr, view.dtype(), view.shape(), view.strides()};
}

CustomScore without_derivative() {
  return {.tile = [](const void*, const ScoreTile&) {},
          .one = [](const void*, double score, const ScorePosition&) { return score; }};
}

using Call = BackwardCall;

const std::vector<BadBackward> kBadInputs{
    {"query of another dim",
     [](Call& c) {
       c.inputs.query = with(c.inputs.query, {2, 4, 10, 3});
     },
     "key: expected dim 3 as query has, got 5"},
    {"no value", [](Call& c) { c.inputs.value = {}; },
     "value: expected [batch, heads, length, dim], got nothing"},
    {"no context", [](Call& c) { c.inputs.context = {}; },
     "context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got nothing"},
    {"no lse", [](Call& c) { c.inputs.lse = {}; },
     "lse: expected [batch, q_heads, q_len] = [2, 4, 6], got nothing"},
    {"no grad_context", [](Call& c) { c.inputs.grad_context = {}; },
     "grad_context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got nothing"},
    {"context of float64",
     [](Call& c) { c.inputs.context = with(c.inputs.context, DType::kFloat64); },
     "context: expected float32, float16 or bfloat16 for inputs of float32, got float64"},
    {"context of int64", [](Call& c) { c.inputs.context = with(c.inputs.context, DType::kInt64); },
     "context: expected float32, float16 or bfloat16 for inputs of float32, got int64"},
    {"lse of bfloat16", [](Call& c) { c.inputs.lse = with(c.inputs.lse, DType::kBFloat16); },
     "lse: expected float32 for inputs of float32, got bfloat16"},
    {"grad_context of float64",
     [](Call& c) { c.inputs.grad_context = with(c.inputs.grad_context, DType::kFloat64); },
     "grad_context: expected float32, float16 or bfloat16 for inputs of float32, got float64"},
    {"grad_lse of float64",
     [](Call& c) { c.inputs.grad_lse = with(c.inputs.grad_lse, DType::kFloat64); },
     "grad_lse: expected float32 for inputs of float32, got float64"},
    {"context of the value's shape",
     [](Call& c) {
       c.inputs.context = with(c.inputs.context, {2, 2, 8, 3});
     },
     "context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got [2, 2, 8, 3]"},
    {"lse of rank 4",
     [](Call& c) {
       c.inputs.lse = with(c.inputs.lse, {2, 4, 6, 1});
     },
     "lse: expected [batch, q_heads, q_len] = [2, 4, 6], got [2, 4, 6, 1]"},
    {"grad_context of rank 3", [](Call& c) { c.inputs.grad_context = c.inputs.grad_context[0]; },
     "grad_context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got [4, 6, 3]"},
    {"grad_lse of another length",
     [](Call& c) {
       c.inputs.grad_lse = with(c.inputs.grad_lse, {2, 4, 5});
     },
     "grad_lse: expected [batch, q_heads, q_len] = [2, 4, 6], got [2, 4, 5]"},
    {"context with a strided last dimension",
     [](Call& c) {
       c.inputs.context = with(c.inputs.context, {72, 18, 1, 6}, {2, 4, 6, 3});
     },
     "context: expected a contiguous last dimension (stride 1), got strides [72, 18, 1, 6]"},
    {"grad_context repeated along the last dimension",
     [](Call& c) {
       c.inputs.grad_context = with(c.inputs.grad_context, {72, 18, 3, 0}, {2, 4, 6, 3});
     },
     "grad_context: expected a contiguous last dimension (stride 1), got strides [72, 18, 3, 0]"},
    {"context without data", [](Call& c) { c.inputs.context = without_data(c.inputs.context); },
     "context: expected data for shape [2, 4, 6, 3], got a null pointer"},
    {"lse without data", [](Call& c) { c.inputs.lse = without_data(c.inputs.lse); },
     "lse: expected data for shape [2, 4, 6], got a null pointer"},
    {"grad_lse without data", [](Call& c) { c.inputs.grad_lse = without_data(c.inputs.grad_lse); },
     "grad_lse: expected data for shape [2, 4, 6], got a null pointer"},
    {"a custom function without its derivative",
     [](Call& c) { c.options.score.custom = without_derivative(); },
     "custom: expected a function with its derivative, got one without"},
    {"dropout of everything", [](Call& c) { c.options.dropout.probability = 1.0; },
     "dropout: expected a probability from 0 up to, but not, 1, got 1"},
    {"too many sinks", [](Call& c) { c.options.score.sinks.push_back(0); },
     "sinks: expected one number per query head (4), got 5"},
};

const std::vector<BadBackward> kBadGradients{
    {"grad_query of the key's shape",
     [](Call& c) {
       c.gradients.grad_query = c.at(0, {2, 2, 8, 5});
     },
     "grad_query: expected query's shape = [2, 4, 6, 5], got [2, 2, 8, 5]"},
    {"grad_key of every query head",
     [](Call& c) {
       c.gradients.grad_key = c.at(1000, {2, 4, 8, 5});
     },
     "grad_key: expected key's shape = [2, 2, 8, 5], got [2, 4, 8, 5]"},
    {"grad_value of rank 3",
     [](Call& c) {
       c.gradients.grad_value = c.at(2000, {2, 8, 3});
     },
     "grad_value: expected value's shape = [2, 2, 8, 3], got [2, 8, 3]"},
    {"grad_bias broadcast",
     [](Call& c) {
       c.gradients.grad_bias = c.at(3000, {2, 4, 6, 8});
     },
     "grad_bias: expected bias' shape = [6, 8], got [2, 4, 6, 8]"},
    {"grad_relative turned",
     [](Call& c) {
       c.gradients.grad_relative = c.at(4000, {4, 8});
     },
     "grad_relative: expected [buckets, q_heads] = [8, 4], got [4, 8]"},
    {"grad_sinks of a head of keys", [](Call& c) { c.gradients.grad_sinks = c.at(5000, {2}); },
     "grad_sinks: expected [q_heads] = [4], got [2]"},
    {"grad_query of float64",
     [](Call& c) { c.gradients.grad_query = with(c.gradients.grad_query, DType::kFloat64); },
     "grad_query: expected float32, float16 or bfloat16 for inputs of float32, got float64"},
    {"grad_sinks of int64",
     [](Call& c) { c.gradients.grad_sinks = with(c.gradients.grad_sinks, DType::kInt64); },
     "grad_sinks: expected float32, float16 or bfloat16 for inputs of float32, got int64"},
    {"grad_key without data",
     [](Call& c) { c.gradients.grad_key = without_data(c.gradients.grad_key); },
     "grad_key: expected data for shape [2, 2, 8, 5], got a null pointer"},
    {"grad_value with a strided last dimension",
     [](Call& c) {
       c.gradients.grad_value = with(c.gradients.grad_value, {48, 24, 1, 8}, {2, 2, 8, 3});
     },
     "grad_value: expected a contiguous last dimension (stride 1), got strides [48, 24, 1, 8]"},
    {"grad_query with rows in one place",
     [](Call& c) {
       c.gradients.grad_query = with(c.gradients.grad_query, {120, 30, 0, 1}, {2, 4, 6, 5});
     },
     "grad_query: expected an element in memory for each index, got strides [120, 30, 0, 1] for "
     "shape [2, 4, 6, 5]"},
    {"grad_bias with rows in one place",
     [](Call& c) {
       c.gradients.grad_bias = with(c.gradients.grad_bias, {0, 1}, {6, 8});
     },
     "grad_bias: expected an element in memory for each index, got strides [0, 1] for shape "
     "[6, 8]"},
    {"grad_sinks in one place",
     [](Call& c) { c.gradients.grad_sinks = with(c.gradients.grad_sinks, Strides{0}, Shape{4}); },
     "grad_sinks: expected an element in memory for each index, got strides [0] for shape [4]"},
    {"grad_query over the query", [](Call& c) { c.inputs.query = c.gradients.grad_query; },
     "grad_query: expected memory of its own, got some that query uses"},
    {"grad_key over the value",
     [](Call& c) {
       c.inputs.value = c.at(1000 + 159, {2, 2, 8, 3});
     },
     "grad_key: expected memory of its own, got some that value uses"},
    {"grad_value over the context",
     [](Call& c) {
       c.inputs.context = c.at(2000 - 143, {2, 4, 6, 3});
     },
     "grad_value: expected memory of its own, got some that context uses"},
    {"grad_query over lse",
     [](Call& c) {
       c.inputs.lse = c.at(239, {2, 4, 6});
     },
     "grad_query: expected memory of its own, got some that lse uses"},
    {"grad_key over grad_context",
     [](Call& c) {
       c.inputs.grad_context = c.at(1000, {2, 4, 6, 3});
     },
     "grad_key: expected memory of its own, got some that grad_context uses"},
    {"grad_sinks over grad_lse",
     [](Call& c) {
       c.inputs.grad_lse = c.at(5003, {2, 4, 6});
     },
     "grad_sinks: expected memory of its own, got some that grad_lse uses"},
    {"grad_bias over the bias",
     [](Call& c) { c.options.score.bias = TensorView(c.gradients.grad_bias); },
     "grad_bias: expected memory of its own, got some that bias uses"},
    {"grad_relative over the table",
     [](Call& c) { c.options.score.relative->table = TensorView(c.gradients.grad_relative); },
     "grad_relative: expected memory of its own, got some that relative uses"},
    {"grad_key over grad_query",
     [](Call& c) {
       c.gradients.grad_key = c.at(239, {2, 2, 8, 5});
     },
     "grad_key: expected memory of its own, got some that grad_query uses"},
    {"grad_sinks over grad_relative", [](Call& c) { c.gradients.grad_sinks = c.at(4031, {4}); },
     "grad_sinks: expected memory of its own, got some that grad_relative uses"},
    {"grad_bias without a bias", [](Call& c) { c.options.score.bias = {}; },
     "grad_bias: expected nothing where there is no bias, got [6, 8]"},
    {"grad_relative without a table", [](Call& c) { c.options.score.relative.reset(); },
     "grad_relative: expected nothing where there is no relative table, got [8, 4]"},
    {"grad_sinks without sinks", [](Call& c) { c.options.score.sinks.clear(); },
     "grad_sinks: expected nothing where there are no sinks, got [4]"},
};

const std::vector<BadBackward> kBadLenses{
    {"relevance of queries",
     [](Call& c) {
       c.lenses.relevance = c.at(5500, {2, 4, 6});
     },
     "relevance: expected [batch, q_heads, kv_len] = [2, 4, 8], got [2, 4, 6]"},
    {"magnitude of heads of keys",
     [](Call& c) {
       c.lenses.magnitude = c.at(6000, {2, 2, 8});
     },
     "magnitude: expected [batch, q_heads, kv_len] = [2, 4, 8], got [2, 2, 8]"},
    {"relevance of bfloat16",
     [](Call& c) { c.lenses.relevance = with(c.lenses.relevance, DType::kBFloat16); },
     "relevance: expected float32 for inputs of float32, got bfloat16"},
    {"magnitude of float64",
     [](Call& c) { c.lenses.magnitude = with(c.lenses.magnitude, DType::kFloat64); },
     "magnitude: expected float32 for inputs of float32, got float64"},
    {"relevance with a strided last dimension",
     [](Call& c) {
       c.lenses.relevance = with(c.lenses.relevance, {32, 1, 4}, {2, 4, 8});
     },
     "relevance: expected a contiguous last dimension (stride 1), got strides [32, 1, 4]"},
    {"magnitude without data",
     [](Call& c) { c.lenses.magnitude = without_data(c.lenses.magnitude); },
     "magnitude: expected data for shape [2, 4, 8], got a null pointer"},
    {"magnitude over relevance",
     [](Call& c) {
       c.lenses.magnitude = c.at(5500 + 63, {2, 4, 8});
     },
     "magnitude: expected memory of its own, got some that relevance uses"},
    {"relevance over grad_lse",
     [](Call& c) {
       c.inputs.grad_lse = c.at(5500, {2, 4, 6});
     },
     "relevance: expected memory of its own, got some that grad_lse uses"},
};

class AttentionBackwardErrors : public testing::TestWithParam<BadBackward> {};

TEST_P(AttentionBackwardErrors, MessageAndUntouchedGradients) {
  const BadBackward& bad = GetParam();
  BackwardCall call;
  bad.spoil(call);
  EXPECT_EQ(message_of([&] { call.run(); }), bad.message);
  EXPECT_TRUE(call.untouched());
  // The workspace query throws the same error.
  EXPECT_EQ(
      message_of([&] { attention_backward_workspace(call.inputs, call.options, call.gradients); }),
      bad.message);
}

std::string name_of_case(const testing::TestParamInfo<BadBackward>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Inputs, AttentionBackwardErrors, testing::ValuesIn(kBadInputs),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Gradients, AttentionBackwardErrors, testing::ValuesIn(kBadGradients),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Lenses, AttentionBackwardErrors, testing::ValuesIn(kBadLenses),
                         name_of_case);

TEST(AttentionBackwardErrorsTable, UnmodifiedCallIsValid) {
  BackwardCall call;
  EXPECT_EQ(message_of([&] { call.run(); }), "no error");
  EXPECT_FALSE(call.untouched());
}

TEST(AttentionBackwardErrorsTable, Float64RequiresFloat64Everywhere) {
  BackwardCall call;
  const Tensor query = convert(call.query, DType::kFloat64);
  call.inputs.query = query;
  EXPECT_NE(message_of([&] { call.run(); }), "no error");
  const Tensor key = convert(call.key, DType::kFloat64),
               value = convert(call.value, DType::kFloat64);
  call.inputs.key = key;
  call.inputs.value = value;
  EXPECT_EQ(message_of([&] { call.run(); }),
            "context: expected float64 for inputs of float64, got float32");
  EXPECT_TRUE(call.untouched());
}

TEST(AttentionBackwardErrorsTable, LseOfAnotherProblemIsDetectedWithAssertions) {
#ifdef NDEBUG
  GTEST_SKIP() << "not looked at in this build";
#else
  BackwardCall call;
  Tensor other = call.results.lse;
  set_value(other, {1, 3, 5}, other.value({1, 3, 5}) + 1.0);
  call.inputs.lse = other;
  const std::string message = message_of([&] { call.run(); });
  EXPECT_EQ(message.rfind("lse: expected that of the same problem, ", 0), 0U) << message;
  EXPECT_TRUE(call.untouched());
#endif
}

}  // namespace
}  // namespace fovea::test
