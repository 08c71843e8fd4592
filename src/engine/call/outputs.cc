// SPDX-License-Identifier: Apache-2.0
//
// Validation of outputs (outputs.h).

#include "engine/call/outputs.h"

#include "core/fail.h"
#include "problem/mask_rules.h"

namespace fovea::engine {
namespace {

void check_type(const Problem& problem, const MutableTensorView& output, const OutputSpec& spec) {
  const DType type = output.dtype();
  if (spec.type == OutputType::kNumbers) {
    if (type != DType::kInt64) fail_argument(spec.name, "expected int64, got {}", dtype_name(type));
    return;
  }
  const char* expected = "float64";
  bool fits = type == DType::kFloat64;
  if (!problem.is_float64()) {
    const bool stored = spec.type == OutputType::kStored;
    expected = stored ? "float32, float16 or bfloat16" : "float32";
    fits = stored ? is_float(type) && !fits : type == DType::kFloat32;
  }
  if (!fits) {
    fail_argument(spec.name, "expected {} for inputs of {}, got {}", expected,
                  dtype_name(problem.query.dtype()), dtype_name(type));
  }
}

}  // namespace

OutputChecks::OutputChecks(const Problem& problem) : problem_(problem) {
  take(problem.memory[0], "query");
  take(problem.memory[1], "key");
  take(problem.memory[2], "value");
  const ScoreOptions& score = problem.options.score;
  add_input(score.bias, "bias");
  if (score.relative) add_input(score.relative->table, "relative");
}

void OutputChecks::take_workspace() {
  const std::span<std::byte> given = problem_.options.execution.workspace;
  if (given.empty() || workspace_is_taken_) return;
  workspace_is_taken_ = true;
  const Shape shape{static_cast<std::int64_t>(given.size())};
  take_for_writing(memory_of(TensorView(given.data(), DType::kBool, shape), "workspace"),
                   "workspace");
}

void OutputChecks::take_for_writing(const Memory& memory, std::string_view name) {
  const auto refuse = [&](std::string_view other) {
    fail_argument(name, "expected memory of its own, got some that {} uses", other);
  };
  for (std::size_t i = 0; i < count_; ++i) {
    const Taken& other = taken_[i];
    if (memory.overlaps(other.memory)) refuse({other.name, other.name_size});
  }
  if (reads(problem_.options.mask, memory)) refuse("mask");
  take(memory, name);
}

void OutputChecks::add_input(const TensorView& input, std::string_view name) {
  if (input.defined()) take(memory_of(input, name), name);
}

void OutputChecks::add(const MutableTensorView& output, const OutputSpec& spec) {
  take_workspace();
  if (!output.defined()) return;
  check_type(problem_, output, spec);
  if (output.shape() != spec.shape) {
    fail_argument(spec.name, "expected {} = {}, got {}", spec.shape_name, to_string(spec.shape),
                  to_string(output.shape()));
  }
  const Memory memory = memory_of(output, spec.name);
  if (!memory.row_major && !elements_are_distinct(output)) {
    fail_argument(spec.name,
                  "expected an element in memory for each index, got strides {} for shape {}",
                  to_string(output.strides()), to_string(output.shape()));
  }
  const int last = output.rank() - 1;
  if (spec.contiguous_rows && output.extent(last) > 1 && output.strides()[last] != 1) {
    fail_argument(spec.name, "expected a contiguous last dimension (stride 1), got strides {}",
                  to_string(output.strides()));
  }
  take_for_writing(memory, spec.name);
}

}  // namespace fovea::engine
