// SPDX-License-Identifier: Apache-2.0
//
// The engine call (call.h).

#include "cli/problem/call.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "fovea/error.h"

#include "ceilings/ceilings.h"
#include "cli/problem/rules.h"
#include "cli/problem/shards.h"
#include "cli/shell/call_progress.h"
#include "cli/shell/job.h"
#include "cli/shell/stopwatch.h"
#include "problem/mask_rules.h"

namespace fovea::cli {
namespace {

/// Returns the number of rows per head to evaluate: all, unless that would take seconds.
std::int64_t rows_to_count(const Mask& mask, ScorePosition at, const ProblemShape& shape,
                           std::int64_t heads) {
  constexpr std::int64_t kMaxWork = std::int64_t{1} << 28;  // rows, or elements of a mask
  at.query = shape.q_len / 2;
  const std::int64_t row_cost = mask.key_range(at, shape.kv_len).exact ? 16 : shape.kv_len;
  return std::clamp<std::int64_t>(kMaxWork / heads / row_cost, 1, shape.q_len);
}

}  // namespace

int threads_of(const Execution& execution) {
  return execution.threads > 0 ? execution.threads : omp_get_max_threads();
}

std::string_view engine_name(AttendEngine engine) {
  return engine == AttendEngine::kForward ? "forward" : "reference";
}

AttendEngine choose_engine(const AttendInputs& inputs) {
  return inputs.is_float64() ? AttendEngine::kReference : AttendEngine::kForward;
}

std::optional<double> AttendTimes::gflops() const {
  if (flop == 0.0 || seconds == 0.0) return std::nullopt;
  return flop / seconds * 1e-9;
}

std::optional<double> AttendTimes::share() const {
  const auto speed = gflops();
  if (!speed || !ceiling_gflops) return std::nullopt;
  return *speed / *ceiling_gflops;
}

double useful_flop(const ProblemShape& shape, std::int64_t dims, const AttentionOptions& options) {
  if (shape.kv_len == 0 || shape.q_len == 0) return 0.0;
  double pairs = 0.0;
  std::vector<std::uint8_t> visible;
  const std::int64_t heads = shape.batch * shape.q_heads;
  for (std::int64_t i = 0; i < heads; ++i) {
    ScorePosition at = {.batch = i / shape.q_heads, .head = i % shape.q_heads};
    at.offset = query_offset(options, shape, at.batch);
    const std::int64_t rows = rows_to_count(options.mask, at, shape, heads);
    double seen = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const double middle = (static_cast<double>(row) + 0.5) * static_cast<double>(shape.q_len) /
                            static_cast<double>(rows);
      at.query = std::min(static_cast<std::int64_t>(middle), shape.q_len - 1);
      seen += static_cast<double>(count_visible(options.mask, at, shape.kv_len, visible));
    }
    pairs += seen * static_cast<double>(shape.q_len) / static_cast<double>(rows);
  }
  return 2.0 * static_cast<double>(dims) * pairs;
}

AttentionOutputs outputs_of(const TensorLayout& layout, AttendResult& result) {
  AttentionOutputs outputs;
  if (result.context.defined()) outputs.context = layout.seen(result.context.view());
  if (result.lse.defined()) {
    // With a dim of 1 appended. The lse has heads first in either layout.
    const MutableTensorView lse = result.lse.view();
    Shape shape = lse.shape();
    shape.push_back(1);
    const MutableTensorView seen =
        TensorLayout{.rank = layout.rank}.seen(MutableTensorView(lse.data(), lse.dtype(), shape));
    outputs.lse = MutableTensorView(seen.data(), seen.dtype(),
                                    {seen.extent(0), seen.extent(1), seen.extent(2)},
                                    {seen.strides()[0], seen.strides()[1], seen.strides()[2]});
  }
  return outputs;
}

void require_fit(const AttentionOptions& options, const ProblemShape& shape) {
  try {
    validate(options, shape);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
}

AttendTimes attend(const AttendInputs& inputs, AttentionOptions options,
                   const AttentionOutputs& outputs, Progress& progress) {
  AttendTimes times;
  times.engine = choose_engine(inputs);
  times.threads = threads_of(options.execution) * job_size();
  // Returns early, since a file can specify billions of rows without elements.
  times.nothing = outputs.context.size() == 0 && outputs.lse.size() == 0;
  if (times.nothing) return times;
  times.flop = useful_flop(inputs.shape, inputs.head_dim() + inputs.value_dim(), options);
  CallProgress said(progress, times.flop);
  options.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
  const Stopwatch watch;
  try {
    attend_in_job(inputs, options, outputs);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  times.seconds = watch.seconds();
  progress.clear();
  constexpr double kLongEnough = 0.1;
  if (times.seconds > kLongEnough && job_size() == 1 && times.engine != AttendEngine::kReference) {
    times.ceiling_gflops = kernels::product_ceiling_gflops(
        inputs.query.view.dtype(), {.threads = times.threads, .seconds = 0.03});
  }
  return times;
}

}  // namespace fovea::cli
