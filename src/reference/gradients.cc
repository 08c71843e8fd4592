// SPDX-License-Identifier: Apache-2.0
//
// Gradients of attention, one query at a time. RowGradients::add() is RowAttention::attend() in
// reverse: each paragraph turns the gradient of a step's result into the gradient of its input, and
// adds the gradients of the step's other operands.

#include "reference/gradients.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "problem/broadcast.h"
#include "reference/contiguous.h"
#include "reference/problem.h"
#include "reference/row_attention.h"

namespace fovea::reference {
namespace {

template <class Real>
Real dot(std::span<const Real> a, std::span<const Real> b) {
  Real sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

/// Computes sum += factor * row.
template <class Real>
void add_times(Real factor, std::span<const Real> row, std::span<Real> sum) {
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += factor * row[d];
}

template <class Real>
class RowGradients {
 public:
  RowGradients(const Problem& problem, const OutputGradients& outputs, Gradients& sums)
      : problem_(problem),
        attention_(problem),
        context_(outputs.context),
        lse_(outputs.lse),
        weights_(outputs.weights),
        sums_(sums),
        key_sums_(sums.key.span<Real>()),
        value_sums_(sums.value.span<Real>()) {
    if (sums.bias.defined()) bias_strides_ = broadcast_strides(sums.bias);
  }

  /// Adds the contributions of one query.
  void add(const Row& row) {
    const RowSteps<Real> s = attention_.attend(row);
    const RowPlace& place = s.place;
    const ScoreOptions& score = problem_.options.score;
    // The visible keys. Masked keys have no gradient.
    std::vector<std::size_t> keys;
    for (std::size_t j = 0; j < place.kv_len; ++j) {
      if (s.visible[j]) keys.push_back(j);
    }
    // One number per key: first the gradient of the key's weight, at the end the gradient of its
    // score.
    std::vector<Real> gradient(place.kv_len, Real(0));

    // Context: the sum of the values, multiplied by their weights after dropout.
    if (context_.defined()) {
      const auto context = row_of(context_, row.batch, row.head, row.query);
      for (const std::size_t j : keys) {
        add_times(s.dropped[j], context, sum_of_key(value_sums_, sums_.value, place, j));
        gradient[j] = dot(context, attention_.value(place, j)) * s.kept[j];
      }
    }

    // Weights: the loss's gradient with respect to the weights themselves.
    if (weights_.defined()) {
      const auto weights = row_of(weights_, row.batch, row.head, row.query);
      for (const std::size_t j : keys) {
        gradient[j] += weights[static_cast<std::size_t>(place.number(j))];
      }
    }

    // Relevance: each weight times its gradient. This is the weight's first-order effect on the
    // loss.
    for (const std::size_t j : keys) {
      const Index at{row.batch, row.head, place.number(j)};
      sums_.relevance.at<Real>(at) += s.unrounded[j] * gradient[j];
      sums_.magnitude.at<Real>(at) += std::abs(s.unrounded[j] * gradient[j]);
    }

    // Softmax: increasing one weight decreases the others, so the weighted mean of the gradients is
    // subtracted. The derivative of lse with respect to a score is the weight of that score.
    Real mean = 0;
    for (const std::size_t j : keys) mean += s.unrounded[j] * gradient[j];
    const Real lse = lse_gradient(row);
    for (const std::size_t j : keys) gradient[j] = s.unrounded[j] * (gradient[j] - mean + lse);
    if (sums_.sinks.defined()) add_to_sink(row.head, s.lse, lse - mean);

    // Biases: each was added to the score, so its gradient is that of the score.
    for (const std::size_t j : keys) add_to_biases(place.at(j), gradient[j]);

    // Custom function.
    if (score.custom.one != nullptr) {
      for (const std::size_t j : keys) {
        const double x = static_cast<double>(s.softcapped[j]);
        const double slope = score.custom.one_derivative(score.custom.state.get(), x, place.at(j));
        gradient[j] *= static_cast<Real>(slope);
      }
    }

    // Softcap: the slope of c tanh(x / c) is 1 - tanh^2.
    if (score.softcap > 0) {
      for (const std::size_t j : keys) {
        const Real tanh = s.softcapped[j] / static_cast<Real>(score.softcap);
        gradient[j] *= 1 - tanh * tanh;
      }
    }

    // Scale.
    const auto scale = static_cast<Real>(problem_.scale());
    for (Real& x : gradient) x *= scale;

    // The product of query and key.
    round_as_stored<Real>(problem_.how.arithmetic, gradient);
    const auto query_sum =
        row_of<Real>(sums_.query.span<Real>(), sums_.query.shape(), row.batch, row.head, row.query);
    for (const std::size_t j : keys) {
      add_times(gradient[j], attention_.key(place, j), query_sum);
      add_times(gradient[j], attention_.query(place), sum_of_key(key_sums_, sums_.key, place, j));
    }
  }

 private:
  /// Returns the row of key j in `sums`, the gradients of keys or values. `numbers` are the
  /// elements of `sums`.
  static std::span<Real> sum_of_key(std::span<Real> numbers, const Tensor& sums,
                                    const RowPlace& place, std::size_t j) {
    return row_of<Real>(numbers, sums.shape(), place.row.batch, place.kv_head, place.number(j));
  }

  Real lse_gradient(const Row& row) const {
    if (!lse_.defined()) return 0;
    const Shape& shape = lse_.shape();
    const std::int64_t number = (row.batch * shape[1] + row.head) * shape[2] + row.query;
    return lse_.span()[static_cast<std::size_t>(number)];
  }

  /// Adds the sink's gradient: its weight in the row, exp(sink - lse), times `gain`. A sink is a
  /// score without a value.
  void add_to_sink(std::int64_t head, Real lse, Real gain) {
    const Real sink =
        static_cast<Real>(problem_.options.score.sinks[static_cast<std::size_t>(head)]);
    if (sink == -std::numeric_limits<Real>::infinity()) return;  // no sink for this head
    sums_.sinks.at<Real>({head}) += std::exp(sink - lse) * gain;
  }

  /// Adds the gradient of a score to the gradients of its biases. A bias element may be broadcast
  /// to many scores.
  void add_to_biases(const ScorePosition& at, Real gradient) {
    if (sums_.bias.defined()) {
      const std::int64_t number = at.batch * bias_strides_[0] + at.head * bias_strides_[1] +
                                  (at.query_start + at.query) * bias_strides_[2] +
                                  (at.key_start + at.key) * bias_strides_[3];
      sums_.bias.span<Real>()[static_cast<std::size_t>(number)] += gradient;
    }
    if (sums_.relative.defined()) {
      const std::int64_t distance = at.key - (at.query + at.offset);
      const std::int64_t bucket = relative_bucket(distance, *problem_.options.score.relative);
      sums_.relative.at<Real>({bucket, at.head}) += gradient;
    }
  }

  const Problem& problem_;
  RowAttention<Real> attention_;
  Contiguous<Real> context_, lse_, weights_;  // the outputs' gradients, if defined
  Gradients& sums_;
  std::span<Real> key_sums_, value_sums_;
  std::array<std::int64_t, 4> bias_strides_{};
};

template <class Real>
Gradients zeros(const Problem& problem) {
  const ScoreOptions& score = problem.options.score;
  const auto like = [](const TensorView& tensor) {
    return tensor.defined() ? Tensor(dtype_of<Real>(), tensor.shape()) : Tensor();
  };
  Gradients result;
  result.query = like(problem.in.query);
  result.key = like(problem.in.key);
  result.value = like(problem.in.value);
  result.bias = like(score.bias);
  if (score.relative) result.relative = like(score.relative->table);
  if (!score.sinks.empty()) result.sinks = Tensor(dtype_of<Real>(), {problem.shape.q_heads});
  const Shape keys{problem.shape.batch, problem.shape.q_heads, problem.shape.kv_len};
  result.relevance = Tensor(dtype_of<Real>(), keys);
  result.magnitude = Tensor(dtype_of<Real>(), keys);
  return result;
}

template <class Real>
Gradients all_gradients(const Problem& problem, const OutputGradients& outputs) {
  const ProblemShape& shape = problem.shape;
  Gradients result = zeros<Real>(problem);
  RowGradients<Real> gradients(problem, outputs, result);
  for_each_index({shape.batch, shape.q_heads, shape.q_len}, [&](const Index& at) {
    gradients.add({at[0], at[1], at[2]});
  });
  for (Tensor* tensor : {&result.query, &result.key, &result.value}) {
    round_as_stored<Real>(problem.how.arithmetic, tensor->span<Real>());
  }
  return result;
}

/// Returns a checked problem. Throws InvalidArgument if an option does not support gradients.
Problem make_differentiable(const Inputs& inputs, const AttentionOptions& options,
                            const ReferenceOptions& how) {
  const Problem problem = make_problem(inputs, options, how);
  require(
      std::holds_alternative<DotScore>(how.score_kind),
      fmt::format("score kind: expected the dot score, the only one with gradients, got "
                  "the {} score",
                  std::holds_alternative<GeneralScore>(how.score_kind) ? "general" : "additive"));
  require(how.normalization == Normalization::kSoftmax,
          fmt::format("normalization: expected softmax, the only one with gradients, got {}",
                      how.normalization == Normalization::kSum ? "division by the sum"
                                                               : "softmax unshifted"));
  require(options.score.custom.one == nullptr || options.score.custom.one_derivative != nullptr,
          "custom: expected a function with its derivative, got one without");
  return problem;
}

void check_output(const TensorView& tensor, const char* name, const Shape& shape) {
  if (!tensor.defined()) return;
  require(is_float(tensor.dtype()),
          fmt::format("{}: expected float32, float64, float16 or bfloat16, got {}", name,
                      dtype_name(tensor.dtype())));
  require_shape(tensor, name, shape);
}

void check_outputs(const OutputGradients& outputs, const Problem& problem) {
  const ProblemShape& p = problem.shape;
  check_output(outputs.context, "grad_context", {p.batch, p.q_heads, p.q_len, problem.value_dim});
  check_output(outputs.lse, "grad_lse", {p.batch, p.q_heads, p.q_len});
  check_output(outputs.weights, "grad_weights", {p.batch, p.q_heads, p.q_len, p.kv_len});
}

}  // namespace

Gradients zero_gradients(const Inputs& inputs, const AttentionOptions& options,
                         const ReferenceOptions& how) {
  const Problem problem = make_differentiable(inputs, options, how);
  return how.arithmetic == DType::kFloat64 ? zeros<double>(problem) : zeros<float>(problem);
}

void add_row_gradients(const Inputs& inputs, const OutputGradients& outputs,
                       const AttentionOptions& options, std::span<const Row> rows,
                       const ReferenceOptions& how, Gradients& sums) {
  const Problem problem = make_differentiable(inputs, options, how);
  check_outputs(outputs, problem);
  const auto add = [&](auto gradients) {
    for (const Row& row : rows) gradients.add(row);
  };
  if (how.arithmetic == DType::kFloat64) {
    add(RowGradients<double>(problem, outputs, sums));
  } else {
    add(RowGradients<float>(problem, outputs, sums));
  }
}

Gradients attention_gradients(const Inputs& inputs, const OutputGradients& outputs,
                              const AttentionOptions& options, const ReferenceOptions& how) {
  const Problem problem = make_differentiable(inputs, options, how);
  check_outputs(outputs, problem);
  return how.arithmetic == DType::kFloat64 ? all_gradients<double>(problem, outputs)
                                           : all_gradients<float>(problem, outputs);
}

}  // namespace fovea::reference
