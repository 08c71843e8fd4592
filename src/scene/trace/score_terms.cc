// SPDX-License-Identifier: Apache-2.0
//
// Looks up the rows behind a score in the steps of a trace (score_terms.h). Only q W of the general
// score is computed here, because it is not a step.

#include "scene/trace/score_terms.h"

#include <variant>

namespace fovea::scene {

std::optional<Operand> operand(const TraceModel& model, std::string_view name, std::int64_t head,
                               const Focus& token) {
  const Scene& scene = model.scene();
  const bool keys = name != "query";
  const std::int64_t heads = keys ? scene.kv_heads : scene.heads;
  if (keys) head /= scene.heads / scene.kv_heads;
  const Step* step = model.find(name);
  const bool projected = step != nullptr;
  if (!projected) step = model.find(keys && scene.source ? "source_embeddings" : "embeddings");
  if (step == nullptr) return std::nullopt;

  const StepLayout layout = model.layout(*step);
  const std::int64_t dim = projected ? layout.cols : layout.cols / heads;
  const std::int64_t first = projected ? 0 : head * dim;
  Operand out{{}, step};
  for (std::int64_t d = 0; d < dim; ++d) {
    out.numbers.push_back(layout.at(token.item, projected ? head : 0, 0, token.index, first + d));
  }
  return out;
}

ScoreTerms score_terms(const TraceModel& model, std::int64_t head, const Focus& query,
                       std::int64_t key) {
  const Scene& scene = model.scene();
  ScoreTerms out;
  if (const auto* additive = std::get_if<reference::AdditiveScore>(&scene.score_kind)) {
    const Step* hidden = model.find("hidden");
    if (hidden == nullptr) return out;
    const StepLayout layout = model.layout(*hidden);
    out.right = &model.numbers(*hidden);
    for (std::int64_t d = 0; d < layout.cols; ++d) {
      out.factors.emplace_back(additive->v->value({d}),
                               layout.at(query.item, head, query.index, key, d));
    }
    return out;
  }

  auto left = operand(model, "query", head, query);
  const auto right = operand(model, "key", head, {query.item, key});
  if (!left || !right) return out;
  out.left = &model.numbers(*left->step);
  out.right = &model.numbers(*right->step);
  if (const auto* general = std::get_if<reference::GeneralScore>(&scene.score_kind)) {
    std::vector<double> moved(right->numbers.size());
    for (std::size_t e = 0; e < moved.size(); ++e) {
      for (std::size_t d = 0; d < left->numbers.size(); ++d) {
        moved[e] += left->numbers[d] * general->weights->value({static_cast<std::int64_t>(d),
                                                                static_cast<std::int64_t>(e)});
      }
    }
    left->numbers = std::move(moved);
    out.left = nullptr;
  }
  for (std::size_t d = 0; d < right->numbers.size(); ++d) {
    out.factors.emplace_back(left->numbers[d], right->numbers[d]);
  }
  return out;
}

}  // namespace fovea::scene
