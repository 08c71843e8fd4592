// SPDX-License-Identifier: Apache-2.0
//
// Options for tensors, masks and scores (options.h).

#include "cli/problem/options.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/problem/recorded.h"
#include "cli/problem/tensor_options.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"

namespace fovea::cli {
namespace {

/// Returns the common options that take a string.
std::vector<OptionText> texts_of(const AttendArguments& arguments) {
  return {{"--query", &arguments.query},         {"--key", &arguments.key},
          {"--value", &arguments.value},         {"--input", &arguments.input},
          {"--alignment", &arguments.alignment}, {"--window", &arguments.window},
          {"--documents", &arguments.documents}, {"--key-lengths", &arguments.key_lengths},
          {"--mask", &arguments.mask},           {"--bias", &arguments.bias},
          {"--alibi", &arguments.slopes},        {"--relative", &arguments.relative},
          {"--sinks", &arguments.sinks}};
}

void require_values(const CLI::App& app, const std::vector<OptionText>& texts,
                    const AttendArguments& arguments) {
  for (const OptionText& option : texts) {
    const bool may_be_empty = option.text == &arguments.slopes;
    if (!may_be_empty && app.count(option.name) > 0 && option.text->empty()) {
      throw UsageError(fmt::format("{}: expected a value", option.name));
    }
  }
}

/// Throws UsageError if two options read standard input.
void require_one_reader(const std::vector<OptionText>& texts) {
  const char* reader = nullptr;
  for (const OptionText& option : texts) {
    const std::string& text = *option.text;
    const std::size_t comma = std::min(text.find(','), text.size());
    // --documents accepts two tensors, and either may be standard input.
    for (const std::string& part :
         {text.substr(0, comma), text.substr(std::min(comma + 1, text.size()))}) {
      if (!is_standard_input(part)) continue;
      if (reader != nullptr) {
        throw UsageError(
            fmt::format("{}: expected a file, got -, which {} reads: standard input holds one "
                        "tensor, and once",
                        option.name, reader));
      }
      reader = option.name;
    }
  }
}

}  // namespace

void add_tensor_options(CLI::App& app, AttendArguments& to) {
  // The group's name becomes a heading of the page.
  app.option_defaults()->group("Tensors");
  const auto add = [&app](const char* name, std::string& target, const char* description) {
    app.add_option(name, target, description)->type_name("TENSOR");
  };
  add("--query", to.query, "The query, [batch, heads, length, dim] or fewer dimensions.");
  add("--key", to.key,
      "The key, with the dim of the query. Its head count divides the query's; each key head is "
      "shared by a group of consecutive query heads.");
  add("--value", to.value, "The value, with the heads and length of the key, and any dim.");
  app.add_option("--input", to.input,
                 "An .npz or .safetensors file with \"query\", \"key\" and \"value\", used for "
                 "those without an option of their own. FILE:bf16: all are bfloat16, stored by "
                 "NumPy as two bytes without a type.")
      ->type_name("FILE");
  add_choice(app, "--layout", to.length_first, {{"bhld", false}, {"blhd", true}},
             "The order of dimensions in query, key, value and context: heads first (bhld, the "
             "default) or length first (blhd).")
      ->type_name("LAYOUT");
  add_choice(app, "--dtype", to.dtype,
             {{"f32", DType::kFloat32},
              {"bf16", DType::kBFloat16},
              {"f16", DType::kFloat16},
              {"f64", DType::kFloat64}},
             "Convert query, key and value to this type, and write the context in it. Default: no "
             "conversion, and a context of the query's type. f64 uses the reference, in float64 "
             "and some hundred times slower.")
      ->type_name("TYPE");
}

void add_weight_tensor_options(CLI::App& app, AttendArguments& to) {
  add_tensor_options(app, to);
  app.get_option("--value")->description(
      "Optional; only its shape is checked, since weights do not depend on it.");
  app.get_option("--input")->description(
      "An .npz or .safetensors file with \"query\" and \"key\", used for those without an option "
      "of "
      "their own. FILE:bf16: both are bfloat16, stored by NumPy as two bytes without a type.");
  app.get_option("--layout")
      ->description(
          "The order of dimensions: heads first (bhld, the default) or length first "
          "(blhd).");
  app.get_option("--dtype")->description(
      "Convert query and key to this type. f64 uses the reference, in float64 and some hundred "
      "times slower.");
}

void add_mask_options(CLI::App& app, AttendArguments& to) {
  app.option_defaults()->group("Options for masks");
  app.add_flag("--causal", to.causal, "Hide the keys after a query's position.");
  app.add_option("--alignment", to.alignment,
                 "The position of query 0: bottom-right (the default), which puts the last query "
                 "at the last key; top-left, at key 0; or at key OFFSET: one offset or one per "
                 "batch item, as numbers or a tensor.")
      ->type_name("WHERE");
  app.add_option("--window", to.window,
                 "A query sees LEFT keys before its position and RIGHT keys after it; -1: all.")
      ->type_name("LEFT,RIGHT");
  add_integer(
      app, "--prefix", to.prefix, {std::int64_t{0}, kMaxCount},
      "Every query sees the first N keys, in addition to those that --causal allows; without "
      "--causal, no others.");
  app.add_option("--documents", to.documents,
                 "A query sees only the keys of its own document. IDS are integers, [length] or "
                 "[batch, length]; KEY_IDS are needed if queries and keys differ in length.")
      ->type_name("IDS[,KEY_IDS]");
  app.add_option("--key-lengths", to.key_lengths,
                 "The number of real keys, followed by padding: one number or one per batch item, "
                 "as numbers or a tensor.")
      ->type_name("N,...");
  app.add_option("--mask", to.mask,
                 "A bool tensor, true if a query sees a key, broadcast to [batch, heads, queries, "
                 "keys].")
      ->type_name("TENSOR");
}

void add_score_options(CLI::App& app, AttendArguments& to) {
  app.option_defaults()->group("Options for scores");
  add_real(app, "--scale", to.scale, "The factor of query . key. Default: 1 / sqrt(dim).");
  add_real(app, "--softcap", to.softcap, "Replace scores s by X tanh(s / X).");
  app.add_option("--bias", to.bias,
                 "A floating-point tensor added to the scores, broadcast like --mask; -inf hides "
                 "a key.")
      ->type_name("TENSOR");
  const auto set_alibi = [&to](const std::string& slopes) {
    to.alibi = true;
    to.slopes = slopes;
  };
  app.add_option_function<std::string>(
         "--alibi", set_alibi,
         "Subtract a slope times the distance between query and key: one slope per query head, as "
         "numbers or a tensor. Default: the slopes of the ALiBi paper.")
      ->type_name("[SLOPES]")
      ->expected(0, 1);
  app.add_option("--relative", to.relative,
                 "Add T5's relative position bias from a table [buckets, heads].")
      ->type_name("TENSOR");
  app.add_flag("--relative-one-way", to.one_way,
               "Use a single bucket for all keys after the query, as in T5's decoder.");
  add_integer(app, "--relative-distance", to.distance, {std::int64_t{1}, kMaxCount},
              "Keys at this distance or farther share one bucket (default 128).");
  app.add_option("--sinks", to.sinks,
                 "Logits that are added only to the softmax denominator, one per query head, as "
                 "numbers or a tensor.")
      ->type_name("X,...");
}

void add_threads_option(CLI::App& app, AttendArguments& to) {
  add_integer(app, "--threads", to.threads, {std::int64_t{1}, kMaxThreads},
              "The number of threads; does not change the result. Default: one per CPU.");
}

void add_job_option(CLI::App& app) {
  app.add_option_function<std::string>(
         "--timeout",
         [](const std::string& value) {
           const std::optional<double> seconds = parse_number<double>(value);
           if (!seconds || !(*seconds >= 0.1 && *seconds <= 1e6)) {
             throw CLI::ValidationError(
                 "--timeout", fmt::format("expected 0.1 to 1000000 seconds, got \"{}\"", value));
           }
           set_job_timeout(*seconds);
         },
         "Under mpirun: give up a process that shows no sign of life for so long (default 300).")
      ->type_name("SECONDS");
}

void add_problem_options(CLI::App& app, AttendArguments& to, const char* heading,
                         const std::function<void()>& own) {
  // `fovea heads` has an argument for several recordings.
  if (app.get_option_no_throw("RECORDING") == nullptr) add_recorded_options(app, to.recorded);
  add_weight_tensor_options(app, to);
  app.option_defaults()->group(heading);
  own();
  add_threads_option(app, to);
  add_mask_options(app, to);
  add_score_options(app, to);
}

void check_problem_usage(const CLI::App& app, const AttendArguments& arguments,
                         const std::vector<std::string>& tensors,
                         const std::vector<OptionText>& outputs) {
  const auto given = [&app](const std::string& option) { return app.count(option) > 0; };
  if (check_recorded_usage(app, std::span(&arguments.recorded.file, 1))) {
    std::vector<OptionText> texts = outputs;
    texts.push_back({"--attention", &arguments.recorded.attention});
    require_values(app, texts, arguments);
    return;
  }
  std::vector<OptionText> texts = texts_of(arguments);
  texts.insert(texts.end(), outputs.begin(), outputs.end());
  require_values(app, texts, arguments);

  std::vector<std::string> missing;
  for (const std::string& option : tensors) {
    if (!given(option)) missing.push_back(option);
  }
  const std::string all =
      fmt::format("{} and {}", fmt::join(tensors.begin(), tensors.end() - 1, ", "), tensors.back());
  if (!given("--input") && !missing.empty()) {
    const bool nothing = missing.size() == tensors.size();
    if (nothing && app.get_option_no_throw("RECORDING") != nullptr) {
      throw UsageError(fmt::format("expected a RECORDING, or {}, or --input FILE", all));
    }
    throw UsageError(
        fmt::format("expected {}, or --input FILE; {} is missing", all, missing.front()));
  }
  if (given("--input") && missing.empty()) {
    throw UsageError(fmt::format("--input: expected no file where {} are given", all));
  }
  require_one_reader(texts_of(arguments));
  for (const char* option : {"--relative-one-way", "--relative-distance"}) {
    if (given(option) && !given("--relative")) {
      throw UsageError(fmt::format("{} goes with --relative TENSOR", option));
    }
  }
}

}  // namespace fovea::cli
