// SPDX-License-Identifier: Apache-2.0
//
// Masks and scores of `fovea attend` (rules.h).

#include "cli/problem/rules.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/problem/tensor_options.h"
#include "cli/shell/number_list.h"
#include "core/fail.h"
#include "problem/mask_rules.h"
#include "recording/words.h"

namespace fovea::cli {
namespace {

Tensor document_ids(const std::string& spec) {
  const TensorRef ids = read_tensor_option("--documents", spec);
  if (ids->dtype() != DType::kInt64) {
    fail("--documents: {}: expected integers, got {}", spec, dtype_name(ids->dtype()));
  }
  return Tensor(ids.view());
}

/// Reads IDS or IDS,KEY_IDS. A file name may contain a comma, so existing files decide where to
/// split.
void read_documents(const std::string& text, MaskParts& mask) {
  std::error_code error;
  const bool is_one = std::filesystem::exists(text, error);
  for (std::size_t comma = text.find(','); !is_one && comma != std::string::npos;
       comma = text.find(',', comma + 1)) {
    const std::string queries = text.substr(0, comma);
    if (!names_tensor(queries)) continue;
    mask.query_ids = document_ids(queries);
    mask.key_ids = document_ids(text.substr(comma + 1));
    return;
  }
  mask.query_ids = document_ids(text);
  mask.key_ids = mask.query_ids;
}

MaskParts read_mask(const AttendArguments& arguments) {
  MaskParts mask;
  mask.causal = arguments.causal;
  if (arguments.prefix >= 0) mask.prefix = arguments.prefix;
  if (!arguments.window.empty()) {
    const auto sides = parse_numbers<std::int64_t>(arguments.window);
    if (!sides || sides->size() != 2 || (*sides)[0] < -1 || (*sides)[1] < -1) {
      fail("--window: expected LEFT,RIGHT, whole numbers of -1 (no bound) or more, got \"{}\"",
           arguments.window);
    }
    mask.window = {(*sides)[0], (*sides)[1]};
  }
  if (!arguments.documents.empty()) read_documents(arguments.documents, mask);
  if (!arguments.key_lengths.empty()) {
    mask.key_lengths = read_whole_numbers("--key-lengths", arguments.key_lengths);
  }
  if (!arguments.mask.empty()) {
    mask.dense = read_tensor_option("--mask", arguments.mask);
    if (mask.dense->dtype() != DType::kBool) {
      fail(
          "--mask: {}: expected bool, true where a query sees a key, got {}; what is added to "
          "scores is --bias",
          arguments.mask, dtype_name(mask.dense->dtype()));
    }
  }
  return mask;
}

Alignment read_alignment(const std::string& text) {
  if (text.empty() || text == "bottom-right") return Alignment::bottom_right();
  if (text == "top-left") return Alignment::top_left();
  if (!names_tensor(text) && !parse_numbers<std::int64_t>(text)) {
    fail(
        "--alignment: expected bottom-right, top-left, offsets (whole numbers with commas between "
        "them), or the file of a tensor of them, got \"{}\"",
        text);
  }
  return Alignment::offsets(read_whole_numbers("--alignment", text));
}

TensorRef read_floats(const char* option, const std::string& spec, const char* hint) {
  TensorRef tensor = read_tensor_option(option, spec);
  if (is_float(tensor->dtype())) return tensor;
  fail("{}: {}: expected float32, float16, bfloat16 or float64, got {}{}", option, spec,
       dtype_name(tensor->dtype()), tensor->dtype() == DType::kBool ? hint : "");
}

ScoreOptions read_score(const AttendArguments& arguments) {
  ScoreOptions score;
  score.scale = arguments.scale;
  if (arguments.softcap) {
    if (!(*arguments.softcap > 0.0)) {
      fail("--softcap: expected a number above 0, got {}", *arguments.softcap);
    }
    score.softcap = *arguments.softcap;
  }
  if (!arguments.bias.empty()) {
    score.bias = read_floats("--bias", arguments.bias, "; use --mask for a bool mask");
  }
  if (arguments.alibi) {
    score.alibi = Alibi{};
    if (!arguments.slopes.empty()) {
      score.alibi->slopes = read_numbers("--alibi", arguments.slopes);
    }
  }
  if (!arguments.relative.empty()) {
    score.relative = RelativeTable{.table = read_floats("--relative", arguments.relative, ""),
                                   .bidirectional = !arguments.one_way,
                                   .max_distance = arguments.distance};
  }
  if (!arguments.sinks.empty()) score.sinks = read_numbers("--sinks", arguments.sinks);
  return score;
}

std::string bound(std::int64_t keys) { return keys < 0 ? "all" : std::to_string(keys); }

/// Returns the mask of options in words. `mask_name` is the file of the dense part.
std::string words_of(const MaskParts& mask, const std::string& mask_name,
                     const Alignment& alignment) {
  std::vector<std::string> rules;
  const auto add = [&](std::string rule) { rules.push_back(std::move(rule)); };
  if (mask.causal && mask.prefix) {
    add(fmt::format("causal but for the first {} keys", *mask.prefix));
  } else if (mask.causal) {
    add("causal");
  } else if (mask.prefix) {
    add(fmt::format("the first {} keys", *mask.prefix));
  }
  if (mask.window) {
    add(fmt::format("window of {} keys back and {} ahead", bound(mask.window->first),
                    bound(mask.window->second)));
  }
  if (mask.query_ids.defined()) add("each its own document");
  if (mask.key_lengths) add("key lengths " + recording::some_numbers(*mask.key_lengths));
  if (mask.dense.defined()) add("where " + mask_name + " is true");
  if (rules.empty()) return "every query sees every key";
  const bool placed = mask.causal || mask.window;
  if (placed && !alignment.is_bottom_right()) add(recording::alignment_words(alignment));
  return fmt::format("{}", fmt::join(rules, "; "));
}

}  // namespace

Mask MaskParts::joined() const {
  Mask mask = causal_or_prefix(causal, prefix);
  if (window) mask = mask & fovea::window(window->first, window->second);
  if (query_ids.defined()) mask = mask & fovea::documents(query_ids, key_ids);
  if (key_lengths) mask = mask & fovea::key_lengths(*key_lengths);
  if (dense.defined()) mask = mask & fovea::dense(dense);
  return mask;
}

AttentionOptions AttendRules::options() const {
  return {.mask = mask, .score = score, .alignment = alignment};
}

std::string AttendRules::score_words(std::int64_t head_dim) const {
  return recording::score_words(score, head_dim);
}

AttendRules read_rules(const AttendArguments& arguments) {
  const MaskParts mask = read_mask(arguments);
  AttendRules rules = {.mask = mask.joined(),
                       .mask_words = {},
                       .alignment = read_alignment(arguments.alignment),
                       .score = read_score(arguments)};
  rules.mask_words =
      words_of(mask, arguments.mask == "-" ? "standard input" : arguments.mask, rules.alignment);
  return rules;
}

AttendRules recorded_rules(const RecordedAttention& attention) {
  const AttentionOptions& options = attention.options;
  return {.mask = options.mask,
          .mask_words = recording::mask_words(options),
          .alignment = options.alignment,
          .score = options.score};
}

AttendRules read_rules(const AttendArguments& arguments, const AttendInputs& inputs) {
  return inputs.source ? recorded_rules(inputs.source->attention) : read_rules(arguments);
}

InvalidArgument in_words_of_options(const InvalidArgument& error) {
  const std::string_view argument = error.argument();
  // An argument with fields ("tile.queries") is not an option.
  if (argument.empty() || argument.find('.') != std::string_view::npos) return error;
  // "dense mask" is the tensor of --mask. Query, key and value were validated before.
  std::string option = argument == "dense mask" ? "--mask" : fmt::format("--{}", argument);
  std::ranges::replace(option, '_', '-');
  constexpr std::size_t kColon = 2;  // ": "
  return {option, std::string_view(error.what()).substr(argument.size() + kColon)};
}

}  // namespace fovea::cli
