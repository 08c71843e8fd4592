// SPDX-License-Identifier: Apache-2.0
//
// InvalidArgument names the invalid argument, for every way to throw it.

#include "core/fail.h"

#include <cmath>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {
namespace {

InvalidArgument caught(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error;
  }
  return InvalidArgument("no error");
}

TEST(InvalidArgumentTest, MessageStartsWithTheArgument) {
  const InvalidArgument error =
      caught([] { fail_argument("top.keys", "expected {}, got {}", 1, 2); });
  EXPECT_STREQ(error.what(), "top.keys: expected 1, got 2");
  EXPECT_EQ(error.argument(), "top.keys");
  static_assert(std::is_nothrow_copy_constructible_v<InvalidArgument>);
}

TEST(InvalidArgumentTest, PlainMessagesNameNoArgument) {
  const InvalidArgument error = caught([] { fail("scene: {}", "expected more"); });
  EXPECT_STREQ(error.what(), "scene: expected more");
  EXPECT_EQ(error.argument(), "");
  EXPECT_EQ(InvalidArgument(std::string("mask: none")).argument(), "");
}

TEST(InvalidArgumentTest, ProblemChecksNameTheArgument) {
  const Tensor query(DType::kFloat32, {1, 2, 3, 4}), narrow(DType::kFloat32, {1, 2, 3, 2});
  const auto forward = [&](const AttentionOptions& options, const TensorView& key,
                           const AttentionOutputs& outputs) {
    attention_forward(query, key, key, options, outputs);
  };
  Tensor small(DType::kFloat32, {1, 2, 3, 1});
  const std::vector<std::pair<std::string, std::function<void()>>> mistakes = {
      {"key_lengths", [] { key_lengths({}); }},
      {"key_lengths", [&] { forward({.mask = key_lengths({4})}, query, {}); }},
      {"dense mask", [] { dense(Tensor(DType::kFloat32, {1})); }},
      {"dense mask", [&] { forward({.mask = dense(Tensor(DType::kBool, {7}))}, query, {}); }},
      {"scale", [&] { forward({.score = {.scale = HUGE_VAL}}, query, {}); }},
      {"bias", [&] { forward({.score = {.bias = Tensor(DType::kFloat32, {7})}}, query, {}); }},
      {"sinks", [&] { forward({.score = {.sinks = {1.0}}}, query, {}); }},
      {"threads", [&] { forward({.execution = {.threads = -1}}, query, {}); }},
      {"query", [&] { attention_forward({}, query, query, {}, {}); }},
      {"key", [&] { forward({}, narrow, {}); }},
      {"context", [&] { forward({}, query, {.context = small}); }}};
  for (const auto& [argument, call] : mistakes) {
    const InvalidArgument error = caught(call);
    EXPECT_EQ(error.argument(), argument) << error.what();
    EXPECT_EQ(std::string(error.what()).find(argument + ": expected"), 0U) << error.what();
  }
}

}  // namespace
}  // namespace fovea
