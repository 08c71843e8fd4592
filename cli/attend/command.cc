// SPDX-License-Identifier: Apache-2.0
//
// `fovea attend` (command.h).

#include "cli/attend/command.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/attend/outputs.h"
#include "cli/attend/report.h"
#include "cli/attend/verify.h"
#include "cli/pages/pages.h"
#include "cli/problem/arguments.h"
#include "cli/problem/call.h"
#include "cli/problem/inputs.h"
#include "cli/problem/options.h"
#include "cli/problem/recorded.h"
#include "cli/problem/rules.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/stopwatch.h"
#include "reference/comparison.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

void require_right(const char* what, const std::optional<AttendError>& error) {
  if (!error || error->fits()) return;
  throw WrongResult(
      fmt::format("wrong result, so nothing was written: the {} is off by {:.3g}, where the "
                  "reference allows {:.3g}",
                  what, error->error, error->allowed));
}

class AttendCommand : public Command {
 public:
  explicit AttendCommand(CLI::App& parent);
  bool runs_in_jobs() const override { return true; }
  int run() const override;

 private:
  void add_output_options();
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;
  /// Returns tensors for the outputs.
  AttendResult make_result(const AttendInputs& inputs) const;
  void print(const AttendReport& report) const;

  AttendArguments arguments_;
};

AttendCommand::AttendCommand(CLI::App& parent)
    : Command(parent, "attend", "compute attention of tensors in files", kAttendPage) {
  add_recorded_options(*app_, arguments_.recorded);
  add_tensor_options(*app_, arguments_);
  add_output_options();
  add_mask_options(*app_, arguments_);
  add_score_options(*app_, arguments_);
}

void AttendCommand::add_output_options() {
  AttendArguments& to = arguments_;
  app_->option_defaults()->group("Options");
  const auto add = [this](const char* name, std::string& target, const char* description) {
    app_->add_option(name, target, description)->type_name("FILE[:NAME]");
  };
  add("--output", to.output,
      "Write the context to an .npy, .npz or .safetensors file, by its extension, as the tensor "
      "NAME (default: context); \"-\": as .npy to standard output.");
  add("--lse", to.lse,
      "Write each row's log-sum-exp of the scores: [batch, heads, length] in either layout, "
      "float32 (float64 with f64), as the tensor NAME (default: lse). May be the .npz or "
      ".safetensors file of --output.");
  add_threads_option(*app_, to);
  add_job_option(*app_);
  app_->add_flag("--verify", to.verify,
                 "Recompute some rows with the reference before anything is written; exit with "
                 "code 1 if the result is wrong.");
  app_->add_flag("--json", to.json, "Print one JSON object instead of text.");
}

void AttendCommand::check_usage() const {
  check_problem_usage(*app_, arguments_, {"--query", "--key", "--value"},
                      {{"--output", &arguments_.output}, {"--lse", &arguments_.lse}});
  if (!given("--output") && !given("--lse") && !arguments_.verify && !arguments_.json) {
    throw UsageError("nothing to do: expected --output, --lse, --verify or --json");
  }
}

AttendResult AttendCommand::make_result(const AttendInputs& inputs) const {
  // If nothing is written, both are computed for --verify and timing.
  const bool both = arguments_.output.empty() && arguments_.lse.empty();
  const auto [batch, q_heads, kv_heads, q_len, kv_len, sequences] = inputs.shape;
  AttendResult result;
  if (both || !arguments_.output.empty()) {
    result.context = Tensor(inputs.query.view.dtype(),
                            inputs.layout.shape(batch, q_heads, q_len, inputs.value_dim()));
  }
  if (both || !arguments_.lse.empty()) {
    result.lse = Tensor(inputs.is_float64() ? DType::kFloat64 : DType::kFloat32,
                        inputs.layout.shape(batch, q_heads, q_len));
  }
  return result;
}

void AttendCommand::print(const AttendReport& report) const {
  const std::string text = arguments_.json ? attend_json(report) : attend_text(report);
  if (!report.plan.to_standard_output()) {
    write_stdout(text);
  } else if (!is_silent() && (arguments_.json || arguments_.verify)) {
    write_stderr(text);
  }
}

int AttendCommand::run() const {
  check_usage();
  const OutputPlan plan = plan_outputs(arguments_.output, arguments_.lse);

  const Stopwatch reading;
  const AttendInputs inputs = in_step([&] { return read_inputs(arguments_); });
  const AttendRules rules = in_step([&] { return read_rules(arguments_, inputs); });
  const double read_seconds = reading.seconds();

  AttentionOptions options = rules.options();
  options.execution.threads = static_cast<int>(arguments_.threads);
  AttendResult result = in_step([&] {
    require_fit(options, inputs.shape);
    require_writable(plan);
    return make_result(inputs);
  });
  const AttentionOutputs outputs = outputs_of(inputs.layout, result);
  Progress progress;
  AttendReport report = {.inputs = inputs,
                         .rules = rules,
                         .result = result,
                         .plan = plan,
                         .times = attend(inputs, options, outputs, progress),
                         .read_seconds = read_seconds,
                         .verdict = {}};
  do_step([&] {
    if (!arguments_.verify || is_silent()) return;
    report.verdict = verify(inputs, rules, outputs, progress);
    require_right("context", report.verdict->context);
    require_right("lse", report.verdict->lse);
  });
  const Stopwatch writing;
  constexpr std::int64_t kLarge = std::int64_t{1} << 26;
  if (plan.context.wanted() && result.context.size() > kLarge) {
    progress.show("writing " + visible(plan.context.words()));
  }
  do_step([&] { write_outputs(plan, result.context, result.lse); });
  progress.clear();
  report.write_seconds = writing.seconds();
  print(report);
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_attend(CLI::App& parent) {
  return std::make_unique<AttendCommand>(parent);
}

}  // namespace fovea::cli
