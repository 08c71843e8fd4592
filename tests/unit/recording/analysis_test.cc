// SPDX-License-Identifier: Apache-2.0
//
// Rollout, token scores and value-weighted attention, each against its definition in float64.

#include "fovea/analysis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "problem/cells.h"
#include "support/message_of.h"
#include "support/option_sets.h"
#include "support/random_problem.h"
#include "support/recorded.h"
#include "support/visible.h"

namespace fovea::test {
namespace {

/// Returns the attention of a layer, with numbers that differ from those of other layers.
RecordedAttention normal_attention(const ProblemShape& shape, const AttentionOptions& options,
                                   std::int64_t layer = 0) {
  RecordedAttention attention = recorded(
      stored_problem(shape, 16, 4, InputKind::kNormal, static_cast<std::uint64_t>(layer) + 1),
      options);
  attention.name = "layers." + std::to_string(layer);
  attention.layer = layer;
  return attention;
}

// ---- rollout ------------------------------------------------------------------------------------

using Matrix = std::vector<std::vector<double>>;

/// Returns r I + (1 - r) W, with W averaged over heads.
Matrix mixing_matrix(const RecordedAttention& layer, std::int64_t batch, double residual) {
  const OracleWeights weights(layer);
  const ProblemShape shape = layer.shape();
  const auto n = static_cast<std::size_t>(shape.q_len);
  Matrix result(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      const std::span<const double> row = weights.row(batch, head, static_cast<std::int64_t>(i));
      for (std::size_t j = 0; j < n; ++j) {
        result[i][j] += (1.0 - residual) * row[j] / static_cast<double>(shape.q_heads);
      }
    }
    result[i][i] += residual;
  }
  return result;
}

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix result(a.size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      for (std::size_t j = 0; j < a.size(); ++j) result[i][j] += a[i][k] * b[k][j];
    }
  }
  return result;
}

/// Checks all layers of a rollout against products of whole matrices, as the paper has them.
void expect_rollout(const std::vector<RecordedAttention>& layers, const RolloutRequest& request) {
  std::vector<const RecordedAttention*> pointers;
  double error = 0.0;
  for (const RecordedAttention& layer : layers) {
    pointers.push_back(&layer);
    // Shares are sums of products of one weight of each layer, all of them positive; sums over
    // queries of a part are rounded to float32.
    error += weight_error(layer) + 192.0 * 0x1p-24;
  }
  const Tensor found = attention_rollout(pointers, request);
  const std::int64_t tokens = layers.front().shape().q_len;
  ASSERT_EQ(found.shape(), (Shape{static_cast<std::int64_t>(layers.size()), tokens}));
  Matrix product;
  for (std::size_t l = layers.size(); l-- > 0;) {
    const Matrix mixing = mixing_matrix(layers[l], request.batch, request.residual);
    product = product.empty() ? mixing : times(product, mixing);
    const std::vector<double>& expected = product[static_cast<std::size_t>(request.query)];
    for (std::int64_t token = 0; token < tokens; ++token) {
      const double share = expected[static_cast<std::size_t>(token)];
      ASSERT_NEAR(found.value({static_cast<std::int64_t>(l), token}), share, error * share + 1e-30)
          << l << " " << token;
    }
  }
}

TEST(AttentionRollout, MatchesTheProductOfMatrices) {
  const ProblemShape shape{2, 4, 2, 210, 210};
  for (const OptionSet& set : option_sets({2, 4, 2, 210, 210})) {
    if (set.name == "dense") continue;  // has sinks of six heads
    SCOPED_TRACE(set.name);
    expect_rollout({normal_attention(shape, set.options), normal_attention(shape, set.options, 1),
                    normal_attention(shape, set.options, 2)},
                   {.batch = 1, .query = 205});
  }
}

TEST(AttentionRollout, MixesKindsOfLayers) {
  const AttentionOptions sinks = {.mask = causal(), .score = {.sinks = {1.0, -1.0, 0.0, 2.0}}};
  expect_rollout({normal_attention({1, 2, 1, 30, 30}, {.mask = causal()}),
                  normal_attention({1, 4, 4, 30, 30}, sinks, 1),
                  normal_attention({1, 3, 1, 30, 30}, {.mask = window(3, 0)}, 2)},
                 {.query = 17, .residual = 0.25});
}

TEST(AttentionRollout, ClosedForms) {
  const RecordedAttention first = normal_attention({1, 2, 1, 20, 20}, {.mask = causal()});
  const RecordedAttention second = normal_attention({1, 2, 1, 20, 20}, {.mask = causal()}, 1);
  const RecordedAttention* const layers[] = {&first, &second};
  // Nothing leaves a token.
  const Tensor stays = attention_rollout(layers, {.query = 5, .residual = 1.0});
  for (std::int64_t token = 0; token < 20; ++token) {
    EXPECT_EQ(stays.value({0, token}), token == 5 ? 1.0 : 0.0);
  }
  // Equal weights: a query of zeros attends to all keys equally.
  RandomProblem even({1, 1, 1, 4, 4}, 2, 2);
  fill(even.query, 0.0);
  for (Tensor* tensor : {&even.query, &even.key, &even.value}) *tensor = stored(*tensor);
  const RecordedAttention uniform = recorded(std::move(even), {});
  const RecordedAttention* const one[] = {&uniform};
  const Tensor found = attention_rollout(one, {.query = 1});
  for (std::int64_t token = 0; token < 4; ++token) {
    EXPECT_NEAR(found.value({0, token}), token == 1 ? 0.625 : 0.125, 1e-6);
  }
}

TEST(AttentionRollout, AnyNumberOfThreadsGivesTheSameBits) {
  const RecordedAttention first = normal_attention({1, 3, 1, 700, 700}, {.mask = causal()});
  const RecordedAttention second = normal_attention({1, 3, 1, 700, 700}, {.mask = causal()}, 1);
  const RecordedAttention* const layers[] = {&first, &second};
  const Tensor one = attention_rollout(layers, {.query = 690}, {.threads = 1});
  for (const int threads : {2, 5}) {
    EXPECT_TRUE(same_bits(one, attention_rollout(layers, {.query = 690}, {.threads = threads})));
  }
}

TEST(AttentionRollout, ProgressCountsAllLayers) {
  const RecordedAttention first = normal_attention({1, 3, 1, 20, 20}, {.mask = causal()});
  const RecordedAttention second = normal_attention({1, 3, 1, 20, 20}, {.mask = causal()}, 1);
  const RecordedAttention* const layers[] = {&first, &second};
  std::int64_t last = 0, total = 0;
  attention_rollout(layers, {}, {.progress = [&](std::int64_t done, std::int64_t of) {
                      EXPECT_GE(done, last);
                      last = done;
                      total = of;
                    }});
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, 6);
}

TEST(AttentionRollout, RefusesWhatDoesNotFit) {
  const RecordedAttention layer = normal_attention({1, 2, 1, 20, 20}, {.mask = causal()});
  const RecordedAttention longer = normal_attention({1, 2, 1, 21, 21}, {.mask = causal()}, 1);
  const RecordedAttention oblong = normal_attention({1, 2, 1, 20, 21}, {});
  const auto message = [&](std::vector<const RecordedAttention*> layers,
                           const RolloutRequest& request) {
    return message_of([&] { attention_rollout(layers, request); });
  };
  EXPECT_EQ(message({}, {}), "layers: expected at least one attention, got none");
  EXPECT_EQ(message({nullptr}, {}), "layers: expected attentions, got a null pointer");
  EXPECT_EQ(message({&layer, &longer}, {}),
            "layers: expected batch 1 and 20 tokens as layers.0 has, got layers.1 with 1 and 21");
  EXPECT_EQ(message({&layer, &layer}, {}),
            "layers: expected each layer of one stack once, got layer 0 twice: layers.0, layers.0");
  EXPECT_EQ(message({&oblong}, {}),
            "layers: expected self-attention with as many keys as queries, got layers.0 with 20 "
            "queries and 21 keys");
  EXPECT_EQ(message({&layer}, {.query = 20}), "query: expected 0 or more and less than 20, got 20");
  EXPECT_EQ(message({&layer}, {.batch = -1}), "batch: expected 0 or more and less than 1, got -1");
  EXPECT_EQ(message({&layer}, {.residual = 1.5}),
            "residual: expected a number from 0 to 1, got 1.5");
}

// ---- token scores -------------------------------------------------------------------------------

struct ScoresOfHead {
  double previous = 0.0, duplicate = 0.0, induction = 0.0;
  std::int64_t repeated = 0;
};

/// Returns the scores of one head by definition.
ScoresOfHead scores_by_definition(const RecordedAttention& attention, const OracleWeights& weights,
                                  std::int64_t batch, std::int64_t head, const Tensor& query_ids,
                                  const Tensor& key_ids) {
  const ProblemShape shape = attention.shape();
  const std::int64_t offset = query_offset(attention.options, shape, batch);
  const auto id = [&](const Tensor& ids, std::int64_t at) {
    return ids.rank() == 1 ? ids.at<std::int64_t>({at}) : ids.at<std::int64_t>({batch, at});
  };
  ScoresOfHead sums;
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < shape.q_len; ++i) {
    const std::span<const double> row = weights.row(batch, head, i);
    const auto weight = [&](std::int64_t j) {
      return j >= 0 && j < shape.kv_len ? row[static_cast<std::size_t>(j)] : 0.0;
    };
    const std::int64_t position = i + offset;
    if (position >= 1 && position <= shape.kv_len) {
      sums.previous += weight(position - 1);
      ++rows;
    }
    bool repeated = false;
    for (std::int64_t j = 0; j < std::min(position, shape.kv_len); ++j) {
      if (id(key_ids, j) != id(query_ids, i)) continue;
      repeated = true;
      sums.duplicate += weight(j);
      sums.induction += weight(j + 1);
    }
    if (repeated) ++sums.repeated;
  }
  sums.previous /= static_cast<double>(rows);
  sums.duplicate /= static_cast<double>(sums.repeated);
  sums.induction /= static_cast<double>(sums.repeated);
  return sums;
}

void expect_scores(const RecordedAttention& attention, const Tensor& query_ids,
                   const Tensor& key_ids) {
  const TokenScores found = token_scores(attention, query_ids, key_ids);
  const OracleWeights weights(attention);
  const ProblemShape shape = attention.shape();
  // Every score is a mean of sums of weights that are at most 1.
  const double error = weight_error(attention);
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      const ScoresOfHead expected =
          scores_by_definition(attention, weights, batch, head, query_ids, key_ids);
      EXPECT_EQ(found.repeated.at<std::int64_t>({batch}), expected.repeated);
      EXPECT_NEAR(found.previous.value({batch, head}), expected.previous, error);
      EXPECT_NEAR(found.duplicate.value({batch, head}), expected.duplicate, error);
      EXPECT_NEAR(found.induction.value({batch, head}), expected.induction, error);
    }
  }
}

TEST(AttentionTokenScores, MatchTheDefinitionForAllOptions) {
  // A vocabulary of 3 needs most weights, one of 200 only a few.
  for (const std::int64_t vocabulary : {3, 200}) {
    const Tensor keys = RandomState(1).randint(0, vocabulary, {2, 700});
    const Tensor queries = RandomState(2).randint(0, vocabulary, {2, 200});
    for (const OptionSet& set : option_sets()) {
      SCOPED_TRACE(set.name);
      expect_scores(normal_attention(kOptionShape, set.options), queries, keys);
    }
  }
}

TEST(AttentionTokenScores, MatchTheDefinitionForAlignments) {
  const Tensor ids = RandomState(1).randint(0, 9, {60});
  const Tensor few = RandomState(2).randint(0, 9, {20});
  for (const Alignment& alignment :
       {Alignment::bottom_right(), Alignment::top_left(), Alignment::offset(-7)}) {
    const AttentionOptions options = {.mask = causal(), .alignment = alignment};
    expect_scores(normal_attention({1, 2, 1, 20, 60}, options), few, ids);
    expect_scores(normal_attention({1, 2, 1, 60, 20}, options), ids, few);
    expect_scores(normal_attention({1, 2, 1, 60, 60}, {.alignment = alignment}), ids, ids);
  }
}

TEST(AttentionTokenScores, FindAnInductionHead) {
  // Keys carry the previous token, queries their own: the weights are on what followed the token.
  constexpr std::int64_t kTokens = 8, kLength = 16;
  RandomProblem problem({1, 1, 1, kLength, kLength}, kTokens, 1);
  std::vector<std::int64_t> text;
  for (std::int64_t i = 0; i < kLength; ++i) text.push_back(i % kTokens);
  fill(problem.query, 0.0);
  fill(problem.key, 0.0);
  for (std::int64_t i = 0; i < kLength; ++i) {
    set_value(problem.query, {0, 0, i, i % kTokens}, 64.0);
    if (i > 0) set_value(problem.key, {0, 0, i, (i - 1) % kTokens}, 1.0);
  }
  for (Tensor* tensor : {&problem.query, &problem.key, &problem.value}) *tensor = stored(*tensor);
  const Tensor ids = Tensor::from<std::int64_t>({kLength}, text);
  const TokenScores found =
      token_scores(recorded(std::move(problem), {.mask = causal()}), ids, ids);
  EXPECT_NEAR(found.induction.value({0, 0}), 1.0, 1e-6);
  EXPECT_NEAR(found.duplicate.value({0, 0}), 0.0, 1e-6);
  EXPECT_EQ(found.repeated.at<std::int64_t>({0}), kLength - kTokens);
}

TEST(AttentionTokenScores, AreNanWithoutRepetition) {
  std::vector<std::int64_t> text;
  for (std::int64_t i = 0; i < 20; ++i) text.push_back(i);
  const Tensor ids = Tensor::from<std::int64_t>({20}, text);
  const TokenScores found =
      token_scores(normal_attention({1, 2, 1, 20, 20}, {.mask = causal()}), ids, ids);
  EXPECT_EQ(found.repeated.at<std::int64_t>({0}), 0);
  EXPECT_TRUE(std::isnan(found.induction.value({0, 1})));
  EXPECT_TRUE(std::isnan(found.duplicate.value({0, 1})));
  EXPECT_FALSE(std::isnan(found.previous.value({0, 1})));
}

TEST(AttentionTokenScores, AnyNumberOfThreadsGivesTheSameBits) {
  const RecordedAttention attention = normal_attention({2, 3, 1, 300, 300}, {.mask = causal()});
  const Tensor ids = RandomState(1).randint(0, 40, {300});
  const TokenScores one = token_scores(attention, ids, ids, {.threads = 1});
  const TokenScores more = token_scores(attention, ids, ids, {.threads = 4});
  EXPECT_TRUE(same_bits(one.induction, more.induction));
  EXPECT_TRUE(same_bits(one.duplicate, more.duplicate));
  EXPECT_TRUE(same_bits(one.previous, more.previous));
}

TEST(AttentionTokenScores, RefusesWhatDoesNotFit) {
  RecordedAttention attention = normal_attention({1, 2, 1, 20, 30}, {});
  const Tensor queries(DType::kInt64, {20}), keys(DType::kInt64, {30});
  const auto message = [&](const TensorView& query_ids, const TensorView& key_ids) {
    return message_of([&] { token_scores(attention, query_ids, key_ids); });
  };
  EXPECT_EQ(message(keys, keys), "query_ids: expected [20] or [1, 20], got [30]");
  EXPECT_EQ(message(queries, {}), "key_ids: expected [30] or [1, 30], got nothing");
  EXPECT_EQ(message(queries, Tensor(DType::kFloat32, {30})),
            "key_ids: expected int64, got float32");
  attention.kind = AttentionKind::kCross;
  EXPECT_EQ(message(queries, keys),
            "attention: expected self-attention, got layers.0, in which queries and keys are "
            "different tokens");
}

// ---- values -------------------------------------------------------------------------------------

TEST(AttentionValueWeighted, NormsOfValues) {
  const RecordedAttention attention = normal_attention({2, 4, 2, 5, 9}, {});
  const Tensor projection = RandomState(7).randn({4, 4, 6});
  const Tensor plain = value_norms(attention);
  const Tensor projected = value_norms(attention, projection);
  for_each_index(plain.shape(), [&](const Index& at) {
    double sum = 0.0, projected_sum = 0.0;
    const auto value = [&](std::int64_t d) {
      return attention.value->value({at[0], at[1] / 2, at[2], d});
    };
    for (std::int64_t d = 0; d < 4; ++d) sum += value(d) * value(d);
    for (std::int64_t m = 0; m < 6; ++m) {
      double one = 0.0;
      for (std::int64_t d = 0; d < 4; ++d) one += value(d) * projection.value({at[1], d, m});
      projected_sum += one * one;
    }
    ASSERT_NEAR(plain.value(at), std::sqrt(sum), 0x1p-23 * std::sqrt(sum));
    ASSERT_NEAR(projected.value(at), std::sqrt(projected_sum), 0x1p-23 * std::sqrt(projected_sum));
  });
}

TEST(AttentionValueWeighted, MapsMatchTheDefinition) {
  for (const OptionSet& set : option_sets()) {
    SCOPED_TRACE(set.name);
    const RecordedAttention attention = normal_attention(kOptionShape, set.options);
    const OracleWeights weights(attention);
    const Tensor norms = value_norms(attention);
    const double error = weight_error(attention) + 0x1p-22;
    for (const Pool pool : {Pool::kSum, Pool::kMean, Pool::kMax}) {
      const MapRequest request = {.batch = 1,
                                  .head = 4,
                                  .queries = {3, 199},
                                  .keys = {5, 690},
                                  .rows = 7,
                                  .columns = 31,
                                  .pool = pool};
      const MapCells map = value_weighted_map(attention, norms, request);
      for (std::int64_t row = 0; row < map.rows(); ++row) {
        for (std::int64_t column = 0; column < map.columns(); ++column) {
          const IndexRange queries = map.queries_of(row), keys = map.keys_of(column);
          double sum = 0.0, largest = 0.0;
          std::int64_t pairs = 0;
          for (std::int64_t q = queries.begin; q < queries.end; ++q) {
            ScorePosition at = {.batch = 1, .head = 4, .query = q};
            at.offset = query_offset(attention.options, attention.shape(), 1);
            for (at.key = keys.begin; at.key < keys.end; ++at.key) {
              const double product = weights.row(1, 4, q)[static_cast<std::size_t>(at.key)] *
                                     norms.value({1, 4, at.key});
              sum += product;
              largest = std::max(largest, product);
              if (is_visible(attention.options, at)) ++pairs;
            }
          }
          ASSERT_EQ(map.pairs.at<std::int64_t>({row, column}), pairs);
          const double got = map.value(row, column);
          if (pool == Pool::kMean && pairs == 0) {
            ASSERT_TRUE(std::isnan(got));
            continue;
          }
          const double expected = pool == Pool::kSum   ? sum
                                  : pool == Pool::kMax ? largest
                                                       : sum / static_cast<double>(pairs);
          ASSERT_NEAR(got, expected, error * expected + 1e-37);
        }
      }
    }
  }
}

TEST(AttentionValueWeighted, RowsMatchTheDefinition) {
  const RecordedAttention attention =
      normal_attention(kOptionShape, {.mask = causal(), .score = {.sinks = {0, 1, 2, 3, 4, 5}}});
  const OracleWeights weights(attention);
  const Tensor norms = value_norms(attention);
  const Tensor all = value_weighted_row(attention, norms, {.batch = 1, .query = 77});
  const Tensor one = value_weighted_row(attention, norms, {.batch = 1, .head = 2, .query = 77});
  const double error = weight_error(attention) + 0x1p-22;
  for (std::int64_t head = 0; head < 6; ++head) {
    for (std::int64_t key = 0; key < 700; ++key) {
      const double expected =
          weights.row(1, head, 77)[static_cast<std::size_t>(key)] * norms.value({1, head, key});
      ASSERT_NEAR(all.value({head, key}), expected, error * expected + 1e-37);
    }
  }
  for (std::int64_t key = 0; key < 700; ++key) {
    ASSERT_NEAR(one.value({key}), all.value({2, key}), error * all.value({2, key}));
  }
}

TEST(AttentionValueWeighted, AnyNumberOfThreadsGivesTheSameBits) {
  const RecordedAttention attention = normal_attention(kOptionShape, {.mask = causal()});
  const Tensor norms = value_norms(attention);
  const MapRequest request = {.queries = {0, 200}, .keys = {0, 700}, .rows = 50, .columns = 70};
  const MapCells one = value_weighted_map(attention, norms, request, {.threads = 1});
  const MapCells more = value_weighted_map(attention, norms, request, {.threads = 3});
  EXPECT_TRUE(same_bits(one.cells, more.cells));
}

TEST(AttentionValueWeighted, RefusesWhatDoesNotFit) {
  RecordedAttention attention = normal_attention({1, 2, 1, 20, 30}, {});
  const Tensor norms = value_norms(attention);
  const MapRequest good = {.queries = {0, 20}, .keys = {0, 30}, .rows = 2, .columns = 3};
  const auto message = [&](const TensorView& of, const MapRequest& request) {
    return message_of([&] { value_weighted_map(attention, of, request); });
  };
  EXPECT_EQ(message({}, good),
            "norms: expected [batch, q_heads, kv_len] = [1, 2, 30], got nothing");
  EXPECT_EQ(message(Tensor(DType::kFloat64, {1, 2, 30}), good),
            "norms: expected float32, got float64");
  MapRequest bad = good;
  bad.head = 2;
  EXPECT_EQ(message(norms, bad), "request.head: expected 0 to 1, got 2");
  bad = good;
  bad.columns = 31;
  EXPECT_EQ(message(norms, bad), "request.columns: expected 1 to 30, got 31");
  bad = good;
  bad.keys = {0, 31};
  EXPECT_EQ(message(norms, bad),
            "request.keys: expected a range within 0 to 30 of at least 1, got 0 to before 31");
  bad = good;
  bad.heads = Pool::kMean;
  EXPECT_EQ(message(norms, bad), "request.heads: expected one head, got several");
  bad = good;
  bad.statistics = true;
  EXPECT_EQ(message(norms, bad), "request.statistics: expected no statistics and no top keys");
  EXPECT_EQ(message_of([&] {
              value_norms(attention, Tensor(DType::kFloat32, {2, 3, 9}));
            }),
            "projection: expected floats [2, 4, model_dim], got float32 [2, 3, 9]");
  attention.value = {};
  EXPECT_EQ(message_of([&] { value_norms(attention); }),
            "value: expected an attention that was recorded with values, got layers.0, which has "
            "none");
}

}  // namespace
}  // namespace fovea::test
