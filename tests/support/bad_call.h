// SPDX-License-Identifier: Apache-2.0
//
// Invalid calls of attention_forward, each with the expected message, and a check that the outputs
// are untouched.

#pragma once

#include <algorithm>
#include <cctype>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

#include "support/forward.h"
#include "support/message_of.h"

namespace fovea::test {

/// A valid call. Its outputs lie within larger buffers, so that inputs can be made to overlap them.
struct Call {
  Call() {
    RandomState random(1);
    for (Tensor* tensor : {&query_memory, &key_memory, &value_memory}) {
      *tensor = convert(random.randn(tensor->shape()), DType::kFloat32);
    }
    query = query_memory;
    key = key_memory;
    value = value_memory;
    context = MutableTensorView(context_memory.data() + 1000, {2, 4, 6, 3});
    lse = MutableTensorView(lse_memory.data() + 1000, {2, 4, 6});
  }

  void run() { attention_forward(query, key, value, options, {context, lse}); }

  bool untouched() const {
    const auto holds = [](float x) { return x == kUntouched; };
    return std::ranges::all_of(context_memory, holds) && std::ranges::all_of(lse_memory, holds);
  }

  Tensor query_memory{DType::kFloat32, {2, 4, 6, 5}};
  Tensor key_memory{DType::kFloat32, {2, 2, 8, 5}};
  Tensor value_memory{DType::kFloat32, {2, 2, 8, 3}};
  std::vector<float> context_memory = std::vector<float>(3000, kUntouched);
  std::vector<float> lse_memory = std::vector<float>(3000, kUntouched);

  TensorView query, key, value;
  AttentionOptions options;
  MutableTensorView context, lse;
};

struct BadCall {
  std::string name;
  std::function<void(Call&)> spoil;
  std::string message;
};

inline void PrintTo(const BadCall& bad, std::ostream* stream) { *stream << bad.name; }

inline std::string name_of_case(const testing::TestParamInfo<BadCall>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

/// Checks the error message. The call throws it, or the construction of the options does (masks
/// throw).
inline void expect_refused(const BadCall& bad) {
  Call call;
  EXPECT_EQ(message_of([&] {
              bad.spoil(call);
              call.run();
            }),
            bad.message);
  EXPECT_TRUE(call.untouched());
}

}  // namespace fovea::test
