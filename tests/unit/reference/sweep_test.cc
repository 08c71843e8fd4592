// SPDX-License-Identifier: Apache-2.0
//
// The reference against an independent computation: plain float64 loops with their own
// broadcasting, masks, buckets, slopes and softmax, which share only tensors and the random stream
// with the library. Compares every step of hundreds of random combinations of options; the number
// of a combination is its seed.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "support/limits.h"
#include "support/random_problem.h"

namespace fovea::reference {
namespace {

using test::kInfinity;

using Integers = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

constexpr std::int64_t kSweepHeadDim = 5, kSweepValueDim = 3, kSweepHiddenDim = 6;
// With this distance, only the first logarithmic bucket starts at a whole number.
constexpr std::int64_t kMaxDistance = 20;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// A query and a key; `position` is the query's position among the keys.
struct Pair {
  std::int64_t batch, head, query, key, position;
};

/// A mask, its predicate, and the key length per item, if the mask sets one; the default alignment
/// then uses this length.
struct Rule {
  Mask mask;
  std::function<bool(const Pair&)> sees;
  std::optional<Integers> lengths = {};
};

Rule both(const Rule& a, const Rule& b) {
  std::optional<Integers> lengths = a.lengths ? a.lengths : b.lengths;
  for (std::size_t item = 0; a.lengths && b.lengths && item < lengths->size(); ++item)
    (*lengths)[item] = std::min((*a.lengths)[item], (*b.lengths)[item]);
  return {a.mask & b.mask, [a, b](const Pair& p) { return a.sees(p) && b.sees(p); }, lengths};
}

Rule either(const Rule& a, const Rule& b) {
  return {a.mask | b.mask, [a, b](const Pair& p) { return a.sees(p) || b.sees(p); }};
}

/// Returns an element of a tensor that is broadcast along missing dimensions and those of extent 1.
template <class T>
T spread(const Tensor& tensor, const Integers& place) {
  std::int64_t flat = 0;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    const std::int64_t index = place[place.size() - at(tensor.rank() - dim)];
    flat = flat * tensor.extent(dim) + index % tensor.extent(dim);
  }
  return tensor.span<T>()[at(flat)];
}

Integers drawn_integers(RandomState& random, std::int64_t count, std::int64_t low,
                        std::int64_t high) {
  Integers result(at(count));
  for (std::int64_t& one : result) one = random.randint(low, high + 1);
  return result;
}

Shape drawn_shape(RandomState& random, const ProblemShape& p) {
  const auto [b, h, q, k] = std::array{p.batch, p.q_heads, p.q_len, p.kv_len};
  const std::array<Shape, 10> shapes = {Shape{k},     {1},         {q, k},       {q, 1},
                                        {h, q, k},    {h, 1, 1},   {b, h, q, k}, {b, h, q, k},
                                        {b, 1, 1, k}, {1, h, q, 1}};
  return shapes[at(random.randint(0, 10))];
}

constexpr std::int64_t kRules = 7;

Rule drawn_rule(std::int64_t kind, RandomState& random, const ProblemShape& shape) {
  if (kind == 0) return {causal(), [](const Pair& p) { return p.key <= p.position; }};
  if (kind == 1) {
    const Integers side = drawn_integers(random, 2, -1, 3);
    return {window(side[0], side[1]), [side](const Pair& p) {
              return (side[0] == -1 || p.key >= p.position - side[0]) &&
                     (side[1] == -1 || p.key <= p.position + side[1]);
            }};
  }
  if (kind == 2) {
    const Integers n = drawn_integers(random, 1, 0, shape.kv_len);
    return {prefix(n[0]), [n](const Pair& p) { return p.key < n[0]; }};
  }
  if (kind == 3) {  // ids per item, or the same for all
    const bool shared = random.randint(0, 2) == 0;
    const auto ids = [&](std::int64_t length) {
      return random.randint(0, 2, shared ? Shape{length} : Shape{shape.batch, length});
    };
    const Tensor queries = ids(shape.q_len);
    const Tensor keys = ids(shape.kv_len);
    return {documents(queries, keys), [queries, keys](const Pair& p) {
              return spread<std::int64_t>(queries, {p.batch, p.query}) ==
                     spread<std::int64_t>(keys, {p.batch, p.key});
            }};
  }
  if (kind == 4) {
    Integers lengths = drawn_integers(random, shape.batch, 0, shape.kv_len);
    const bool shared = random.randint(0, 3) == 0;
    if (shared) lengths.assign(lengths.size(), lengths[0]);
    return {key_lengths(shared ? Integers{lengths[0]} : lengths),
            [lengths](const Pair& p) { return p.key < lengths[at(p.batch)]; }, lengths};
  }
  if (kind == 5) {
    Tensor open(DType::kBool, drawn_shape(random, shape));
    for (bool& one : open.span<bool>()) one = random.randint(0, 4) > 0;
    Tensor given = open;
    return {dense(std::move(given)), [open](const Pair& p) {
              return spread<bool>(open, {p.batch, p.head, p.query, p.key});
            }};
  }
  return {Mask(), [](const Pair&) { return true; }};
}

constexpr std::int64_t kCompanies = 6, kCases = 2 * 4 * kCompanies * kRules;

/// A problem and its options in two forms: for the library and for the loops.
struct Problem {
  ProblemShape shape;
  std::int64_t score_kind = 0;  // dot, general, additive
  std::int64_t key_dim = kSweepHeadDim;
  Tensor query, key, value, w, u, v, bias, table;
  Rule rule;
  Integers offsets;
  double scale = 1.0 / std::sqrt(5.0);
  Numbers slopes;
  AttentionOptions options;
  ReferenceOptions how;
  std::vector<std::string> drawn;  // names of the options of this case

  explicit Problem(std::int64_t number) {
    RandomState random(static_cast<std::uint64_t>(1000 + number));
    shape = number % 2 == 0 ? ProblemShape{2, 4, 2, 3, 7} : ProblemShape{3, 6, 2, 4, 3};
    draw_mask(random, number / 8 / kCompanies, number / 8 % kCompanies, number / 2 % 4);
    draw_inputs(random);
    draw_score(random);
  }

 private:
  void draw_mask(RandomState& random, std::int64_t kind, std::int64_t company,
                 std::int64_t alignment) {
    rule = drawn_rule(kind, random, shape);
    const Rule like = drawn_rule(kind, random, shape);
    const Rule a = drawn_rule(random.randint(0, kRules), random, shape);
    const Rule b = drawn_rule(random.randint(0, kRules), random, shape);
    if (company == 1) rule = both(rule, like);
    if (company == 2) rule = both(a, rule);
    if (company == 3) rule = either(rule, a);
    if (company == 4) rule = both(either(a, rule), b);
    if (company == 5) rule = either(both(rule, a), both(b, like));
    options.mask = rule.mask;

    offsets = drawn_integers(random, shape.batch, -2, 3);
    if (alignment == 1) offsets.assign(offsets.size(), 0);
    if (alignment == 2) offsets.assign(offsets.size(), offsets[0]);
    options.alignment =
        std::array{Alignment(), Alignment::top_left(), Alignment::offset(offsets[0]),
                   Alignment::offsets(offsets)}[at(alignment)];
    if (alignment > 0) return;
    offsets = rule.lengths.value_or(Integers(at(shape.batch), shape.kv_len));
    for (std::int64_t& offset : offsets) offset -= shape.q_len;
  }

  void draw_inputs(RandomState& random) {
    score_kind = random.randint(0, 3);
    if (score_kind > 0) key_dim = 4;
    query = random.randn({shape.batch, shape.q_heads, shape.q_len, kSweepHeadDim});
    key = random.randn({shape.batch, shape.kv_heads, shape.kv_len, key_dim});
    value = random.randn({shape.batch, shape.kv_heads, shape.kv_len, kSweepValueDim});
    w = random.randn({kSweepHeadDim, score_kind == 1 ? key_dim : kSweepHiddenDim});
    u = random.randn({key_dim, kSweepHiddenDim});
    v = random.randn({kSweepHiddenDim});
    if (score_kind == 1) how.score_kind = GeneralScore{w};
    if (score_kind == 2) how.score_kind = AdditiveScore{w, u, v};
    const bool large = random.randint(0, 3) == 0;
    for (Tensor* tensor : {&query, &key, &value}) {
      for (double& one : tensor->span<double>()) one *= large ? 30.0 : 1.0;
    }
    const std::int64_t normalization = std::max<std::int64_t>(random.randint(-1, 3), 0);
    how.normalization = std::array{Normalization::kSoftmax, Normalization::kSoftmaxUnshifted,
                                   Normalization::kSum}[at(normalization)];
    drawn = {"score " + std::to_string(score_kind),
             "normalization " + std::to_string(normalization), large ? "times 30" : "times 1"};
  }

  void draw_score(RandomState& random) {
    const auto one_of = [&](std::int64_t count) { return random.randint(0, count) == 0; };
    ScoreOptions& score = options.score;
    const auto spoil = [&](Tensor& numbers, const char* name) {  // if masked, they must not spread
      for (double& one : numbers.span<double>())
        one = !one_of(8) ? one : one_of(2) ? kInfinity : std::nan("");
      drawn.push_back(name);
    };
    if (one_of(6)) spoil(one_of(2) ? key : value, "inf and nan among keys or values");
    if (!one_of(3)) {
      bias = random.randn(drawn_shape(random, shape));
      const bool holes = one_of(2);
      for (double& one : bias.span<double>()) one = holes && one_of(5) ? -kInfinity : one;
      if (one_of(6)) spoil(bias, "inf and nan among biases");
      score.bias = bias;
      drawn.push_back("rank " + std::to_string(bias.rank()) + (holes ? " with holes" : ""));
    }
    if (one_of(2)) {
      // The paper's slopes for four heads, then, for six heads, every other slope of eight heads.
      const bool paper = one_of(2);
      slopes = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
      slopes.resize(at(shape.q_heads));
      for (double& slope : slopes) slope = paper ? slope : random.randn();
      score.alibi = Alibi{paper ? Numbers() : slopes};
      drawn.push_back(paper ? "default slopes" : "slopes");
    }
    if (one_of(2)) {
      const bool bidirectional = one_of(2);
      table = random.randn({one_of(2) ? 8 : 9, shape.q_heads});
      for (double& one : table.span<double>()) one = one_of(20) ? -kInfinity : one;
      if (one_of(6)) spoil(table, "inf and nan among biases");
      score.relative = RelativeTable{table, bidirectional, kMaxDistance};
      drawn.push_back(bidirectional ? "table of both directions" : "table of one direction");
    }
    if (one_of(3)) score.softcap = 1.5;
    if (score.softcap > 0) drawn.push_back("softcap");
    if (const std::int64_t n = random.randint(0, 4); n > 0)
      score.scale = scale = std::array{1.0, 0.3, -0.7}[at(n - 1)];
    drawn.push_back("scale " + std::to_string(scale));
    if (one_of(2) && how.normalization != Normalization::kSum) {
      const bool large = one_of(3);  // above all scores
      score.sinks.resize(at(shape.q_heads));
      for (double& sink : score.sinks) sink = large ? 1e5 + random.randn() : 3 * random.randn();
      drawn.push_back(large ? "large sinks" : "sinks");
    }
  }
};

/// Returns row `row` of `rows` times `matrix`.
Numbers times(const Tensor& rows, std::int64_t row, const Tensor& matrix) {
  const std::size_t dim = at(matrix.extent(0)), columns = at(matrix.extent(1));
  const auto x = rows.span<double>().subspan(at(row) * dim, dim);
  const auto m = matrix.span<double>();
  Numbers result(columns, 0.0);
  for (std::size_t n = 0; n < m.size(); ++n) result[n % columns] += x[n / columns] * m[n];
  return result;
}

/// Returns T5's bucket, by counting the buckets whose first distance is reached.
std::int64_t bucket(std::int64_t ahead, std::int64_t buckets, bool bidirectional) {
  const std::int64_t own = bidirectional ? buckets / 2 : buckets;
  const std::int64_t exact = own / 2;
  const auto first = static_cast<double>(exact);
  const auto distance = static_cast<double>(ahead < 0 ? -ahead : bidirectional ? ahead : 0);
  auto result = static_cast<std::int64_t>(std::min(distance, first));
  for (std::int64_t k = 1; k < own - exact; ++k) {
    const double fraction = static_cast<double>(k) / static_cast<double>(own - exact);
    if (distance >= first * std::pow(kMaxDistance / first, fraction)) ++result;
  }
  return result + (bidirectional && ahead > 0 ? own : 0);
}

/// All steps, computed row by row.
struct ByHand {
  Numbers hidden, scores, scaled, softcapped, biased, masked, visible;
  Numbers weights, row_sums, lse, context;
  int empty_rows = 0;

  explicit ByHand(const Problem& p) {
    for_each_index({p.shape.batch, p.shape.q_heads, p.shape.q_len},
                   [&](const Index& row) { add_row(p, row[0], row[1], row[2]); });
  }

 private:
  void add_row(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t query_row = (b * p.shape.q_heads + h) * p.shape.q_len + i;
    const std::int64_t kv_head = h * p.shape.kv_heads / p.shape.q_heads;
    const std::int64_t first_key = (b * p.shape.kv_heads + kv_head) * p.shape.kv_len;
    const std::size_t start = masked.size();
    const auto query =
        p.query.span<double>().subspan(at(query_row * kSweepHeadDim), at(kSweepHeadDim));
    Numbers x(query.begin(), query.end());
    if (p.score_kind > 0) x = times(p.query, query_row, p.w);
    for (std::int64_t j = 0; j < p.shape.kv_len; ++j) {
      scores.push_back(score(p, x, first_key + j));
      scaled.push_back(scores.back() * p.scale);
      const double cap = p.options.score.softcap;
      softcapped.push_back(cap > 0 ? cap * std::tanh(scaled.back() / cap) : scaled.back());
      const Pair pair{b, h, i, j, i + p.offsets[at(b)]};
      const Numbers terms = biases(p, pair);
      const bool hole =
          std::count(terms.begin(), terms.end(), -kInfinity) > 0 || softcapped.back() == -kInfinity;
      const double sum = std::accumulate(terms.begin(), terms.end(), softcapped.back());
      biased.push_back(hole ? -kInfinity : sum);
      visible.push_back(biased.back() != -kInfinity && p.rule.sees(pair) ? 1 : 0);
      masked.push_back(visible.back() != 0 ? sum : -kInfinity);
    }
    normalize(p, h, start);
    context.resize(context.size() + at(kSweepValueDim), 0.0);
    for (std::int64_t j = 0; j < p.shape.kv_len; ++j) {
      if (visible[start + at(j)] == 0) continue;
      for (std::int64_t d = 0; d < kSweepValueDim; ++d)
        context[context.size() - at(kSweepValueDim - d)] +=
            weights[start + at(j)] *
            p.value.span<double>()[at((first_key + j) * kSweepValueDim + d)];
    }
  }

  /// Returns the score of a key and `x`: the query, multiplied by W if there is one.
  double score(const Problem& p, const Numbers& x, std::int64_t key_row) {
    const auto key = p.key.span<double>().subspan(at(key_row * p.key_dim));
    const Numbers y = p.score_kind == 2 ? times(p.key, key_row, p.u) : Numbers();
    double sum = 0;
    for (std::size_t n = 0; n < x.size(); ++n) {
      if (p.score_kind == 2) hidden.push_back(std::tanh(x[n] + y[n]));
      sum += p.score_kind == 2 ? p.v.span<double>()[n] * hidden.back() : x[n] * key[n];
    }
    return sum;
  }

  static Numbers biases(const Problem& p, const Pair& pair) {
    const std::int64_t ahead = pair.key - pair.position;
    Numbers terms;
    if (p.bias.defined())
      terms.push_back(spread<double>(p.bias, {pair.batch, pair.head, pair.query, pair.key}));
    if (!p.slopes.empty())
      terms.push_back(p.slopes[at(pair.head)] * static_cast<double>(ahead > 0 ? -ahead : ahead));
    if (p.table.defined()) {
      const bool bidirectional = p.options.score.relative->bidirectional;
      const std::int64_t line = bucket(ahead, p.table.extent(0), bidirectional);
      terms.push_back(p.table.span<double>()[at(line * p.shape.q_heads + pair.head)]);
    }
    return terms;
  }

  void normalize(const Problem& p, std::int64_t h, std::size_t start) {
    const Normalization kind = p.how.normalization;
    Numbers logits;  // the terms of the denominator, the sink last
    for (std::size_t n = start; n < masked.size(); ++n) {
      if (visible[n] != 0) logits.push_back(masked[n]);
    }
    const bool empty = logits.empty();
    if (empty) ++empty_rows;
    if (!p.options.score.sinks.empty()) logits.push_back(p.options.score.sinks[at(h)]);
    const bool plain = kind == Normalization::kSum;
    const bool shifted = kind == Normalization::kSoftmax && !logits.empty();
    const double top = shifted ? *std::max_element(logits.begin(), logits.end()) : 0.0;
    const auto part = [&](double logit) { return plain ? logit : std::exp(logit - top); };
    double sum = 0;
    for (const double logit : logits) sum += part(logit);
    row_sums.push_back(0);
    for (std::size_t n = start; n < masked.size(); ++n) {
      weights.push_back(visible[n] != 0 ? part(masked[n]) / sum : 0.0);
      row_sums.back() += weights.back();
    }
    lse.push_back(top + std::log(sum));
    if (empty) lse.back() = logits.empty() ? -kInfinity : logits[0];
    if (plain) lse.back() = std::nan("");
  }
};

std::int64_t numbers_compared = 0;

/// Compares with a tolerance of 1e-12, relative to numbers above 1. NaN and infinity match only
/// themselves.
void compare(const char* step, const Tensor& found, bool present, const Numbers& expected) {
  ASSERT_EQ(found.defined(), present) << step;
  if (!present) return;
  ASSERT_EQ(found.size(), static_cast<std::int64_t>(expected.size())) << step;
  const Tensor numbers = convert(found, DType::kFloat64);
  const auto found_numbers = numbers.span<double>();
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const double x = found_numbers[n];
    const double y = expected[n];
    const bool same = x == y || (std::isnan(x) && std::isnan(y)) ||
                      std::abs(x - y) <= 1e-12 * std::max(1.0, std::abs(y));
    if (!same) ADD_FAILURE() << step << ", element " << n << ": " << x << ", by hand " << y;
    ++numbers_compared;
  }
}

/// Checks that attention_rows and attention_steps have bitwise equal results for all rows.
void compare_rows(const Problem& p, const Steps& all) {
  std::vector<Row> rows;
  for_each_index(all.lse.shape(), [&](const Index& i) { rows.push_back({i[0], i[1], i[2]}); });
  const Rows some = attention_rows({p.query, p.key, p.value}, p.options, rows, p.how);
  const auto compare_bits = [](const Tensor& of_rows, Tensor of_all) {
    const Tensor same = std::move(of_all).reshaped(of_rows.shape());
    EXPECT_EQ(test::max_difference(of_rows, same), 0.0);
    numbers_compared += same.size();
  };
  compare_bits(some.context, all.context);
  compare_bits(some.lse, all.lse);
  compare_bits(some.weights, all.weights);
}

TEST(ReferenceSweep, EveryStepMatchesStraightLoops) {
  std::int64_t expected = 0;
  numbers_compared = 0;
  std::map<std::string, int> cases;
  for (std::int64_t number = 0; number < kCases; ++number) {
    const Problem p(number);
    SCOPED_TRACE("case " + std::to_string(number) + ": " + p.options.mask.to_string() + ", " +
                 testing::PrintToString(p.drawn));
    const ByHand hand(p);
    const Steps steps = attention_steps({p.query, p.key, p.value}, p.options, p.how);
    const bool biased = p.bias.defined() || p.table.defined() || !p.slopes.empty();
    const bool masked = !p.options.mask.allows_all();
    compare("hidden", steps.hidden, p.score_kind == 2, hand.hidden);
    compare("scores", steps.scores, true, hand.scores);
    compare("scaled", steps.scaled_scores, p.scale != 1.0, hand.scaled);
    compare("softcapped", steps.softcapped_scores, p.options.score.softcap > 0, hand.softcapped);
    compare("biased", steps.biased_scores, biased, hand.biased);
    compare("masked", steps.masked_scores, masked, hand.masked);
    compare("visible", steps.visible, true, hand.visible);
    compare("weights", steps.weights, true, hand.weights);
    compare("row sums", steps.row_sums, true, hand.row_sums);
    compare("lse", steps.lse, true, hand.lse);
    compare("context", steps.context, true, hand.context);
    compare_rows(p, steps);

    const std::int64_t optional = (p.score_kind == 2 ? kSweepHiddenDim : 0) + (p.scale != 1.0) +
                                  (p.options.score.softcap > 0) + biased + masked;
    expected += p.shape.batch * p.shape.q_heads * p.shape.q_len *
                ((4 + optional) * p.shape.kv_len + 2 * kSweepValueDim + 3);
    for (const std::string& name : p.drawn) ++cases[name];
    if (hand.empty_rows > 0) ++cases[p.options.score.sinks.empty() ? "empty" : "empty with sinks"];
    if (HasFailure()) break;  // one failing case is enough
  }
  EXPECT_EQ(numbers_compared, expected);
  EXPECT_EQ(cases.size(), 31U) << testing::PrintToString(cases);
  for (const auto& [name, count] : cases) EXPECT_GE(count, 5) << name;
}

}  // namespace
}  // namespace fovea::reference
