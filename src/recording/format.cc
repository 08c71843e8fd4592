// SPDX-License-Identifier: Apache-2.0
//
// The metadata of recordings (format.h).

#include "recording/format.h"

#include <charconv>
#include <system_error>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "json/mask_json.h"
#include "json/score_json.h"
#include "recording/check.h"
#include "text/text_width.h"

namespace fovea::recording {
namespace {

using scene::Json;
using scene::JsonNode;

constexpr AttentionKind kKinds[] = {AttentionKind::kSelf, AttentionKind::kEncoder,
                                    AttentionKind::kDecoder, AttentionKind::kCross};

/// A single list applies to all batch items.
Json token_names_json(const std::vector<std::string>& names) {
  return names.size() == 1 ? Json(names.front()) : Json(names);
}

std::vector<std::string> read_token_names(const JsonNode& attention, const char* key) {
  const auto node = attention.find(key);
  if (!node) return {};
  if (node->is_string()) return {node->string()};
  std::vector<std::string> names;
  for (const JsonNode& each : node->array("the name of a token list, or one per batch item")) {
    names.push_back(each.string());
  }
  return names;
}

/// Returns the name of an attention or token list, which no other one in `names` may have.
std::string read_name(const JsonNode& node, std::string_view what,
                      std::unordered_set<std::string>& names) {
  if (!node.is_object()) node.expected(fmt::format("{}, an object", what));
  const auto name = node.find("name");
  if (!name) node.fail("expected a key \"name\", got none");
  std::string text = name->string();
  if (text.empty()) name->expected("a name that is not empty");
  if (!names.insert(text).second) {
    name->expected(fmt::format("a name that {} before it does not have", what));
  }
  return text;
}

std::vector<TokenList> read_token_lists(const JsonNode& root) {
  std::vector<TokenList> tokens;
  const auto lists = root.find("tokens");
  if (!lists) return tokens;
  std::unordered_set<std::string> names;
  for (const JsonNode& node : lists->array("an array of token lists")) {
    TokenList list{.name = read_name(node, "a token list", names)};
    if (const auto grid = node.find("grid")) {
      const auto extents = grid->integers(1, kMaxIndex);
      if (extents.size() != 2) grid->expected("[rows, columns]");
      list.grid_rows = extents[0];
      list.grid_columns = extents[1];
    }
    tokens.push_back(std::move(list));
  }
  return tokens;
}

RecordedAttention read_attention(const JsonNode& node, std::unordered_set<std::string>& names) {
  RecordedAttention attention;
  attention.name = read_name(node, "an attention", names);
  if (const auto layer = node.find("layer")) attention.layer = layer->integer(0, kMaxIndex);
  if (const auto kind = node.find("kind")) {
    attention.kind = kKinds[kind->choice({"self", "encoder", "decoder", "cross"})];
  }
  attention.query_tokens = read_token_names(node, "query_tokens");
  attention.key_tokens = read_token_names(node, "key_tokens");
  if (const auto heads = node.find("heads")) attention.heads = heads->integers(0, kMaxIndex);
  return attention;
}

/// Checks the version: digits before the first dot.
void check_version(const std::string& text) {
  int major = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), major);
  const bool whole = end == text.data() + text.size() || *end == '.';
  const bool huge = error == std::errc::result_out_of_range && text[0] != '-';
  if (!whole || (!huge && (error != std::errc() || major < 1))) {
    fail_argument(kVersionKey, "expected a version such as \"{}\", got \"{}\"", kVersion,
                  fit(visible(text), 40));
  }
  if (huge || major > 1) {
    fail_argument(kVersionKey,
                  "expected version {}, got version {}, which a newer Fovea has written", kVersion,
                  fit(visible(text), 40));
  }
}

const std::string* find_text(const Metadata& metadata, std::string_view key) {
  for (const auto& [own, text] : metadata) {
    if (own == key) return &text;
  }
  return nullptr;
}

}  // namespace

std::string tensor_name(std::string_view attention, std::string_view what) {
  return fmt::format("{}.{}", attention, what);
}

std::string token_tensor_name(std::string_view list, std::string_view what) {
  return fmt::format("tokens.{}.{}", list, what);
}

Metadata write_metadata(const Heading& heading, const std::vector<RecordedAttention>& attentions,
                        const std::vector<TokenList>& tokens, const OptionNaming& name) {
  Json root = Json::object();
  if (!heading.model.empty()) root["model"] = heading.model;
  root["written_by"] = heading.written_by;
  if (!heading.source.empty()) root["source"] = heading.source;
  root["attentions"] = Json::array();
  for (const RecordedAttention& attention : attentions) {
    const scene::TensorNaming own = [&](std::string_view what, const TensorRef& tensor) {
      return name(attention, what, tensor);
    };
    Json written = {{"name", attention.name},
                    {"layer", attention.layer},
                    {"kind", attention_kind_name(attention.kind)}};
    if (!attention.query_tokens.empty()) {
      written["query_tokens"] = token_names_json(attention.query_tokens);
    }
    if (!attention.key_tokens.empty()) {
      written["key_tokens"] = token_names_json(attention.key_tokens);
    }
    if (!attention.heads.empty()) written["heads"] = attention.heads;
    const AttentionOptions& options = attention.options;
    written["options"] = {{"score", scene::score_json(options.score, own)},
                          {"mask", scene::mask_json(options.mask, own)},
                          {"alignment", scene::alignment_json(options.alignment)}};
    root["attentions"].push_back(std::move(written));
  }
  if (!tokens.empty()) root["tokens"] = Json::array();
  for (const TokenList& list : tokens) {
    Json written = {{"name", list.name}};
    if (list.grid_rows > 0) written["grid"] = {list.grid_rows, list.grid_columns};
    root["tokens"].push_back(std::move(written));
  }
  return {{std::string(kVersionKey), std::string(kVersion)},
          {std::string(kContentKey), root.dump()}};
}

Description read_metadata(const Metadata& metadata) {
  const std::string* version = find_text(metadata, kVersionKey);
  if (version == nullptr) {
    fail("expected a recording, whose metadata has \"{}\", got a file without", kVersionKey);
  }
  check_version(*version);
  const std::string* content = find_text(metadata, kContentKey);
  if (content == nullptr) fail("metadata: expected the key \"{}\", got none", kContentKey);
  Description description{.heading = {},
                          .document = scene::parse_json(*content, kContentKey),
                          .nodes = {},
                          .attentions = {},
                          .tokens = {}};
  const JsonNode root = description.document.root(std::string(kContentKey));
  if (!root.is_object()) root.expected("an object");
  const auto text = [&](const char* key) {
    const auto node = root.find(key);
    return node ? node->string() : std::string();
  };
  description.heading = {text("model"), text("source"), text("written_by")};
  description.tokens = read_token_lists(root);
  const auto attentions = root.find("attentions");
  if (!attentions) root.fail("expected a key \"attentions\", got none");
  description.nodes = attentions->array("an array of attentions");
  std::unordered_set<std::string> names;
  for (const JsonNode& node : description.nodes) {
    description.attentions.push_back(read_attention(node, names));
  }
  return description;
}

AttentionOptions read_options(const JsonNode& node, const RecordedAttention& attention,
                              const scene::TensorLookup& tensors) {
  AttentionOptions options;
  const auto written = node.find("options");
  if (!written) return options;
  const ProblemShape shape = attention.shape();
  // Unknown entries are refused, because they would change the weights.
  written->require_object({"score", "mask", "alignment"});
  if (const auto score = written->find("score")) {
    score->require_object({"scale", "softcap", "bias", "alibi", "relative", "sinks"});
    if (const auto scale = score->find("scale")) options.score.scale = scale->number();
    scene::parse_score_options(*score, shape, options.score, tensors);
  }
  if (const auto mask = written->find("mask")) {
    options.mask = scene::parse_mask(*mask, shape, kMaxIndex, tensors);
  }
  if (const auto alignment = written->find("alignment")) {
    options.alignment = scene::parse_alignment(*alignment, shape);
  }
  scene::at_place(written->find("score").value_or(*written), [&] {
    check_options(options, shape, attention.query->dtype(), attention.query->extent(3));
  });
  return options;
}

}  // namespace fovea::recording
