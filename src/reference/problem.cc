// SPDX-License-Identifier: Apache-2.0
//
// Checks the arguments of the reference (problem.h).

#include "reference/problem.h"

#include <cmath>
#include <variant>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea::reference {

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidArgument(message);
}

void require_shape(const TensorView& tensor, const char* name, const Shape& expected) {
  require(tensor.defined() && tensor.shape() == expected,
          fmt::format("{}: expected shape {}, got {}", name, to_string(expected),
                      tensor.defined() ? to_string(tensor.shape()) : "nothing"));
}

Problem make_problem(const Inputs& in, const AttentionOptions& options,
                     const ReferenceOptions& how) {
  validate_input(in.query, "query");
  validate_input(in.key, "key");
  validate_input(in.value, "value");
  const ProblemShape shape = problem_shape(in.query, in.key, in.value, options);
  Problem problem{in, options, how, shape, in.query.extent(3), in.value.extent(3), 0};
  require(is_float(how.arithmetic),
          fmt::format("arithmetic: expected float64, float32, float16 or bfloat16, got {}",
                      dtype_name(how.arithmetic)));
  require(how.normalization != Normalization::kSum || options.score.sinks.empty(),
          "sinks: a sink is a logit; division by the sum has none");

  const std::int64_t key_dim = in.key.extent(3);
  if (const auto* general = std::get_if<GeneralScore>(&how.score_kind)) {
    require_shape(general->weights, "general score weights", {problem.head_dim, key_dim});
  } else if (const auto* additive = std::get_if<AdditiveScore>(&how.score_kind)) {
    require(additive->v.defined() && additive->v->rank() == 1,
            fmt::format("additive score v: expected [hidden_dim], got {}",
                        additive->v.defined() ? to_string(additive->v->shape()) : "nothing"));
    problem.hidden_dim = additive->v->extent(0);
    require_shape(additive->query_weights, "additive score query weights",
                  {problem.head_dim, problem.hidden_dim});
    require_shape(additive->key_weights, "additive score key weights",
                  {key_dim, problem.hidden_dim});
  } else {
    require(key_dim == problem.head_dim,
            fmt::format("key: expected dim {} as query has, got {}", problem.head_dim, key_dim));
  }
  validate(options, shape);
  if (how.arithmetic != DType::kFloat64) {
    // A finite float64 number may underflow or overflow in float32.
    const auto scale = static_cast<float>(problem.scale());
    const auto softcap = static_cast<float>(options.score.softcap);
    require(std::isfinite(scale),
            fmt::format("scale: expected a number that float32 holds, got {}", problem.scale()));
    require(std::isfinite(softcap) && (softcap > 0 || options.score.softcap == 0),
            fmt::format("softcap: expected a number that float32 holds, got {}",
                        options.score.softcap));
  }
  return problem;
}

}  // namespace fovea::reference
