// SPDX-License-Identifier: Apache-2.0
//
// Scores of heads by tokens (fovea/analysis.h). A work item is a head. The keys that each query
// needs follow from the tokens alone; they are found once per batch item.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fovea/analysis.h"

#include "core/fail.h"
#include "engine/call/parallel.h"
#include "recording/pair_weights.h"
#include "recording/tiles.h"

namespace fovea {
namespace recording {
namespace {

// A block is computed as rectangles if a score needs one of this many weights: a rectangle takes
// less than a tenth of the time of single weights.
constexpr std::int64_t kManyPairs = 8;

/// For each query, the earlier keys with its token.
struct Occurrences {
  std::int64_t offset = 0;
  std::int64_t repeated = 0;  // queries that have earlier keys
  // The keys of each token, ascending.
  std::unordered_map<std::int64_t, std::vector<std::int64_t>> keys_of;
  std::vector<std::int64_t> query_ids;

  /// Returns the keys before the query's position.
  std::span<const std::int64_t> before(std::int64_t query) const {
    const auto found = keys_of.find(query_ids[static_cast<std::size_t>(query)]);
    if (found == keys_of.end()) return {};
    const std::vector<std::int64_t>& keys = found->second;
    const auto end = std::lower_bound(keys.begin(), keys.end(), query + offset);
    return {keys.data(), static_cast<std::size_t>(end - keys.begin())};
  }
};

std::int64_t id_at(const TensorView& ids, std::int64_t batch, std::int64_t place) {
  return ids.rank() == 1 ? ids.at<std::int64_t>({place}) : ids.at<std::int64_t>({batch, place});
}

void require_ids(const TensorView& ids, const char* name, std::int64_t batch, std::int64_t length) {
  const bool fits =
      ids.defined() && (ids.shape() == Shape{length} || ids.shape() == Shape{batch, length});
  if (!fits) {
    fail_argument(name, "expected [{}] or [{}, {}], got {}", length, batch, length,
                  ids.defined() ? to_string(ids.shape()) : "nothing");
  }
  if (ids.dtype() != DType::kInt64) {
    fail_argument(name, "expected int64, got {}", dtype_name(ids.dtype()));
  }
}

Occurrences find_occurrences(const RecordedAttention& attention, std::int64_t batch,
                             const TensorView& query_ids, const TensorView& key_ids) {
  const ProblemShape shape = attention.shape();
  Occurrences found;
  found.offset = query_offset(attention.options, shape, batch);
  for (std::int64_t key = 0; key < shape.kv_len; ++key) {
    found.keys_of[id_at(key_ids, batch, key)].push_back(key);
  }
  for (std::int64_t query = 0; query < shape.q_len; ++query) {
    found.query_ids.push_back(id_at(query_ids, batch, query));
  }
  for (std::int64_t query = 0; query < shape.q_len; ++query) {
    if (!found.before(query).empty()) ++found.repeated;
  }
  return found;
}

/// The sums of weights of one score over some queries.
struct ScoreSums {
  double previous = 0.0, duplicate = 0.0, induction = 0.0;
};

/// Returns the keys after `keys`, without those at or after kv_len.
void next_keys(std::span<const std::int64_t> keys, std::int64_t kv_len,
               std::vector<std::int64_t>& next) {
  next.clear();
  for (const std::int64_t key : keys) {
    if (key + 1 < kv_len) next.push_back(key + 1);
  }
}

/// Sums single weights.
ScoreSums sums_by_pairs(const RecordedAttention& attention, const WeightTile& queries,
                        const Occurrences& occurrences, const PairWeights& weights) {
  const std::int64_t kv_len = attention.shape().kv_len;
  ScoreSums sums;
  std::vector<std::int64_t> next;
  for (std::int64_t i = 0; i < queries.queries; ++i) {
    const std::int64_t query = queries.first_query + i;
    const std::int64_t previous = query + occurrences.offset - 1;
    if (previous >= 0 && previous < kv_len) {
      sums.previous += weights.sum(query, std::span(&previous, 1));
    }
    const std::span<const std::int64_t> keys = occurrences.before(query);
    sums.duplicate += weights.sum(query, keys);
    next_keys(keys, kv_len, next);
    sums.induction += weights.sum(query, next);
  }
  return sums;
}

/// Sums weights of rectangles.
ScoreSums sums_by_parts(const RecordedAttention& attention, const WeightTile& queries,
                        const Occurrences& occurrences, PartWeights& weights) {
  ScoreSums sums;
  for_each_part(queries, keys_of_queries(attention, queries), [&](const WeightTile& part) {
    weights.compute(part);
    const std::int64_t end = part.first_key + part.keys;
    for (std::int64_t i = 0; i < part.queries; ++i) {
      const float* const row = weights.row(i);
      const std::int64_t query = part.first_query + i;
      const auto weight = [&](std::int64_t key) {
        return key >= part.first_key && key < end ? static_cast<double>(row[key - part.first_key])
                                                  : 0.0;
      };
      sums.previous += weight(query + occurrences.offset - 1);
      const std::span<const std::int64_t> keys = occurrences.before(query);
      // The keys of the part, and the one before it, whose next key is in the part.
      const auto first = std::lower_bound(keys.begin(), keys.end(), part.first_key - 1);
      const auto last = std::lower_bound(first, keys.end(), end);
      for (auto key = first; key != last; ++key) {
        sums.duplicate += weight(*key);
        sums.induction += weight(*key + 1);
      }
    }
  });
  return sums;
}

/// Returns whether most weights of the queries are needed.
bool needs_most(const RecordedAttention& attention, const WeightTile& queries,
                const Occurrences& occurrences) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < queries.queries; ++i) {
    pairs += static_cast<std::int64_t>(occurrences.before(queries.first_query + i).size());
  }
  const std::int64_t keys = keys_of_queries(attention, queries).size();
  return pairs * kManyPairs > queries.queries * keys;
}

/// Returns the number of queries that have a key before their position.
std::int64_t queries_with_previous(const ProblemShape& shape, std::int64_t offset) {
  // 0 <= i + offset - 1 < kv_len
  const std::int64_t begin = std::clamp<std::int64_t>(1 - offset, 0, shape.q_len);
  const std::int64_t end = std::clamp<std::int64_t>(shape.kv_len + 1 - offset, begin, shape.q_len);
  return end - begin;
}

double mean_of(double sum, std::int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

/// The ids of tokens; token lists without ids have one per text.
class TokenIds {
 public:
  /// Returns the ids of all batch items, [batch, length]; nothing if any have no tokens.
  template <class List>
  std::optional<Tensor> of(const ProblemShape& shape, std::int64_t length, const List& list) {
    Tensor ids(DType::kInt64, {shape.batch, length});
    for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
      const TokenList* const tokens = list(batch);
      if (tokens == nullptr) return {};
      for (std::size_t i = 0; i < tokens->texts.size(); ++i) {
        ids.at<std::int64_t>({batch, static_cast<std::int64_t>(i)}) =
            tokens->ids.empty() ? id_of(tokens->texts[i]) : tokens->ids[i];
      }
    }
    return ids;
  }

 private:
  std::int64_t id_of(const std::string& text) {
    return of_texts_.try_emplace(text, std::ssize(of_texts_)).first->second;
  }

  std::unordered_map<std::string, std::int64_t> of_texts_;
};

}  // namespace
}  // namespace recording

TokenScores token_scores(const RecordedAttention& attention, const TensorView& query_ids,
                         const TensorView& key_ids, const Execution& execution) {
  using namespace recording;
  require_recorded(attention);
  const ProblemShape shape = attention.shape();
  if (attention.kind == AttentionKind::kCross) {
    fail_argument("attention",
                  "expected self-attention, got {}, in which queries and keys are "
                  "different tokens",
                  attention.name);
  }
  require_ids(query_ids, "query_ids", shape.batch, shape.q_len);
  require_ids(key_ids, "key_ids", shape.batch, shape.kv_len);
  std::vector<Occurrences> occurrences;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    occurrences.push_back(find_occurrences(attention, batch, query_ids, key_ids));
  }
  const std::int64_t blocks = (shape.q_len + kPartQueries - 1) / kPartQueries;
  const std::int64_t heads = shape.batch * shape.q_heads;
  std::vector<ScoreSums> sums(static_cast<std::size_t>(heads));
  const int threads = engine::thread_count(execution, heads);
  std::vector<PartWeights> parts(static_cast<std::size_t>(threads),
                                 PartWeights(attention, execution));
  engine::for_each_item(execution, threads, heads, [&](std::int64_t item, int thread) {
    WeightTile queries = {.batch = item / shape.q_heads, .head = item % shape.q_heads};
    const Occurrences& found = occurrences[static_cast<std::size_t>(queries.batch)];
    const PairWeights pairs(attention, queries.batch, queries.head);
    ScoreSums& to = sums[static_cast<std::size_t>(item)];
    for (std::int64_t block = 0; block < blocks; ++block) {
      queries.first_query = block * kPartQueries;
      queries.queries = std::min(kPartQueries, shape.q_len - queries.first_query);
      const ScoreSums more =
          needs_most(attention, queries, found)
              ? sums_by_parts(attention, queries, found, parts[static_cast<std::size_t>(thread)])
              : sums_by_pairs(attention, queries, found, pairs);
      to.previous += more.previous;
      to.duplicate += more.duplicate;
      to.induction += more.induction;
    }
  });
  const Shape of_heads = {shape.batch, shape.q_heads};
  TokenScores result = {.previous = Tensor(DType::kFloat64, of_heads),
                        .duplicate = Tensor(DType::kFloat64, of_heads),
                        .induction = Tensor(DType::kFloat64, of_heads),
                        .repeated = Tensor(DType::kInt64, {shape.batch})};
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const Occurrences& found = occurrences[static_cast<std::size_t>(batch)];
    result.repeated.at<std::int64_t>({batch}) = found.repeated;
    const std::int64_t previous = queries_with_previous(shape, found.offset);
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      const ScoreSums& of_head = sums[static_cast<std::size_t>(batch * shape.q_heads + head)];
      result.previous.at<double>({batch, head}) = mean_of(of_head.previous, previous);
      result.duplicate.at<double>({batch, head}) = mean_of(of_head.duplicate, found.repeated);
      result.induction.at<double>({batch, head}) = mean_of(of_head.induction, found.repeated);
    }
  }
  return result;
}

std::optional<TokenScores> token_scores(const Recording& recording,
                                        const RecordedAttention& attention,
                                        const Execution& execution) {
  recording::TokenIds ids;
  const ProblemShape shape = attention.shape();
  if (attention.kind == AttentionKind::kCross || attention.query->dtype() == DType::kFloat64) {
    return {};
  }
  const auto query_ids = ids.of(shape, shape.q_len, [&](std::int64_t batch) {
    return recording.query_tokens(attention, batch);
  });
  const auto key_ids = ids.of(shape, shape.kv_len, [&](std::int64_t batch) {
    return recording.key_tokens(attention, batch);
  });
  if (!query_ids || !key_ids) return {};
  return token_scores(attention, *query_ids, *key_ids, execution);
}

}  // namespace fovea
