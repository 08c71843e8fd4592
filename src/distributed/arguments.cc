// SPDX-License-Identifier: Apache-2.0
//
// Checks of arguments (arguments.h). Each rank checks its own; agree() compares them.

#include "distributed/arguments.h"

#include <array>
#include <cstddef>

#include <fmt/format.h>

#include "core/fail.h"
#include "engine/weights/weights_call.h"
#include "problem/mask_rules.h"

namespace fovea::distributed {
namespace {

std::string text_of(const TensorView& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{} {}", dtype_name(tensor.dtype()), to_string(tensor.shape()));
}

/// Returns type and shape without the length, which differs among ranks.
std::string text_of_input(const TensorView& tensor) {
  if (!tensor.defined() || tensor.rank() != 4) return text_of(tensor);
  return fmt::format("{} [{}, {}, length, {}]", dtype_name(tensor.dtype()), tensor.extent(0),
                     tensor.extent(1), tensor.extent(3));
}

std::string text_of_ids(const Mask& mask) {
  const MaskRule rule = rule_of(mask);
  std::string text;
  for (const Tensor* ids : {&rule.query_ids, &rule.key_ids}) {
    if (ids->defined()) text += fmt::format(", ids {}", text_of_contents(*ids));
  }
  for (const Mask& operand : rule.operands) text += text_of_ids(operand);
  return text;
}

std::string text_of(const std::vector<double>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

/// Returns a view with the length of the whole sequence, for checks that read no elements.
TensorView as_long(const TensorView& tensor, std::int64_t length) {
  static constexpr std::byte kSomewhere{};
  if (!tensor.defined() || tensor.rank() != 4) return tensor;
  Shape shape = tensor.shape();
  Strides strides = tensor.strides();
  shape[2] = length;
  for (const int dim : {0, 1, 2}) strides[dim] = 0;
  return {tensor.data() == nullptr ? &kSomewhere : tensor.data(), tensor.dtype(), shape, strides};
}

}  // namespace

std::string text_of_contents(const TensorView& tensor) {
  if (!tensor.defined()) return "nothing";
  const Tensor copy(tensor);
  return fmt::format(
      "{} with digest {}", text_of(tensor),
      digest(copy.view().data(), static_cast<std::size_t>(copy.size()) * dtype_size(copy.dtype())));
}

std::vector<SharedArgument> shared_arguments(const char* operation, const ShardedInputs& inputs,
                                             const AttentionOptions& options,
                                             const std::string& wanted) {
  const ScoreOptions& score = options.score;
  const RelativeTable relative = score.relative.value_or(RelativeTable{});
  return {{"operation", operation},
          {"query", text_of_input(inputs.query)},
          {"key", text_of_input(inputs.key)},
          {"value", text_of_input(inputs.value)},
          {"queries", inputs.queries.to_string()},
          {"keys", inputs.keys.to_string()},
          {"mask", options.mask.to_string() + text_of_ids(options.mask)},
          {"scale", score.scale ? fmt::format("{}", *score.scale) : "the default"},
          {"softcap", fmt::format("{}", score.softcap)},
          {"custom", score.custom.tile == nullptr ? "no function" : "a function"},
          {"bias", text_of(score.bias)},
          {"alibi", score.alibi ? "slopes " + text_of(score.alibi->slopes) : "none"},
          {"relative", score.relative ? fmt::format("{}, bidirectional {}, max_distance {}",
                                                    text_of_contents(relative.table),
                                                    relative.bidirectional, relative.max_distance)
                                      : "none"},
          {"sinks", text_of(score.sinks)},
          {"dropout", fmt::format("{}, seed {}, call {}, from {}, {}", options.dropout.probability,
                                  options.dropout.seed, options.dropout.call,
                                  options.dropout.first_query, options.dropout.first_key)},
          {"alignment", options.alignment.is_bottom_right()
                            ? "bottom_right"
                            : fmt::format("{}", fmt::join(options.alignment.values(), ", "))},
          {"float32_by_tiles", options.float32_by_tiles ? "true" : "false"},
          {"outputs", wanted}};
}

namespace {

void check_sharding(const Transport& transport, const char* name, const Sharding& sharding) {
  if (sharding.ranks() == transport.size()) return;
  fail_argument(name, "expected a sharding among {} ranks, got {}", transport.size(),
                sharding.to_string());
}

/// Throws InvalidArgument unless the length is that of this rank.
void check_part(const Transport& transport, const char* name, const TensorView& tensor,
                const Sharding& sharding) {
  const std::int64_t own = sharding.length(transport.rank());
  if (tensor.extent(2) == own) return;
  fail_argument(name, "expected the {} positions of rank {} in {}, got {}", own, transport.rank(),
                sharding.to_string(), to_string(tensor.shape()));
}

void refuse_sequences(const AttentionOptions& options) {
  if (options.sequences.count() == 0) return;
  fail_argument("sequences", "expected none with sharded tensors, got {}",
                options.sequences.count());
}

}  // namespace

ProblemShape check_inputs(const Transport& transport, const ShardedInputs& inputs,
                          const AttentionOptions& options) {
  check_sharding(transport, "queries", inputs.queries);
  check_sharding(transport, "keys", inputs.keys);
  refuse_sequences(options);
  const engine::Problem whole = engine::make_problem(
      as_long(inputs.query, inputs.queries.length()), as_long(inputs.key, inputs.keys.length()),
      as_long(inputs.value, inputs.keys.length()), options);
  check_part(transport, "query", inputs.query, inputs.queries);
  check_part(transport, "key", inputs.key, inputs.keys);
  check_part(transport, "value", inputs.value, inputs.keys);
  return whole.shape;
}

ProblemShape check_cache(const Transport& transport, const ShardedCache& inputs,
                         const AttentionOptions& options) {
  check_sharding(transport, "keys", inputs.keys);
  refuse_sequences(options);
  const engine::Problem whole =
      engine::make_problem(inputs.query, as_long(inputs.key, inputs.keys.length()),
                           as_long(inputs.value, inputs.keys.length()), options);
  check_part(transport, "key", inputs.key, inputs.keys);
  check_part(transport, "value", inputs.value, inputs.keys);
  return whole.shape;
}

void check_root(const Transport& transport, int root) {
  if (root >= 0 && root < transport.size()) return;
  fail_argument("root", "expected 0 or more and less than {}, got {}", transport.size(), root);
}

ProblemShape check_weight_inputs(const Transport& transport, const ShardedInputs& inputs,
                                 const AttentionOptions& options) {
  const ProblemShape shape = check_inputs(transport, inputs, options);
  if (inputs.query.dtype() == DType::kFloat64) {
    fail_argument("dtype",
                  "expected float32, float16 or bfloat16 for weights of sharded tensors, got {}",
                  dtype_name(inputs.query.dtype()));
  }
  if (options.dropout.probability > 0) {
    fail_argument("dropout", "expected none for recomputed weights, got {}",
                  options.dropout.probability);
  }
  return shape;
}

void check_lse(const ShardedInputs& inputs, const ProblemShape& shape, const TensorView& lse) {
  engine::check_lse(own_problem(inputs, {}, shape), lse);
}

engine::Problem own_problem(const ShardedInputs& inputs, const AttentionOptions& options,
                            const ProblemShape& shape) {
  ProblemShape own = shape;
  own.q_len = inputs.query.extent(2);
  own.kv_len = inputs.key.extent(2);
  const std::array<Memory, 3> memory{memory_of(inputs.query, "query"), memory_of(inputs.key, "key"),
                                     memory_of(inputs.value, "value")};
  return {inputs.query, inputs.key, inputs.value, options, memory, own};
}

}  // namespace fovea::distributed
