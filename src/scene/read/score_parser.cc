// SPDX-License-Identifier: Apache-2.0
//
// Parses the score of a scene: kind, scale and score options (scene_parser.h).

#include <fmt/format.h>

#include "fovea/error.h"

#include "json/score_json.h"
#include "scene/read/scene_parser.h"

namespace fovea::scene {
namespace {

class ScoreParser {
 public:
  ScoreParser(const ScoreShape& shape, Drawer& drawer, Scene& scene)
      : shape_(shape), drawer_(drawer), scene_(scene) {}

  void parse(const std::optional<JsonNode>& node) {
    const std::vector<std::string> kinds = {"dot", "general", "additive"};
    std::size_t kind = 0;
    if (node && node->is_string()) {
      kind = node->choice(kinds);
      if (kind != 0) node->fail("expected an object with this kind's weights, got only its name");
    } else if (node) {
      if (!node->is_object()) node->expected("\"dot\" or an object");
      node->require_object({"kind", "scale", "softcap", "bias", "alibi", "relative", "sinks",
                            "weights", "query_weights", "key_weights", "v"});
      if (const auto given = node->find("kind")) kind = given->choice(kinds);
    }
    const bool has_object = node && node->is_object();
    parse_kind(node, kind);
    if (const auto scale = has_object ? node->find("scale") : std::nullopt) {
      if (scale->is_string() && scale->string() == "1/sqrt(head_dim)") {
        scene_.scale_text = scale->string();
      } else {
        if (!scale->is_number()) scale->expected("a finite number or \"1/sqrt(head_dim)\"");
        scene_.options.score.scale = scale->number();
      }
    } else if (kind == 0) {
      scene_.scale_text = "1/sqrt(head_dim)";
    } else {
      scene_.options.score.scale = 1.0;
    }
    if (scene_.scale_text.empty()) {
      scene_.scale_text = fmt::format("{}", *scene_.options.score.scale);
    }
    // Whoever writes a softcap into a scene by hand wants one.
    if (const auto softcap = has_object ? node->find("softcap") : std::nullopt) {
      if (!(softcap->number() > 0)) softcap->expected("a number above 0");
    }
    if (has_object) parse_score_options(*node, shape_.problem, scene_.options.score);
  }

 private:
  void parse_kind(const std::optional<JsonNode>& node, std::size_t kind) {
    const auto part = [&](const char* name, std::size_t of_kind) {
      const auto given = node && node->is_object() ? node->find(name) : std::nullopt;
      if (given && kind != of_kind) {
        given->fail(
            fmt::format("only the {} score has this key", of_kind == 1 ? "general" : "additive"));
      }
      if (!given && kind == of_kind) {
        node->fail(fmt::format("expected a key \"{}\" for this kind of score, got none", name));
      }
      return given;
    };
    const auto weights = part("weights", 1);
    const auto query_weights = part("query_weights", 2);
    const auto key_weights = part("key_weights", 2);
    const auto v = part("v", 2);
    if (kind == 0) {
      if (shape_.head_dim != shape_.key_dim) {
        throw InvalidArgument(
            fmt::format("{}: expected heads of width {}, as {} has, for dot scores, got {}",
                        shape_.key_place, shape_.head_dim, shape_.query_name, shape_.key_dim));
      }
    } else if (kind == 1) {
      Tensor w = drawer_.matrix(*weights, shape_.head_dim, "one per number of a query head",
                                shape_.key_dim, Drawn::kScore);
      if (w.extent(1) != shape_.key_dim) {
        weights->fail(fmt::format("expected {} columns, one per key column, got {}", shape_.key_dim,
                                  w.extent(1)));
      }
      scene_.score_kind = reference::GeneralScore{std::move(w)};
    } else {
      Tensor w = drawer_.matrix(*query_weights, shape_.head_dim, "one per number of a query head",
                                shape_.head_dim, Drawn::kScore);
      Tensor u = drawer_.matrix(*key_weights, shape_.key_dim, "one per number of a key head",
                                w.extent(1), Drawn::kScore);
      Tensor v_values = drawer_.vector(*v, w.extent(1));
      if (u.extent(1) != w.extent(1) || v_values.extent(0) != w.extent(1)) {
        node->fail(
            fmt::format("expected one hidden width: query_weights {} and key_weights {} the "
                        "same columns, v as many numbers, got {} in v",
                        to_string(w.shape()), to_string(u.shape()), v_values.extent(0)));
      }
      const ProblemShape& p = shape_.problem;
      const std::int64_t hidden = p.batch * p.q_heads * p.q_len * p.kv_len * w.extent(1);
      if (hidden > kMaxHidden) {
        node->fail(fmt::format(
            "expected at most {} hidden numbers (scores * hidden width), since every step is kept, "
            "got {}",
            kMaxHidden, hidden));
      }
      scene_.score_kind = reference::AdditiveScore{std::move(w), std::move(u), std::move(v_values)};
    }
  }

  const ScoreShape& shape_;
  Drawer& drawer_;
  Scene& scene_;
};

}  // namespace

void parse_score(const std::optional<JsonNode>& node, const ScoreShape& shape, Drawer& drawer,
                 Scene& scene) {
  ScoreParser(shape, drawer, scene).parse(node);
}

}  // namespace fovea::scene
