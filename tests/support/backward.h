// SPDX-License-Identifier: Apache-2.0
//
// Helpers that call attention_backward, and its accuracy check against the oracle and the naive
// computation. The counterpart of support/forward.h.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fovea/attention_backward.h"
#include "fovea/attention_options.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/backward_allowance.h"
#include "support/exactness.h"
#include "support/forward.h"
#include "support/random_problem.h"
#include "support/storage.h"

namespace fovea::test {

/// All gradients, by name.
struct NamedGradient {
  const char* name;
  Tensor reference::Gradients::*member;
};
inline constexpr NamedGradient kGradients[] = {
    {"query", &reference::Gradients::query},       {"key", &reference::Gradients::key},
    {"value", &reference::Gradients::value},       {"bias", &reference::Gradients::bias},
    {"relative", &reference::Gradients::relative}, {"sinks", &reference::Gradients::sinks}};

/// The gradients to compute.
struct Asked {
  bool query = true, key = true, value = true, bias = true, relative = true, sinks = true;
};

/// The gradient of a loss with respect to the outputs of attention. `lse` may be undefined.
struct ResultLoss {
  Tensor context, lse;
};

/// Returns standard normal gradients.
inline ResultLoss random_loss(const reference::Inputs& in, bool with_lse = true,
                              std::uint64_t seed = 77, DType type = storage()) {
  const ProblemShape shape = shape_of(in);
  RandomState random(seed);
  ResultLoss loss;
  loss.context =
      convert(random.randn({shape.batch, shape.q_heads, shape.q_len, in.value.extent(3)}), type);
  if (with_lse) {
    loss.lse = convert(random.randn({shape.batch, shape.q_heads, shape.q_len}), lse_type(type));
  }
  return loss;
}

// ---- calls --------------------------------------------------------------------------------------

/// Returns tensors filled with kUntouched for the requested gradients, except those of operands
/// that the options lack. Gradients of query, key and value have type `type`; all others have the
/// type of lse.
inline reference::Gradients fresh_gradients(const reference::Inputs& in,
                                            const AttentionOptions& options, const Asked& asked,
                                            DType type) {
  const ScoreOptions& score = options.score;
  const DType sums = lse_type(type);
  reference::Gradients fresh;
  if (asked.query) fresh.query = Tensor(type, in.query.shape());
  if (asked.key) fresh.key = Tensor(type, in.key.shape());
  if (asked.value) fresh.value = Tensor(type, in.value.shape());
  if (asked.bias && score.bias.defined()) fresh.bias = Tensor(sums, score.bias->shape());
  if (asked.relative && score.relative) {
    fresh.relative = Tensor(sums, score.relative->table->shape());
  }
  if (asked.sinks && !score.sinks.empty()) fresh.sinks = Tensor(sums, {in.query.extent(1)});
  for (const auto& [name, member] : kGradients) {
    if ((fresh.*member).defined()) fill(fresh.*member, kUntouched);
  }
  return fresh;
}

inline MutableTensorView view_of(Tensor& tensor) {
  return tensor.defined() ? MutableTensorView(tensor) : MutableTensorView();
}
inline AttentionGradients views_of(reference::Gradients& gradients) {
  return {view_of(gradients.query), view_of(gradients.key),      view_of(gradients.value),
          view_of(gradients.bias),  view_of(gradients.relative), view_of(gradients.sinks)};
}

/// Returns the arguments of attention_backward for the given inputs, results and loss.
inline BackwardInputs backward_inputs(const reference::Inputs& in, const Forward& results,
                                      const ResultLoss& loss) {
  return {.query = in.query,
          .key = in.key,
          .value = in.value,
          .context = results.context,
          .lse = results.lse,
          .grad_context = loss.context,
          .grad_lse = loss.lse.defined() ? TensorView(loss.lse) : TensorView()};
}

/// Returns the gradients from attention_backward; those of query, key and value have type `type`.
inline reference::Gradients backward_of(const reference::Inputs& in, const Forward& results,
                                        const AttentionOptions& options, const ResultLoss& loss,
                                        const Asked& asked, DType type) {
  reference::Gradients gradients = fresh_gradients(in, options, asked, type);
  attention_backward(backward_inputs(in, results, loss), options, views_of(gradients));
  return gradients;
}

/// Runs attention_forward, then attention_backward.
inline reference::Gradients backward(const reference::Inputs& in, const AttentionOptions& options,
                                     const ResultLoss& loss, const Asked& asked = {}) {
  AttentionOptions quiet = options;  // progress and stop apply to the backward pass only
  quiet.execution = {.threads = options.execution.threads};
  return backward_of(in, forward(in, quiet), options, loss, asked, in.query.dtype());
}

inline testing::AssertionResult same_bits(const reference::Gradients& a,
                                          const reference::Gradients& b) {
  for (const auto& [name, member] : kGradients) {
    const Tensor& one = a.*member;
    const Tensor& other = b.*member;
    if (!one.defined() && !other.defined()) continue;
    const testing::AssertionResult same = same_bits(one, other);
    if (!same)
      return testing::AssertionFailure() << "gradient of " << name << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

// ---- the check ----------------------------------------------------------------------------------

inline reference::Gradients gradients_by_reference(const reference::Inputs& in,
                                                   const AttentionOptions& options,
                                                   const ResultLoss& loss, DType arithmetic) {
  reference::OutputGradients outputs;
  if (loss.context.defined()) outputs.context = loss.context;
  if (loss.lse.defined()) outputs.lse = loss.lse;
  return reference::attention_gradients(in, outputs, options, {.arithmetic = arithmetic});
}

/// Checks gradients by the 1x rule. `type` is the tensors' storage type, or the coarsest of
/// several.
inline void expect_exact_gradients(const reference::Gradients& found, const reference::Inputs& in,
                                   const AttentionOptions& options, const ResultLoss& loss,
                                   DType type = storage()) {
  const reference::Gradients exact = gradients_by_reference(in, options, loss, DType::kFloat64);
  const reference::Gradients plain = gradients_by_reference(in, options, loss, type);
  const GradientAllowance allowance =
      gradient_allowance(in, options, loss.context, loss.lse, exact, type);
  const double allowed[] = {allowance.query, allowance.key,      allowance.value,
                            allowance.bias,  allowance.relative, allowance.sinks};
  for (std::size_t i = 0; i < std::size(kGradients); ++i) {
    const auto& [name, member] = kGradients[i];
    if (!(exact.*member).defined()) continue;
    EXPECT_TRUE(as_exact_as(found.*member, plain.*member, exact.*member, allowed[i]))
        << "gradient of " << name;
  }
}

/// Checks the engine's gradients by the 1x rule.
inline void expect_exact_backward(const reference::Inputs& in, const AttentionOptions& options,
                                  const ResultLoss& loss) {
  expect_exact_gradients(backward(in, options, loss), in, options, loss);
}
inline void expect_exact_backward(const reference::Inputs& in,
                                  const AttentionOptions& options = {}) {
  expect_exact_backward(in, options, random_loss(in));
}

}  // namespace fovea::test
