// SPDX-License-Identifier: Apache-2.0
//
// The checks of a call's outputs: all of them before anything is written.

#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <string_view>

#include "fovea/tensor.h"

#include "core/tensor_memory.h"
#include "engine/call/problem.h"

namespace fovea::engine {

/// What elements an output may have beside being float64 exactly where the inputs are.
enum class OutputType {
  kStored,   // float32, float16 or bfloat16
  kSums,     // float32
  kNumbers,  // int64, whatever the inputs are
};

/// What is asked of an output.
struct OutputSpec {
  std::string_view name;
  Shape shape;
  std::string_view shape_name;  // for messages
  OutputType type = OutputType::kStored;
  bool contiguous_rows = true;  // the last dimension's stride is 1
};

/// Collects the outputs of a call, and what they must not share memory with.
class OutputChecks {
 public:
  /// Looks into the problem, which has to outlive it.
  explicit OutputChecks(const Problem& problem);
  explicit OutputChecks(const Problem&& problem) = delete;

  /// Checks shape, type and strides, and that the output shares no memory with itself, the inputs
  /// and outputs before. One that is absent is not asked for. Throws InvalidArgument naming the
  /// argument, what was expected and what came.
  void add(const MutableTensorView& output, const OutputSpec& spec);
  /// An input beside the problem's own; to be named before outputs are added.
  void add_input(const TensorView& input, std::string_view name);

 private:
  struct Taken {
    Memory memory;
    std::string_view name;
  };
  void take(const Memory& memory, std::string_view name) {
    assert(count_ < taken_.size());
    taken_[count_++] = {memory, name};
  }

  const Problem& problem_;
  std::array<Taken, 20> taken_;  // more than any call has, and no memory from the heap
  std::size_t count_ = 0;
};

}  // namespace fovea::engine
