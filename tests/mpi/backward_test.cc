// SPDX-License-Identifier: Apache-2.0
//
// Gradients of sharded tensors: against the reference, the same bits for any timing, and errors.

#include "support/backward.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/mpi.h"

#include "mpi/checks.h"
#include "mpi/late_transport.h"
#include "mpi/problems.h"
#include "mpi/ranks.h"
#include "support/exactness.h"
#include "support/message_of.h"

namespace fovea {
namespace {

using test::message_of;
using test::ProblemMaker;
using test::ranks;
using test::ShardedProblem;

/// This rank's parts of all tensors of a backward call, with the results of the forward pass.
struct BackwardParts {
  Tensor query, key, value, context, lse, grad_context, grad_lse;

  BackwardParts(const ShardedProblem& p, const test::ResultLoss& loss)
      : query(shard(p.whole.query, p.queries, ranks().rank())),
        key(shard(p.whole.key, p.keys, ranks().rank())),
        value(shard(p.whole.value, p.keys, ranks().rank())),
        grad_context(shard(loss.context, p.queries, ranks().rank())),
        grad_lse(loss.lse.defined() ? shard(loss.lse, p.queries, ranks().rank()) : Tensor()) {
    const Shape shape = query.shape();
    context = Tensor(query.dtype(), {shape[0], shape[1], shape[2], value.extent(3)});
    lse = Tensor(test::lse_type(query.dtype()), {shape[0], shape[1], shape[2]});
    attention_forward(ranks(), {query, key, value, p.queries, p.keys}, p.options, {context, lse});
  }

  mpi::ShardedBackwardInputs inputs(const ShardedProblem& p) const {
    return {{.query = query,
             .key = key,
             .value = value,
             .context = context,
             .lse = lse,
             .grad_context = grad_context,
             .grad_lse = grad_lse.defined() ? TensorView(grad_lse) : TensorView()},
            p.queries,
            p.keys};
  }
};

reference::Gradients gradients_of(const ShardedProblem& p, const BackwardParts& parts,
                                  mpi::Transport& transport = ranks(),
                                  const test::Asked& asked = {}) {
  reference::Gradients result;
  const DType type = p.whole.query.dtype();
  if (asked.query) result.query = Tensor(type, parts.query.shape());
  if (asked.key) result.key = Tensor(type, parts.key.shape());
  if (asked.value) result.value = Tensor(type, parts.value.shape());
  const DType sums = test::lse_type(type);
  const ScoreOptions& score = p.options.score;
  if (score.bias.defined()) result.bias = Tensor(sums, score.bias->shape());
  if (score.relative) result.relative = Tensor(sums, score.relative->table->shape());
  if (!score.sinks.empty()) {
    result.sinks = Tensor(sums, {static_cast<std::int64_t>(score.sinks.size())});
  }
  for (Tensor* tensor :
       {&result.query, &result.key, &result.value, &result.bias, &result.relative, &result.sinks}) {
    if (tensor->defined()) test::fill(*tensor, test::kUntouched);
  }
  attention_backward(transport, parts.inputs(p), p.options, test::views_of(result));
  return result;
}

/// Collects the gradient of a bias on all ranks: its rows, if it has one for each query.
Tensor whole_bias_gradient(const ShardedProblem& p, const Tensor& found) {
  const int rows = found.extent(found.shape().rank() - 2) > 1 ? found.shape().rank() - 2 : -1;
  if (rows < 0) return found;
  Tensor whole(DType::kFloat64, found.shape());
  for_each_index(found.shape(), [&](const Index& at) {
    const bool mine = p.queries.owner(at[rows]) == ranks().rank();
    set_value(whole, at, mine ? found.value(at) : 0.0);
    // Rows of other ranks are left alone.
    if (!mine) {
      EXPECT_EQ(found.value(at), test::kUntouched);
    }
  });
  MPI_Allreduce(MPI_IN_PLACE, whole.view().data(), static_cast<int>(whole.size()), MPI_DOUBLE,
                MPI_SUM, MPI_COMM_WORLD);
  return convert(whole, found.dtype());
}

/// Checks the gradients of all ranks, on rank 0.
void expect_exact_gradients(const ShardedProblem& p) {
  const reference::Inputs in = p.whole.inputs();
  const DType type = p.whole.query.dtype();
  const test::ResultLoss loss = test::random_loss(in, true, 77, type);
  reference::Gradients found = gradients_of(p, BackwardParts(p, loss));
  found.query = gather(ranks(), p.queries, found.query);
  found.key = gather(ranks(), p.keys, found.key);
  found.value = gather(ranks(), p.keys, found.value);
  if (found.bias.defined()) found.bias = whole_bias_gradient(p, found.bias);
  if (ranks().rank() != 0) return;
  const reference::Gradients exact =
      test::gradients_by_reference(in, p.options, loss, DType::kFloat64);
  const reference::Gradients plain = test::gradients_by_reference(in, p.options, loss, type);
  const test::GradientAllowance allowance =
      test::gradient_allowance(in, p.options, loss.context, loss.lse, exact, type);
  EXPECT_TRUE(test::as_exact_as(found.query, plain.query, exact.query, allowance.query));
  EXPECT_TRUE(test::as_exact_as(found.key, plain.key, exact.key, allowance.key));
  EXPECT_TRUE(test::as_exact_as(found.value, plain.value, exact.value, allowance.value));
  if (found.bias.defined()) {
    EXPECT_TRUE(test::as_exact_as(found.bias, plain.bias, exact.bias, allowance.bias));
  }
  if (found.relative.defined()) {
    EXPECT_TRUE(
        test::as_exact_as(found.relative, plain.relative, exact.relative, allowance.relative));
  }
  if (found.sinks.defined()) {
    EXPECT_TRUE(test::as_exact_as(found.sinks, plain.sinks, exact.sinks, allowance.sinks));
  }
}

/// Returns the next problem that is not float64, which gradients of sharded tensors do not take.
ShardedProblem next_gradient_problem(ProblemMaker& maker) {
  for (;;) {
    ShardedProblem p = maker.next();
    if (p.whole.query.dtype() != DType::kFloat64) return p;
  }
}

TEST(MpiBackward, RandomProblemsMatchTheOracle) {
  ProblemMaker maker(static_cast<std::uint64_t>(300 + ranks().size()), ranks().size());
  for (int i = 0; i < 150; ++i) {
    const ShardedProblem p = next_gradient_problem(maker);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + description(p));
    expect_exact_gradients(p);
  }
}

TEST(MpiBackward, LongProblemsMatchTheOracle) {
  for (const ShardedProblem& p : test::long_problems()) {
    SCOPED_TRACE(description(p));
    expect_exact_gradients(p);
  }
}

TEST(MpiBackward, TimingDoesNotChangeBits) {
  ProblemMaker maker(9, ranks().size());
  for (int i = 0; i < 15; ++i) {
    const ShardedProblem p = next_gradient_problem(maker);
    SCOPED_TRACE(description(p));
    const BackwardParts parts(
        p, test::random_loss(p.whole.inputs(), false, 77, p.whole.query.dtype()));
    const reference::Gradients once = gradients_of(p, parts);
    for (int run = 0; run < 2; ++run) {
      test::LateTransport late(static_cast<std::uint64_t>(1000 * i + 10 * run + ranks().rank()));
      const reference::Gradients again = gradients_of(p, parts, late);
      for (const auto& [a, b] : {std::pair(&once.query, &again.query),
                                 {&once.key, &again.key},
                                 {&once.value, &again.value}}) {
        EXPECT_TRUE(test::same_bits(*a, *b));
      }
    }
  }
}

TEST(MpiBackward, SomeOfTheGradients) {
  ProblemMaker maker(11, ranks().size());
  for (int i = 0; i < 4; ++i) {
    const ShardedProblem p = next_gradient_problem(maker);
    const BackwardParts parts(
        p, test::random_loss(p.whole.inputs(), false, 77, p.whole.query.dtype()));
    const reference::Gradients all = gradients_of(p, parts);
    const auto query = gradients_of(p, parts, ranks(), {.key = false, .value = false}).query;
    EXPECT_TRUE(test::same_bits(query, all.query));
    const auto key = gradients_of(p, parts, ranks(), {.query = false, .value = false}).key;
    EXPECT_TRUE(test::same_bits(key, all.key));
    const auto value = gradients_of(p, parts, ranks(), {.query = false, .key = false}).value;
    EXPECT_TRUE(test::same_bits(value, all.value));
    gradients_of(p, parts, ranks(), {.query = false, .key = false, .value = false});
  }
}

TEST(MpiBackwardErrors, InvalidGradientsAreRefusedOnAllRanks) {
  ProblemMaker maker(12, ranks().size());
  ShardedProblem p = next_gradient_problem(maker);
  p.options = {};
  const BackwardParts parts(p,
                            test::random_loss(p.whole.inputs(), false, 77, p.whole.query.dtype()));
  Tensor sums(DType::kFloat32, {p.whole.query.extent(1)});
  const auto refusal = [&](const AttentionGradients& gradients) {
    return message_of([&] { attention_backward(ranks(), parts.inputs(p), p.options, gradients); });
  };
  EXPECT_TRUE(refusal({.grad_bias = sums})
                  .starts_with("grad_bias: expected nothing where there is no bias, got "));
  const BackwardLenses lenses{.relevance = sums};
  EXPECT_EQ(refusal({.lenses = &lenses}),
            "lenses: expected nothing with sharded tensors, got a tensor");
  EXPECT_EQ(refusal({}), "no error");
  for (Tensor* tensor : {&p.whole.query, &p.whole.key, &p.whole.value}) {
    *tensor = convert(*tensor, DType::kFloat64);
  }
  const BackwardParts doubles(p, test::random_loss(p.whole.inputs(), false, 77, DType::kFloat64));
  EXPECT_EQ(
      message_of([&] { gradients_of(p, doubles); }),
      "dtype: expected float32, float16 or bfloat16 for gradients of sharded tensors, got float64");
  Tensor query(parts.query.dtype(), parts.query.shape());
  const bool mine = ranks().rank() == 0;
  const std::string differs = refusal({.grad_query = mine ? query.view() : MutableTensorView()});
  EXPECT_EQ(differs.starts_with("outputs: expected the same on all ranks"), ranks().size() > 1)
      << differs;
}

TEST(MpiBackwardErrors, AnErrorDuringWorkReachesAllRanks) {
  ProblemMaker maker(13, ranks().size());
  ShardedProblem p = next_gradient_problem(maker);
  const BackwardParts parts(p,
                            test::random_loss(p.whole.inputs(), false, 77, p.whole.query.dtype()));
  if (ranks().rank() == 0) {
    p.options.execution.progress = [](std::int64_t, std::int64_t) {
      throw std::runtime_error("a broken disk");
    };
  }
  EXPECT_THROW(gradients_of(p, parts), std::runtime_error);
  p.options.execution.progress = {};
  gradients_of(p, parts);
}

}  // namespace
}  // namespace fovea
