// SPDX-License-Identifier: Apache-2.0
//
// Options for tensors, masks and scores (options.h).

#include "cli/problem/options.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/problem/tensor_options.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"

namespace fovea::cli {
namespace {

/// The options of both commands that take a text.
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

/// Throws where two options read standard input.
void require_one_reader(const std::vector<OptionText>& texts) {
  const char* reader = nullptr;
  for (const OptionText& option : texts) {
    const std::string& text = *option.text;
    const std::size_t comma = std::min(text.find(','), text.size());
    // Of two, as --documents takes them, either may be.
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

/// Those of attend, but for what holds for weights alone.
void add_weight_tensor_options(CLI::App& app, AttendArguments& to) {
  add_tensor_options(app, to);
  app.get_option("--value")->description(
      "Looked at for its shape alone: weights do not depend on it.");
  app.get_option("--input")->description(
      "An .npz or .safetensors file with \"query\" and \"key\", of which those are taken that have "
      "no option of their own. FILE:bf16: they are bfloat16 without a type, as NumPy writes it.");
  app.get_option("--layout")
      ->description("Which dimension comes first: heads (bhld, the default) or length (blhd).");
  app.get_option("--dtype")->description(
      "Convert query and key to this type. f64 is computed by the reference, exactly and some "
      "hundred times as slowly.");
}

}  // namespace

void add_tensor_options(CLI::App& app, AttendArguments& to) {
  // The group's name becomes a heading.
  app.option_defaults()->group("Tensors");
  const auto add = [&app](const char* name, std::string& target, const char* description) {
    app.add_option(name, target, description)->type_name("TENSOR");
  };
  add("--query", to.query, "What asks: [batch, heads, length, dim], or fewer dimensions.");
  add("--key", to.key,
      "What is asked: as many dims as the query; its heads divide the query's, and each serves a "
      "run of them.");
  add("--value", to.value, "What is mixed: heads and length of the key, any dim.");
  app.add_option("--input", to.input,
                 "An .npz or .safetensors file with \"query\", \"key\" and \"value\", of which "
                 "those are taken that have no option of their own. FILE:bf16: all of them are "
                 "bfloat16 without a type, as NumPy writes it.")
      ->type_name("FILE");
  add_choice(app, "--layout", to.length_first, {{"bhld", false}, {"blhd", true}},
             "Which dimension comes first: heads (bhld, the default) or length (blhd), in query, "
             "key, value and context alike.")
      ->type_name("LAYOUT");
  add_choice(app, "--dtype", to.dtype,
             {{"f32", DType::kFloat32},
              {"bf16", DType::kBFloat16},
              {"f16", DType::kFloat16},
              {"f64", DType::kFloat64}},
             "Convert query, key and value to this type, and write the context in it. Default: "
             "each as it is, the context as the query. f64 is computed by the reference, exactly "
             "and some hundred times as slowly.")
      ->type_name("TYPE");
}

void add_mask_options(CLI::App& app, AttendArguments& to) {
  app.option_defaults()->group("Options for masks");
  app.add_flag("--causal", to.causal, "A query sees no key after its own position.");
  app.add_option("--alignment", to.alignment,
                 "Where query 0 stands among the keys: bottom-right (the default: so that the "
                 "last query stands at the last key), top-left (at key 0), or at key OFFSET; one "
                 "offset, or one for each batch item, as numbers or a tensor.")
      ->type_name("WHERE");
  app.add_option("--window", to.window,
                 "A query sees LEFT keys before its position and RIGHT after it; -1: all.")
      ->type_name("LEFT,RIGHT");
  add_integer(
      app, "--prefix", to.prefix, {std::int64_t{0}, kMaxCount},
      "Every query sees the first N keys: beside what --causal lets it see, or only these.");
  app.add_option("--documents", to.documents,
                 "A query sees the keys of its own document: integers [length] or [batch, "
                 "length]. One tensor where queries are as many as keys, else one for each.")
      ->type_name("IDS[,KEY_IDS]");
  app.add_option("--key-lengths", to.key_lengths,
                 "How many keys there are really, the rest being padding: one number, or one for "
                 "each batch item, or a tensor of them.")
      ->type_name("N,...");
  app.add_option("--mask", to.mask,
                 "A tensor of bool, true where a query sees a key, broadcast to [batch, heads, "
                 "queries, keys].")
      ->type_name("TENSOR");
}

void add_score_options(CLI::App& app, AttendArguments& to) {
  app.option_defaults()->group("Options for scores");
  add_real(app, "--scale", to.scale, "The factor on query . key. Default: 1 / sqrt(dim).");
  add_real(app, "--softcap", to.softcap, "Bend scores s to X tanh(s / X).");
  app.add_option("--bias", to.bias,
                 "Floats that are added to the scores, broadcast as --mask; -inf hides.")
      ->type_name("TENSOR");
  const auto set_alibi = [&to](const std::string& slopes) {
    to.alibi = true;
    to.slopes = slopes;
  };
  app.add_option_function<std::string>(
         "--alibi", set_alibi,
         "Subtract SLOPE times the distance of query and key: a slope for each head of queries, as "
         "numbers or a tensor. Without any: those of the paper.")
      ->type_name("[SLOPES]")
      ->expected(0, 1);
  app.add_option("--relative", to.relative,
                 "Add T5's bias by relative position: a table [buckets, heads].")
      ->type_name("TENSOR");
  app.add_flag("--relative-one-way", to.one_way, "Keys ahead share a bucket, as in T5's decoder.");
  add_integer(app, "--relative-distance", to.distance, {std::int64_t{1}, kMaxCount},
              "From this distance on all keys share a bucket (default 128).");
  app.add_option("--sinks", to.sinks,
                 "A logit for each head of queries that joins the denominator only, as numbers "
                 "or a tensor.")
      ->type_name("X,...");
}

void add_threads_option(CLI::App& app, AttendArguments& to) {
  add_integer(app, "--threads", to.threads, {std::int64_t{1}, kMaxThreads},
              "Threads to compute with. Default: one per CPU. The result is the same.");
}

void add_problem_options(CLI::App& app, AttendArguments& to, const char* heading,
                         const std::function<void()>& own) {
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
