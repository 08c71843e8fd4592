// SPDX-License-Identifier: Apache-2.0
//
// Errors of the tensors and outputs of attention_forward: their messages, and that the outputs are
// untouched. Options are tested in engine/call/option_errors_test.cc.

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/bad_call.h"

namespace fovea::test {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TensorView with_shape(const TensorView& view, const Shape& shape) {
  return {view.data(), view.dtype(), shape};
}
TensorView with_strides(const TensorView& view, const Shape& shape, const Strides& strides) {
  return {view.data(), view.dtype(), shape, strides};
}
MutableTensorView with_strides(const MutableTensorView& view, const Shape& shape,
                               const Strides& strides) {
  return {view.data(), view.dtype(), shape, strides};
}
TensorView with_dtype(const TensorView& view, DType dtype) {
  return {view.data(), dtype, view.shape(), view.strides()};
}
TensorView null_of(const Shape& shape, const Strides& strides) {
  return {nullptr, DType::kFloat32, shape, strides};
}

// The tensors of Call (support/bad_call.h): query [2, 4, 6, 5], key [2, 2, 8, 5], value [2, 2, 8,
// 3], context [2, 4, 6, 3], lse [2, 4, 6].
const std::vector<BadCall> kBadInputs{
    {"no query", [](Call& c) { c.query = {}; },
     "query: expected [batch, heads, length, dim], got nothing"},
    {"no key", [](Call& c) { c.key = {}; },
     "key: expected [batch, heads, length, dim], got nothing"},
    {"no value", [](Call& c) { c.value = {}; },
     "value: expected [batch, heads, length, dim], got nothing"},
    {"query of rank 3", [](Call& c) { c.query = c.query[0]; },
     "query: expected [batch, heads, length, dim], got [4, 6, 5]"},
    {"key of rank 2", [](Call& c) { c.key = c.key[0][0]; },
     "key: expected [batch, heads, length, dim], got [8, 5]"},
    {"value of rank 5",
     [](Call& c) {
       c.value = with_shape(c.value, {1, 2, 2, 8, 3});
     },
     "value: expected [batch, heads, length, dim], got [1, 2, 2, 8, 3]"},
    {"query of int64", [](Call& c) { c.query = with_dtype(c.query, DType::kInt64); },
     "query: expected float32, float64, float16 or bfloat16, got int64"},
    {"key of bool", [](Call& c) { c.key = with_dtype(c.key, DType::kBool); },
     "key: expected float32, float64, float16 or bfloat16, got bool"},
    {"key of another type", [](Call& c) { c.key = with_dtype(c.key, DType::kFloat64); },
     "dtype: expected float64 for query, key and value or for none of them, got float32, float64 "
     "and float32"},
    {"value of another type", [](Call& c) { c.value = with_dtype(c.value, DType::kFloat64); },
     "dtype: expected float64 for query, key and value or for none of them, got float32, float32 "
     "and float64"},
    {"query with a strided last dimension",
     [](Call& c) {
       c.query = with_strides(c.query, {2, 4, 3, 2}, {120, 30, 5, 2});
     },
     "query: expected a contiguous last dimension (stride 1), got strides [120, 30, 5, 2]"},
    {"transposed key", [](Call& c) { c.key = c.key.transposed(2, 3); },
     "key: expected a contiguous last dimension (stride 1), got strides [80, 40, 1, 5]"},
    {"value with a reversed last dimension",
     [](Call& c) {
       c.value = with_strides(c.value, {2, 2, 8, 3}, {48, 24, 3, -1});
     },
     "value: expected a contiguous last dimension (stride 1), got strides [48, 24, 3, -1]"},
    {"value with a repeated last dimension",
     [](Call& c) {
       c.value = with_strides(c.value, {2, 2, 8, 3}, {48, 24, 3, 0});
     },
     "value: expected a contiguous last dimension (stride 1), got strides [48, 24, 3, 0]"},
    {"query without data",
     [](Call& c) {
       c.query = null_of({2, 4, 6, 5}, {120, 30, 5, 1});
     },
     "query: expected data for shape [2, 4, 6, 5], got a null pointer"},
    {"key without data",
     [](Call& c) {
       c.key = null_of({2, 2, 8, 5}, {80, 40, 5, 1});
     },
     "key: expected data for shape [2, 2, 8, 5], got a null pointer"},
    {"value without data",
     [](Call& c) {
       c.value = null_of({2, 2, 8, 3}, {48, 24, 3, 1});
     },
     "value: expected data for shape [2, 2, 8, 3], got a null pointer"},
    {"batch of key",
     [](Call& c) {
       c.key = with_shape(c.key, {1, 2, 8, 5});
     },
     "batch: expected the same for query, key and value, got 2, 1 and 2"},
    {"batch of value",
     [](Call& c) {
       c.value = with_shape(c.value, {1, 2, 8, 3});
     },
     "batch: expected the same for query, key and value, got 2, 2 and 1"},
    {"heads of value",
     [](Call& c) {
       c.value = with_shape(c.value, {2, 1, 8, 3});
     },
     "value: expected [batch, kv_heads, kv_len, value_dim] with kv_heads = 2 and kv_len = 8 as key "
     "has, got [2, 1, 8, 3]"},
    {"length of value",
     [](Call& c) {
       c.value = with_shape(c.value, {2, 2, 7, 3});
     },
     "value: expected [batch, kv_heads, kv_len, value_dim] with kv_heads = 2 and kv_len = 8 as key "
     "has, got [2, 2, 7, 3]"},
    {"heads that do not divide",
     [](Call& c) {
       c.query = with_shape(c.query, {2, 3, 6, 5});
     },
     "heads: expected q_heads to be a multiple of kv_heads, got 3 and 2"},
    {"fewer query heads than key heads",
     [](Call& c) {
       c.query = with_shape(c.query, {2, 1, 6, 5});
     },
     "heads: expected q_heads to be a multiple of kv_heads, got 1 and 2"},
    {"query heads without a key head",
     [](Call& c) {
       c.key = with_shape(c.key, {2, 0, 8, 5});
       c.value = with_shape(c.value, {2, 0, 8, 3});
     },
     "heads: expected q_heads to be a multiple of kv_heads, got 4 and 0"},
    {"dim of key",
     [](Call& c) {
       c.key = with_shape(c.key, {2, 2, 8, 4});
     },
     "key: expected dim 5 as query has, got 4"},
    {"a negative extent",
     [](Call& c) {
       c.query = with_strides(c.query, {2, 4, -6, 5}, {120, 30, 5, 1});
     },
     "tensor: expected extents of 0 or more, got shape [2, 4, -6, 5]"},
    {"more elements than 63 bits count",
     [](Call& c) {
       c.key = with_strides(c.key, {2, 2, kMax / 2, 5}, {0, 0, 0, 1});
     },
     "tensor: shape [2, 2, 4611686018427387903, 5] has more elements than fit into 63 bits"},
    {"strides beyond memory",
     [](Call& c) {
       c.key = with_strides(c.key, {2, 2, 8, 5}, {80, 40, kMax / 7, 1});
     },
     "key: expected strides that stay within memory, got [80, 40, 1317624576693539401, 1] for "
     "shape [2, 2, 8, 5]"},
    {"strides far before memory",
     [](Call& c) {
       c.value = with_strides(c.value, {2, 2, 8, 3}, {48, -kMax, 3, 1});
     },
     "value: expected strides that stay within memory, got [48, -9223372036854775807, 3, 1] for "
     "shape [2, 2, 8, 3]"},
};

const std::vector<BadCall> kBadOutputs{
    {"context of another value_dim",
     [](Call& c) {
       c.context = with_strides(c.context, {2, 4, 6, 2}, {72, 18, 3, 1});
     },
     "context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got [2, 4, 6, 2]"},
    {"context of rank 3", [](Call& c) { c.context = c.context[0]; },
     "context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got [4, 6, 3]"},
    {"context of the heads of key",
     [](Call& c) {
       c.context = with_strides(c.context, {2, 2, 6, 3}, {72, 18, 3, 1});
     },
     "context: expected [batch, q_heads, q_len, value_dim] = [2, 4, 6, 3], got [2, 2, 6, 3]"},
    {"lse of another length",
     [](Call& c) {
       c.lse = with_strides(c.lse, {2, 4, 5}, {24, 6, 1});
     },
     "lse: expected [batch, q_heads, q_len] = [2, 4, 6], got [2, 4, 5]"},
    {"lse of rank 4",
     [](Call& c) {
       c.lse = with_strides(c.lse, {2, 4, 6, 1}, {24, 6, 1, 1});
     },
     "lse: expected [batch, q_heads, q_len] = [2, 4, 6], got [2, 4, 6, 1]"},
    {"context of float64",
     [](Call& c) {
       c.context = {c.context.data(), DType::kFloat64, c.context.shape(), c.context.strides()};
     },
     "context: expected float32, float16 or bfloat16 for inputs of float32, got float64"},
    {"lse of float64",
     [](Call& c) {
       c.lse = {c.lse.data(), DType::kFloat64, c.lse.shape(), c.lse.strides()};
     },
     "lse: expected float32 for inputs of float32, got float64"},
    {"context without data",
     [](Call& c) {
       c.context = {nullptr, DType::kFloat32, {2, 4, 6, 3}, {72, 18, 3, 1}};
     },
     "context: expected data for shape [2, 4, 6, 3], got a null pointer"},
    {"lse without data",
     [](Call& c) {
       c.lse = {nullptr, DType::kFloat32, {2, 4, 6}, {24, 6, 1}};
     },
     "lse: expected data for shape [2, 4, 6], got a null pointer"},
    {"context with a strided last dimension",
     [](Call& c) {
       c.context = with_strides(c.context, {2, 4, 6, 3}, {72, 18, 1, 6});
     },
     "context: expected a contiguous last dimension (stride 1), got strides [72, 18, 1, 6]"},
    {"context with rows in one place",
     [](Call& c) {
       c.context = with_strides(c.context, {2, 4, 6, 3}, {72, 18, 0, 1});
     },
     "context: expected an element in memory for each index, got strides [72, 18, 0, 1] for shape "
     "[2, 4, 6, 3]"},
    {"context with rows that overlap",
     [](Call& c) {
       c.context = with_strides(c.context, {2, 4, 6, 3}, {72, 18, 2, 1});
     },
     "context: expected an element in memory for each index, got strides [72, 18, 2, 1] for shape "
     "[2, 4, 6, 3]"},
    {"lse with heads in one place",
     [](Call& c) {
       c.lse = with_strides(c.lse, {2, 4, 6}, {6, 0, 1});
     },
     "lse: expected an element in memory for each index, got strides [6, 0, 1] for shape "
     "[2, 4, 6]"},
    {"context with strides beyond memory",
     [](Call& c) {
       c.context = with_strides(c.context, {2, 4, 6, 3}, {kMax / 2, 18, 3, 1});
     },
     "context: expected strides that stay within memory, got [4611686018427387903, 18, 3, 1] for "
     "shape [2, 4, 6, 3]"},
    {"context over the query",
     [](Call& c) {
       c.query = with_shape(c.context, {2, 4, 6, 3});
       c.key = with_shape(c.key, {2, 2, 8, 3});
     },
     "context: expected memory of its own, got some that query uses"},
    {"context over the last element of the key",
     [](Call& c) {
       const auto* const before = static_cast<const float*>(c.context.data()) - 2 * 2 * 8 * 5 + 1;
       c.key = {before, {2, 2, 8, 5}};
     },
     "context: expected memory of its own, got some that key uses"},
    {"context over a reversed value",
     [](Call& c) {
       const auto* const last = static_cast<const float*>(c.context.data()) + 2 * 2 * 8 * 3 - 3;
       c.value = {last, DType::kFloat32, {2, 2, 8, 3}, {-48, -24, -3, 1}};
     },
     "context: expected memory of its own, got some that value uses"},
    {"lse over the value",
     [](Call& c) {
       c.value = {static_cast<const float*>(c.lse.data()) + 47, {2, 2, 8, 3}};
     },
     "lse: expected memory of its own, got some that value uses"},
    {"lse over the context",
     [](Call& c) {
       c.lse = {static_cast<float*>(c.context.data()) + 143, {2, 4, 6}};
     },
     "lse: expected memory of its own, got some that context uses"},
    {"context over the bias",
     [](Call& c) {
       c.options.score.bias = with_shape(c.context, {6, 8});
     },
     "context: expected memory of its own, got some that bias uses"},
    {"lse over the bias",
     [](Call& c) {
       c.options.score.bias = with_shape(c.lse, {6, 8});
     },
     "lse: expected memory of its own, got some that bias uses"},
    {"context over a dense mask",
     [](Call& c) {
       c.options.mask =
           causal() & (prefix(2) | dense(TensorView(c.context.data(), DType::kBool, {6, 8})));
     },
     "context: expected memory of its own, got some that mask uses"},
    {"lse over a dense mask",
     [](Call& c) {
       const auto* const last =
           static_cast<const bool*>(static_cast<const void*>(c.lse.data())) + 2 * 4 * 6 * 4 - 1;
       c.options.mask = dense(TensorView(last, DType::kBool, {6, 8}));
     },
     "lse: expected memory of its own, got some that mask uses"},
    {"context over a relative table",
     [](Call& c) {
       c.options.score.relative = RelativeTable{with_shape(c.context, {32, 4})};
     },
     "context: expected memory of its own, got some that relative uses"},
};

class AttentionErrors : public testing::TestWithParam<BadCall> {};

TEST_P(AttentionErrors, MessageAndUntouchedOutputs) { expect_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Inputs, AttentionErrors, testing::ValuesIn(kBadInputs), name_of_case);
INSTANTIATE_TEST_SUITE_P(Outputs, AttentionErrors, testing::ValuesIn(kBadOutputs), name_of_case);

TEST(AttentionErrorsTable, UnmodifiedCallIsValid) {
  Call call;
  EXPECT_NO_THROW(call.run());
  EXPECT_FALSE(call.untouched());
}

TEST(AttentionErrorsTable, WorkspaceApartFromInputsAndOutputs) {
  std::vector<float> memory(1 << 18);
  const auto refusal = [&](const auto& change) {
    Call call;
    call.options.execution.workspace = std::as_writable_bytes(std::span(memory));
    change(call);
    return message_of([&] { call.run(); });
  };
  EXPECT_EQ(refusal([](Call&) {}), "no error");
  EXPECT_EQ(refusal([&](Call& call) {
              call.context = MutableTensorView(memory.data() + 100, {2, 4, 6, 3});
            }),
            "context: expected memory of its own, got some that workspace uses");
  EXPECT_EQ(refusal([&](Call& call) {
              call.lse = MutableTensorView(memory.data() + memory.size() - 48, {2, 4, 6});
            }),
            "lse: expected memory of its own, got some that workspace uses");
  EXPECT_EQ(refusal([&](Call& call) {
              call.key = TensorView(memory.data() + 100, {2, 2, 8, 5});
            }),
            "workspace: expected memory of its own, got some that key uses");
}

TEST(AttentionErrorsTable, WorkspaceQueryThrowsTheSameErrors) {
  for (const BadCall& bad : kBadInputs) {
    Call call;
    bad.spoil(call);
    EXPECT_EQ(message_of([&] {
                attention_forward_workspace(call.query, call.key, call.value, call.options);
              }),
              bad.message);
  }
}

}  // namespace
}  // namespace fovea::test
