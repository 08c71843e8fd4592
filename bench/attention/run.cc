// SPDX-License-Identifier: Apache-2.0
//
// Execution and checks of measured calls (run.h).

#include "bench/attention/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/reference.h"
#include "fovea/weights.h"

#include "bench/attention/lens_check.h"
#include "ceilings/ceilings.h"
#include "reference/comparison.h"
#include "reference/gradients.h"

namespace fovea::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Of so much memory read in turn, a last-level cache keeps little.
constexpr std::size_t kCachesToRead = 4;

// Returns the first, middle and last query of the first, middle and last head of the first and last
// batch item.
std::vector<reference::Row> rows_to_check(const BenchProblem& problem) {
  std::vector<reference::Row> rows;
  for (const std::int64_t batch : std::set<std::int64_t>{0, problem.batch - 1}) {
    for (const std::int64_t head :
         std::set<std::int64_t>{0, problem.q_heads / 2, problem.q_heads - 1}) {
      for (const std::int64_t query :
           std::set<std::int64_t>{0, problem.q_len / 2, problem.q_len - 1}) {
        rows.push_back({.batch = batch, .head = head, .query = query});
      }
    }
  }
  return rows;
}

/// Returns the engine's error and its tolerance: the error of a naive computation in the same type
/// plus some roundings. The naive error may be small by chance, and the engine adds in another
/// order.
BenchErrors compare(const TensorView& engine, const TensorView& naive, const TensorView& oracle,
                    DType dtype) {
  constexpr double kRoundings = 32.0 * 0x1p-24;
  const double stored = dtype == DType::kFloat32 ? 0.0 : rounding_of(dtype).relative;
  Deviations deviations;
  deviations.add(engine, naive, oracle);
  return {.error = deviations.result,
          .allowed = deviations.naive + (kRoundings + stored) * largest_finite(oracle)};
}

void require_right(const BenchErrors& errors, const BenchProblem& problem, const char* what) {
  if (errors.error <= errors.allowed) return;
  throw WrongResult(
      fmt::format("wrong result, so nothing was timed: {}: the {} is off by {:.3g}, where the "
                  "reference allows {:.3g}",
                  describe(problem), what, errors.error, errors.allowed));
}

/// Returns the largest Euclidean norm of a row.
double longest_row(const Tensor& tensor) {
  const Shape shape = tensor.shape();
  double longest = 0.0;
  for_each_index({shape[0], shape[1], shape[2]}, [&](const Index& at) {
    double square = 0.0;
    for (std::int64_t c = 0; c < shape[3]; ++c) {
      const double x = tensor.value({at[0], at[1], at[2], c});
      square += x * x;
    }
    longest = std::max(longest, square);
  });
  return std::sqrt(longest);
}

void fill(const MutableTensorView& tensor, double number) {
  for_each_index(tensor.shape(), [&](const Index& at) { set_value(tensor, at, number); });
}

}  // namespace

BenchRun::BenchRun(BenchCall call, const BenchProblem& problem, int threads)
    : call_(call),
      problem_(problem),
      tensors_(make_tensors(problem, call == BenchCall::kBackward)) {
  tensors_.options.execution.threads = threads;
  const std::size_t cache = kernels::last_level_cache_bytes();
  if (call == BenchCall::kDecode && read_bytes() > cache) {
    while (read_bytes() < kCachesToRead * cache) copies_.push_back(tensors_);
  }
  if (call == BenchCall::kBackward) {
    attention_forward(tensors_.query, tensors_.key, tensors_.value, tensors_.options,
                      {.context = tensors_.context, .lse = tensors_.lse});
  }
}

void BenchRun::run() { run(tensors_); }

void BenchRun::run(BenchTensors& tensors) {
  const AttentionOutputs outputs = {.context = tensors.context,
                                    .lse = tensors.lse,
                                    .lenses = problem_.lenses.any() ? &tensors.lenses : nullptr};
  if (call_ == BenchCall::kForward || call_ == BenchCall::kLenses) {
    attention_forward(tensors.query, tensors.key, tensors.value, tensors.options, outputs);
    if (problem_.lenses.received) {
      attention_received({tensors.query, tensors.key, tensors.lse}, tensors.options,
                         {.sum = tensors.received});
    }
  } else if (call_ == BenchCall::kBackward) {
    const BackwardLenses lenses = {.relevance = tensors.relevance, .magnitude = tensors.magnitude};
    attention_backward({.query = tensors.query,
                        .key = tensors.key,
                        .value = tensors.value,
                        .context = tensors.context,
                        .lse = tensors.lse,
                        .grad_context = tensors.grad_context},
                       tensors.options,
                       {.grad_query = tensors.grad_query,
                        .grad_key = tensors.grad_key,
                        .grad_value = tensors.grad_value,
                        .lenses = problem_.lenses.relevance ? &lenses : nullptr});
  } else if (problem_.block_size > 0) {
    attention_decode(tensors.query, tensors.paged(), tensors.options, outputs);
  } else {
    attention_decode(tensors.query, tensors.key, tensors.value, tensors.options, outputs);
  }
}

double BenchRun::timed_run() {
  BenchTensors& tensors = next_ == 0 ? tensors_ : copies_[next_ - 1];
  next_ = (next_ + 1) % (copies_.size() + 1);
  const Clock::time_point start = Clock::now();
  run(tensors);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::size_t BenchRun::read_bytes() const {
  return static_cast<std::size_t>(key_value_bytes(problem_)) * (copies_.size() + 1);
}

double BenchRun::bytes() const {
  double bytes = 0.0;
  for (const Tensor* tensor :
       {&tensors_.query, &tensors_.key, &tensors_.value, &tensors_.context, &tensors_.lse}) {
    bytes += static_cast<double>(tensor->size()) * static_cast<double>(dtype_size(tensor->dtype()));
  }
  return bytes;
}

BenchErrors BenchRun::check() {
  return call_ == BenchCall::kBackward ? check_gradients() : check_context();
}

BenchErrors BenchRun::check_context() {
  // Elements that the engine fails to write stay NaN.
  fill(tensors_.context, std::numeric_limits<double>::quiet_NaN());
  fill(tensors_.lse, std::numeric_limits<double>::quiet_NaN());
  run();

  const std::vector<reference::Row> rows = rows_to_check(problem_);
  const reference::Inputs inputs = {tensors_.query, tensors_.key, tensors_.value};
  const auto oracle = reference::attention_rows(inputs, tensors_.options, rows);
  const auto naive =
      reference::attention_rows(inputs, tensors_.options, rows, {.arithmetic = problem_.dtype});
  Tensor context(DType::kFloat64, oracle.context.shape());
  Tensor lse(DType::kFloat64, oracle.lse.shape());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [batch, head, query] = rows[i];
    const auto row = static_cast<std::int64_t>(i);
    lse.at<double>({row}) = tensors_.lse.value({batch, head, query});
    for (std::int64_t dim = 0; dim < problem_.value_dim; ++dim) {
      context.at<double>({row, dim}) = tensors_.context.value({batch, head, query, dim});
    }
  }
  require_right(compare(lse, naive.lse, oracle.lse, DType::kFloat32), problem_, "lse");
  const BenchErrors errors = compare(context, naive.context, oracle.context, problem_.dtype);
  require_right(errors, problem_, "context");
  if (problem_.lenses.any()) {
    const double error = lens_error(tensors_, rows, oracle);
    require_right({.error = error, .allowed = kLensErrorAllowed}, problem_, "lenses");
  }
  return errors;
}

BenchErrors BenchRun::check_gradients() {
  // grad_context is zero except in a few rows. All keys still have gradients, but the reference
  // only needs to process these queries.
  const std::vector<reference::Row> rows = rows_to_check(problem_);
  Tensor all_rows = std::move(tensors_.grad_context);
  tensors_.grad_context = Tensor(all_rows.dtype(), all_rows.shape());
  for (const auto& [batch, head, query] : rows) {
    for (std::int64_t dim = 0; dim < problem_.value_dim; ++dim) {
      const Index at{batch, head, query, dim};
      set_value(tensors_.grad_context, at, all_rows.value(at));
    }
  }
  for (Tensor* tensor : {&tensors_.grad_query, &tensors_.grad_key, &tensors_.grad_value,
                         &tensors_.relevance, &tensors_.magnitude}) {
    if (tensor->defined()) fill(*tensor, std::numeric_limits<double>::quiet_NaN());
  }
  run();

  const reference::Inputs inputs = {tensors_.query, tensors_.key, tensors_.value};
  const reference::OutputGradients loss = {.context = tensors_.grad_context};
  const auto gradients = [&](DType arithmetic) {
    const reference::ReferenceOptions how = {.arithmetic = arithmetic};
    reference::Gradients sums = reference::zero_gradients(inputs, tensors_.options, how);
    reference::add_row_gradients(inputs, loss, tensors_.options, rows, how, sums);
    return sums;
  };
  const reference::Gradients oracle = gradients(DType::kFloat64);
  const reference::Gradients naive = gradients(problem_.dtype);
  tensors_.grad_context = std::move(all_rows);
  BenchErrors worst;
  // A score's gradient is proportional to the gradient of its weight minus the row's weighted mean
  // of these gradients. They are dot products of whole rows, so the rounding error scales with the
  // norms of the rows, even if the difference nearly cancels.
  const double products = longest_row(tensors_.grad_context) * longest_row(tensors_.value);
  const double scale = 1.0 / std::sqrt(static_cast<double>(problem_.head_dim));
  const auto compare_one = [&](const Tensor& found, const Tensor& plain, const Tensor& exact,
                               const char* what, double factor) {
    BenchErrors errors = compare(found, plain, exact, problem_.dtype);
    const double rounding =
        problem_.dtype == DType::kFloat32 ? 0x1p-24 : rounding_of(problem_.dtype).relative;
    errors.allowed += 2.0 * rounding * products * factor;
    require_right(errors, problem_, what);
    if (errors.error >= worst.error) worst = errors;
  };
  compare_one(tensors_.grad_query, naive.query, oracle.query, "gradient of the query",
              scale * largest_finite(tensors_.key));
  compare_one(tensors_.grad_key, naive.key, oracle.key, "gradient of the key",
              scale * largest_finite(tensors_.query));
  compare_one(tensors_.grad_value, naive.value, oracle.value, "gradient of the value", 0.0);
  if (problem_.lenses.relevance) {
    const double factor = largest_finite(oracle.magnitude) / products;
    compare_one(tensors_.relevance, naive.relevance, oracle.relevance, "relevance", factor);
    compare_one(tensors_.magnitude, naive.magnitude, oracle.magnitude, "magnitude", factor);
  }
  return worst;
}

}  // namespace fovea::cli
