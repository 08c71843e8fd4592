// SPDX-License-Identifier: Apache-2.0
//
// `fovea attend` (attend_command.h).

#include "attend_command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "attend_page.h"
#include "attend_rules.h"
#include "attend_verify.h"
#include "core/text_width.h"
#include "help.h"
#include "message.h"
#include "option_types.h"
#include "output.h"
#include "progress.h"
#include "row_check.h"
#include "tensor_options.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 40;
constexpr std::int64_t kMaxThreads = 1024;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void require_right(const char* what, const std::optional<AttendError>& error) {
  if (!error || error->fits()) return;
  throw WrongResult(
      fmt::format("wrong result, so nothing was written: the {} is off by {:.3g}, where the "
                  "reference allows {:.3g}",
                  what, error->error, error->allowed));
}

}  // namespace

AttendCommand::AttendCommand(CLI::App& parent)
    : app_(parent.add_subcommand("attend", "attention of tensors in files")) {
  app_->formatter(std::make_shared<PageFormatter>(attend_page()));
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_tensor_options();
  add_output_options();
  app_->set_help_flag("-h,--help", "Print this page and exit.");
  add_mask_options();
  add_score_options();
}

void AttendCommand::add_tensor_options() {
  AttendArguments& to = arguments_;
  // The group's name becomes a heading.
  app_->option_defaults()->group("Tensors");
  const auto add = [this](const char* name, std::string& target, const char* description) {
    app_->add_option(name, target, description)->type_name("TENSOR");
  };
  add("--query", to.query, "What asks: [batch, heads, length, dim], or fewer dimensions.");
  add("--key", to.key,
      "What is asked: as many dims as the query; its heads divide the query's, and each serves a "
      "run of them.");
  add("--value", to.value, "What is mixed: heads and length of the key, any dim.");
  app_->add_option("--input", to.input,
                   "An .npz or .safetensors file with \"query\", \"key\" and \"value\", of which "
                   "those are taken that have no option of their own. FILE:bf16: all of them are "
                   "bfloat16 without a type, as NumPy writes it.")
      ->type_name("FILE");
  add_choice(*app_, "--layout", to.layout, {"bhld", "blhd"},
             "Which dimension comes first: heads (bhld, the default) or length (blhd), in query, "
             "key, value and context alike.")
      ->type_name("LAYOUT");
  add_choice(*app_, "--dtype", to.dtype, {"f32", "bf16", "f16", "f64"},
             "Convert query, key and value to this type, and write the context in it. Default: "
             "each as it is, the context as the query. f64 is computed by the reference, exactly "
             "and some hundred times as slowly.")
      ->type_name("TYPE");
}

void AttendCommand::add_output_options() {
  AttendArguments& to = arguments_;
  app_->option_defaults()->group("Options");
  const auto add = [this](const char* name, std::string& target, const char* description) {
    app_->add_option(name, target, description)->type_name("FILE[:NAME]");
  };
  add("--output", to.output,
      "Write the context there: an .npy, .npz or .safetensors file, by its ending, under NAME "
      "(default: context); or \"-\", an .npy on standard output.");
  add("--lse", to.lse,
      "Write the log of each row's sum of exponentials there: [batch, heads, length] in either "
      "layout, float32 (float64 with f64), under NAME (default: lse). In the same .npz or "
      ".safetensors as --output it stands beside the context.");
  add_integer(*app_, "--threads", to.threads, {std::int64_t{1}, kMaxThreads},
              "Threads to compute with. Default: one per CPU. The result is the same.");
  app_->add_flag("--verify", to.verify,
                 "Compute some rows once more by the reference before anything is written; exit 1 "
                 "if the result is wrong.");
  app_->add_flag("--json", to.json, "Print one JSON object instead of text.");
}

void AttendCommand::add_mask_options() {
  AttendArguments& to = arguments_;
  app_->option_defaults()->group("Options for masks");
  app_->add_flag("--causal", to.causal, "A query sees no key after its own position.");
  app_->add_option("--alignment", to.alignment,
                   "Where query 0 stands among the keys: bottom-right (the default: so that the "
                   "last query stands at the last key), top-left (at key 0), or at key OFFSET; one "
                   "offset, or one for each batch item, as numbers or a tensor.")
      ->type_name("WHERE");
  app_->add_option("--window", to.window,
                   "A query sees LEFT keys before its position and RIGHT after it; -1: all.")
      ->type_name("LEFT,RIGHT");
  add_integer(
      *app_, "--prefix", to.prefix, {std::int64_t{0}, kFar},
      "Every query sees the first N keys: beside what --causal lets it see, or only these.");
  app_->add_option("--documents", to.documents,
                   "A query sees the keys of its own document: integers [length] or [batch, "
                   "length]. One tensor where queries are as many as keys, else one for each.")
      ->type_name("IDS[,KEY_IDS]");
  app_->add_option("--key-lengths", to.key_lengths,
                   "How many keys there are really, the rest being padding: one number, or one for "
                   "each batch item, or a tensor of them.")
      ->type_name("N,...");
  app_->add_option("--mask", to.mask,
                   "A tensor of bool, true where a query sees a key, broadcast to [batch, heads, "
                   "queries, keys].")
      ->type_name("TENSOR");
}

void AttendCommand::add_score_options() {
  AttendArguments& to = arguments_;
  app_->option_defaults()->group("Options for scores");
  add_real(*app_, "--scale", to.scale, "The factor on query . key. Default: 1 / sqrt(dim).");
  add_real(*app_, "--softcap", to.softcap, "Bend scores s to X tanh(s / X).");
  app_->add_option("--bias", to.bias,
                   "Floats that are added to the scores, broadcast as --mask; -inf hides.")
      ->type_name("TENSOR");
  app_->add_option("--alibi", to.slopes,
                   "Subtract SLOPE times the distance of query and key: a slope for each head of "
                   "queries, as numbers or a tensor. Without any: those of the paper.")
      ->type_name("[SLOPES]")
      ->expected(0, 1);
  app_->add_option("--relative", to.relative,
                   "Add T5's bias by relative position: a table [buckets, heads].")
      ->type_name("TENSOR");
  app_->add_flag("--relative-one-way", to.one_way,
                 "Keys ahead share a bucket, as in T5's decoder.");
  add_integer(*app_, "--relative-distance", to.distance, {std::int64_t{1}, kFar},
              "From this distance on all keys share a bucket (default 128).");
  app_->add_option("--sinks", to.sinks,
                   "A logit for each head of queries that joins the denominator only, as numbers "
                   "or a tensor.")
      ->type_name("X,...");
}

void AttendCommand::check_tensors_given() const {
  std::vector<std::string> missing;
  for (const char* option : {"--query", "--key", "--value"}) {
    if (!given(option)) missing.emplace_back(option);
  }
  if (!given("--input") && !missing.empty()) {
    throw UsageError(fmt::format(
        "expected --query, --key and --value, or --input FILE; {} is missing", missing.front()));
  }
  if (given("--input") && missing.empty()) {
    throw UsageError("--input: expected no file where --query, --key and --value are given");
  }
}

void AttendCommand::check_usage() const {
  const std::array<std::pair<const char*, const std::string*>, 15> texts = {
      {{"--query", &arguments_.query},
       {"--key", &arguments_.key},
       {"--value", &arguments_.value},
       {"--input", &arguments_.input},
       {"--output", &arguments_.output},
       {"--lse", &arguments_.lse},
       {"--alignment", &arguments_.alignment},
       {"--window", &arguments_.window},
       {"--documents", &arguments_.documents},
       {"--key-lengths", &arguments_.key_lengths},
       {"--mask", &arguments_.mask},
       {"--bias", &arguments_.bias},
       {"--alibi", &arguments_.slopes},
       {"--relative", &arguments_.relative},
       {"--sinks", &arguments_.sinks}}};
  for (const auto& [option, text] : texts) {
    const bool may_be_empty = text == &arguments_.slopes;
    if (!may_be_empty && given(option) && text->empty()) {
      throw UsageError(fmt::format("{}: expected a value", option));
    }
  }
  check_tensors_given();
  const char* reader = nullptr;
  for (const auto& [option, text] : texts) {
    const bool writes = text == &arguments_.output || text == &arguments_.lse;
    const std::size_t comma = std::min(text->find(','), text->size());
    // Of two, as --documents takes them, either may be.
    for (const std::string& part :
         {text->substr(0, comma), text->substr(std::min(comma + 1, text->size()))}) {
      if (writes || !is_standard_input(part)) continue;
      if (reader != nullptr) {
        throw UsageError(
            fmt::format("{}: expected a file, got -, which {} reads: standard input holds one "
                        "tensor, and once",
                        option, reader));
      }
      reader = option;
    }
  }
  for (const char* option : {"--relative-one-way", "--relative-distance"}) {
    if (given(option) && !given("--relative")) {
      throw UsageError(fmt::format("{} goes with --relative TENSOR", option));
    }
  }
  if (!given("--output") && !given("--lse") && !arguments_.verify && !arguments_.json) {
    throw UsageError("nothing to do: expected --output, --lse, --verify or --json");
  }
}

AttendResult AttendCommand::make_result(const AttendInputs& inputs) const {
  // Without any output both are computed, to be verified or timed.
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
  } else if (arguments_.json || arguments_.verify) {
    write_stderr(text);
  }
}

int AttendCommand::run() const {
  check_usage();
  AttendArguments arguments = arguments_;
  arguments.alibi = given("--alibi");
  const OutputPlan plan = plan_outputs(arguments.output, arguments.lse);

  const Stopwatch reading;
  const AttendInputs inputs = read_inputs(arguments);
  const AttendRules rules = read_rules(arguments);
  const double read_seconds = reading.seconds();

  AttentionOptions options = rules.options();
  options.execution.threads = static_cast<int>(arguments.threads);
  require_fit(options, inputs.shape);
  require_writable(plan);
  AttendResult result = make_result(inputs);
  const AttentionOutputs outputs = outputs_of(inputs.layout, result);
  Progress progress;
  AttendReport report = {.inputs = inputs,
                         .rules = rules,
                         .result = result,
                         .plan = plan,
                         .times = attend(inputs, options, outputs, progress),
                         .read_seconds = read_seconds,
                         .verdict = {}};
  if (arguments.verify) {
    report.verdict = verify(inputs, rules, outputs, progress);
    require_right("context", report.verdict->context);
    require_right("lse", report.verdict->lse);
  }
  const Stopwatch writing;
  constexpr std::int64_t kLarge = std::int64_t{1} << 26;
  if (plan.context.wanted() && result.context.size() > kLarge) {
    progress.show("writing " + visible(plan.context.words()));
  }
  write_outputs(plan, result.context, result.lse);
  progress.clear();
  report.write_seconds = writing.seconds();
  print(report);
  return 0;
}

}  // namespace fovea::cli
