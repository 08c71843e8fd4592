// SPDX-License-Identifier: Apache-2.0
//
// Validation of a call's outputs. All checks run before anything is written.

#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <string_view>

#include "fovea/tensor.h"

#include "core/tensor_memory.h"
#include "engine/call/problem.h"

namespace fovea::engine {

/// Permitted element types of an output. With float64 inputs, kStored and kSums mean float64.
enum class OutputType {
  kStored,   // float32, float16 or bfloat16
  kSums,     // float32
  kNumbers,  // int64 for any input type
};

/// Requirements on an output.
struct OutputSpec {
  std::string_view name;
  Shape shape;
  std::string_view shape_name;  // for messages
  OutputType type = OutputType::kStored;
  bool contiguous_rows = true;  // the last dimension's stride is 1
};

/// Checks the outputs of a call, and records the memory of inputs and outputs to detect overlap.
class OutputChecks {
 public:
  /// Keeps a reference to `problem`, which must outlive this object. Records the problem's inputs.
  explicit OutputChecks(const Problem& problem);
  explicit OutputChecks(const Problem&& problem) = delete;

  /// Checks shape, type and strides, and that the output overlaps neither itself nor the inputs and
  /// outputs added before. Undefined outputs are skipped. Throws InvalidArgument with the name of
  /// the argument and the expected and actual values.
  void add(const MutableTensorView& output, const OutputSpec& spec);
  /// Records an input that is not part of the problem. Add all inputs before the first output: the
  /// first add() compares the caller's workspace with them.
  void add_input(const TensorView& input, std::string_view name);

 private:
  struct Taken {
    Memory memory;
    const char* name;  // no std::string_view, which would be initialised for each possible tensor
    std::size_t name_size;
  };
  void take(const Memory& memory, std::string_view name) {
    assert(count_ < taken_.size());
    taken_[count_++] = {memory, name.data(), name.size()};
  }

  void take_workspace();
  /// Checks that no memory recorded so far overlaps, and records this one.
  void take_for_writing(const Memory& memory, std::string_view name);

  const Problem& problem_;
  bool workspace_is_taken_ = false;
  std::array<Taken, 21> taken_;  // enough for any call; avoids heap allocation
  std::size_t count_ = 0;
};

}  // namespace fovea::engine
