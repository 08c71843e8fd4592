// SPDX-License-Identifier: Apache-2.0
//
// Texts of a map (words.h).

#include "picture/words.h"

#include "fovea/lenses.h"

#include "text/text_width.h"

namespace fovea {

MapWords map_words(const MapSubject& subject, const MapRequest& request, const MapLook& look) {
  const ProblemShape& shape = subject.shape;
  MapWords words;
  words.title = fmt::format("Attention of {}", subject.name);
  if (!subject.model.empty() || !subject.source.empty()) {
    const bool both = !subject.model.empty() && !subject.source.empty();
    words.lines.push_back(
        visible(fmt::format("{}{}{}", subject.model, both ? ", " : "", subject.source)));
  }
  std::string head = fmt::format("head {} of {}", subject.head, shape.q_heads);
  if (subject.some_heads) head = fmt::format("head {}, {} recorded", subject.head, shape.q_heads);
  if (request.heads) {
    head = fmt::format("the {} of {} heads", pool_name(*request.heads), shape.q_heads);
  }
  words.lines.push_back(fmt::format("batch item {} of {}, {}; queries {} of {}, keys {} of {}",
                                    request.batch, shape.batch, head, span_words(request.queries),
                                    shape.q_len, span_words(request.keys), shape.kv_len));
  words.lines.push_back(fmt::format("mask: {}; scores: {}", visible(subject.mask), subject.scores));
  const bool single =
      request.columns == request.keys.size() && request.rows == request.queries.size();
  words.lines.push_back(
      fmt::format("{} x {} cells, {}; colours: {}, {}", request.columns, request.rows,
                  single ? "one for each pair of a key and a query"
                         : fmt::format("the {} of the {} in each", pool_name(request.pool),
                                       subject.values ? "products" : "weights"),
                  look.colors_name, look.tone_name));
  if (subject.values) words.lines.emplace_back("weights multiplied by the norms of their values");
  return words;
}

}  // namespace fovea
