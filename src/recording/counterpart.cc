// SPDX-License-Identifier: Apache-2.0
//
// The same attention in two recordings (fovea/analysis.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "fovea/analysis.h"

#include "core/fail.h"
#include "recording/words.h"
#include "text/text_width.h"

namespace fovea {
namespace recording {
namespace {

/// The tokens of one side of an attention, in both recordings.
struct TokenPair {
  const TokenList* first = nullptr;
  const TokenList* second = nullptr;
};

/// Throws if two lists differ.
void require_same_list(const TokenPair& tokens, const std::string& what, const Recording& first,
                       const Recording& second) {
  if (tokens.first == nullptr || tokens.second == nullptr) return;
  const TokenList &a = *tokens.first, &b = *tokens.second;
  const auto shorter = static_cast<std::size_t>(std::min(a.size(), b.size()));
  const bool ids = !a.ids.empty() && !b.ids.empty();
  for (std::size_t i = 0; i < shorter; ++i) {
    const bool same = a.texts[i] == b.texts[i] && (!ids || a.ids[i] == b.ids[i]);
    if (same) continue;
    const auto word = [&](const TokenList& list) {
      std::string text = fmt::format("\"{}\"", visible(fit(list.texts[i], 24)));
      if (ids && a.texts[i] == b.texts[i]) text += fmt::format(" (id {})", list.ids[i]);
      return text;
    };
    fail("{}: expected the {} tokens of {}, got {} instead of {} at {}", second.path(), what,
         first.path(), word(b), word(a), i);
  }
  if (a.size() != b.size()) {
    fail("{}: expected the {} {} tokens of {}, got {}, of which the first {} are the same",
         second.path(), a.size(), what, first.path(), b.size(), shorter);
  }
}

void require_same_tokens(const RecordedAttention& a, const RecordedAttention& b,
                         const Recording& first, const Recording& second) {
  const std::int64_t batch = std::min(a.shape().batch, b.shape().batch);
  for (std::int64_t item = 0; item < batch; ++item) {
    require_same_list({first.query_tokens(a, item), second.query_tokens(b, item)}, "query", first,
                      second);
    require_same_list({first.key_tokens(a, item), second.key_tokens(b, item)}, "key", first,
                      second);
  }
}

}  // namespace
}  // namespace recording

const RecordedAttention& find_counterpart(const RecordedAttention& attention,
                                          const Recording& first, const Recording& second) {
  for (const RecordedAttention& each : second.attentions()) {
    if (each.name != attention.name) continue;
    recording::require_same_tokens(attention, each, first, second);
    return each;
  }
  fail("{}: expected the attention {} as {} has, got {}", second.path(), attention.name,
       first.path(), recording::recorded_words(second));
}

}  // namespace fovea
