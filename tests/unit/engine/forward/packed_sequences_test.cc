// SPDX-License-Identifier: Apache-2.0
//
// Packed sequences in the reference: one call for all of them against one call for each, with every
// kind of mask, bias and alignment; and errors of invalid sequences.

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/random.h"
#include "fovea/reference.h"

#include "support/limits.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::reference {
namespace {

using test::kInfinity;
using test::kNan;
using test::max_difference;
using test::message_of;
using test::RandomProblem;

using Integers = std::vector<std::int64_t>;

/// Sequences with as many queries as keys, fewer, more, no queries, no keys, and one of each; an
/// empty sequence at each end.
const PackedSequences kShortSequences = {{0, 0, 3, 5, 9, 9, 11, 12, 12},
                                         {0, 2, 5, 10, 12, 14, 14, 15, 15}};
constexpr ProblemShape kShortShape{1, 4, 2, 12, 15, 8};
constexpr std::int64_t kCount = 8;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Returns a slice along one dimension, counted from the last; the whole tensor if it broadcasts.
Tensor part(const Tensor& tensor, int from_last, std::int64_t begin, std::int64_t count) {
  const int dim = tensor.rank() - from_last;
  if (dim < 0 || tensor.extent(dim) == 1) return tensor;
  Shape shape = tensor.shape();
  shape[dim] = count;
  Strides strides = contiguous_strides(tensor.shape());
  const auto* const first = static_cast<const std::byte*>(tensor.view().data());
  const std::int64_t skipped =
      begin * strides[dim] * static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  return Tensor(TensorView(first + skipped, tensor.dtype(), shape, strides));
}

/// Returns a sequence's part of a tensor that broadcasts to the scores.
Tensor part_of_scores(const Tensor& tensor, const SequenceSpan& span) {
  return part(part(tensor, 2, span.query_start, span.q_len), 1, span.key_start, span.kv_len);
}

SequenceSpan span_of(std::int64_t sequence) {
  return sequence_span({.sequences = kShortSequences}, kShortShape, sequence);
}

/// Options of the packed problem, and of a separate problem for each sequence.
struct Case {
  std::string name;
  AttentionOptions packed;
  std::function<AttentionOptions(std::int64_t sequence)> alone;
};

/// A mask for the packed problem, and one for each sequence.
struct MaskCase {
  Mask packed;
  std::function<Mask(std::int64_t)> alone;
};

MaskCase same(const Mask& mask) {
  return {mask, [mask](std::int64_t) { return mask; }};
}

MaskCase join(bool both, const MaskCase& a, const MaskCase& b) {
  return {both ? a.packed & b.packed : a.packed | b.packed, [=](std::int64_t sequence) {
            const Mask x = a.alone(sequence), y = b.alone(sequence);
            return both ? x & y : x | y;
          }};
}

MaskCase drawn_dense(const Shape& shape, std::uint64_t seed) {
  RandomState random(seed);
  Tensor open(DType::kBool, shape);
  for (bool& one : open.span<bool>()) one = random.randint(0, 3) > 0;
  Tensor given = open;
  return {dense(std::move(given)),
          [open](std::int64_t sequence) { return dense(part_of_scores(open, span_of(sequence))); }};
}

MaskCase drawn_documents(bool rank_of_two, std::uint64_t seed) {
  RandomState random(seed);
  const auto drawn = [&](std::int64_t length) {
    return random.randint(0, 2, rank_of_two ? Shape{1, length} : Shape{length});
  };
  const Tensor query_ids = drawn(kShortShape.q_len), key_ids = drawn(kShortShape.kv_len);
  return {documents(query_ids, key_ids), [=](std::int64_t sequence) {
            const SequenceSpan span = span_of(sequence);
            return documents(part(query_ids, 1, span.query_start, span.q_len),
                             part(key_ids, 1, span.key_start, span.kv_len));
          }};
}

std::vector<MaskCase> masks() {
  const Integers lengths = {1, 0, 4, 2, 0, 0, 1, 0};
  const MaskCase own_lengths{key_lengths(lengths), [lengths](std::int64_t sequence) {
                               return key_lengths({lengths[at(sequence)]});
                             }};
  // In sequences with fewer than two keys, all keys are valid.
  const MaskCase one_length{
      key_lengths({2}), [](std::int64_t sequence) {
        return key_lengths({std::min<std::int64_t>(2, span_of(sequence).kv_len)});
      }};
  const auto [b, h, q, k] =
      std::array{std::int64_t{1}, kShortShape.q_heads, kShortShape.q_len, kShortShape.kv_len};
  std::vector<MaskCase> result = {same(Mask()),
                                  same(causal()),
                                  same(window(1, 0)),
                                  same(window(0, 2)),
                                  same(prefix(2)),
                                  own_lengths,
                                  one_length,
                                  drawn_documents(false, 1),
                                  drawn_documents(true, 2),
                                  drawn_dense({b, h, q, k}, 3),
                                  drawn_dense({q, k}, 4),
                                  drawn_dense({k}, 5),
                                  drawn_dense({q, 1}, 6),
                                  drawn_dense({h, 1, 1}, 7)};
  const std::size_t alone = result.size();
  for (std::size_t n = 1; n < alone; ++n) {
    result.push_back(join(true, result[n], result[1 + n % (alone - 1)]));
    result.push_back(join(false, result[n], result[1 + (n + 4) % (alone - 1)]));
    result.push_back(join(true, own_lengths, result[n]));
    result.push_back(join(true, one_length, result[n]));
  }
  return result;
}

struct ScoreCase {
  ScoreOptions packed;
  Tensor bias = {};  // sequences use parts of it
};

std::vector<ScoreCase> scores() {
  RandomState random(20);
  std::vector<ScoreCase> result = {{}};
  const std::int64_t q = kShortShape.q_len, k = kShortShape.kv_len, h = kShortShape.q_heads;
  for (const Shape& shape :
       {Shape{1, h, q, k}, Shape{q, k}, Shape{k}, Shape{q, 1}, Shape{h, 1, 1}, Shape{1}}) {
    Tensor bias = random.randn(shape);
    for (double& one : bias.span<double>()) {
      if (shape.rank() > 1 && random.randint(0, 6) == 0) one = -kInfinity;
    }
    result.push_back({{.bias = Tensor(bias)}, bias});
  }
  result.push_back({{.alibi = Alibi{}}});
  result.push_back({{.alibi = Alibi{{0.5, -1.0, 0.25, 2.0}}}});
  result.push_back({{.relative = RelativeTable{random.randn({8, h}), true, 6}}});
  result.push_back({{.relative = RelativeTable{random.randn({6, h}), false, 4}}});
  result.push_back({{.scale = 0.7, .softcap = 1.5, .sinks = {0.5, -1, 2, 0}}});
  return result;
}

/// Sets an alignment: bottom-right, top-left, one offset, or one offset per sequence.
AttentionOptions aligned(AttentionOptions options, int kind, std::optional<std::int64_t> sequence) {
  const Integers offsets = {3, 0, -1, 2, 1, 0, -2, 4};
  if (kind == 1) options.alignment = Alignment::top_left();
  if (kind == 2) options.alignment = Alignment::offset(1);
  if (kind == 3) {
    options.alignment =
        sequence ? Alignment::offset(offsets[at(*sequence)]) : Alignment::offsets(offsets);
  }
  return options;
}

std::vector<Case> cases() {
  std::vector<Case> result;
  const auto add = [&](const MaskCase& mask, const ScoreCase& score, int alignment) {
    const AttentionOptions packed{.mask = mask.packed, .score = score.packed};
    AttentionOptions all = aligned(packed, alignment, std::nullopt);
    all.sequences = kShortSequences;
    result.push_back({mask.packed.to_string() + ", alignment " + std::to_string(alignment), all,
                      [=](std::int64_t sequence) {
                        AttentionOptions own{.mask = mask.alone(sequence), .score = score.packed};
                        if (score.bias.defined()) {
                          own.score.bias = part_of_scores(score.bias, span_of(sequence));
                        }
                        return aligned(own, alignment, sequence);
                      }});
  };
  const auto all_masks = masks();
  const auto all_scores = scores();
  for (int alignment = 0; alignment < 4; ++alignment) {
    for (std::size_t n = 0; n < all_masks.size(); ++n) {
      add(all_masks[n], all_scores[n % all_scores.size()], alignment);
    }
    for (const ScoreCase& score : all_scores) add(all_masks[1], score, alignment);
  }
  return result;
}

Inputs inputs_of(const RandomProblem& problem, const SequenceSpan& span, RandomProblem& own) {
  own.query = part(problem.query, 2, span.query_start, span.q_len);
  own.key = part(problem.key, 2, span.key_start, span.kv_len);
  own.value = part(problem.value, 2, span.key_start, span.kv_len);
  return own.inputs();
}

/// Checks that the results of a sequence are bitwise equal to its part of the packed results.
void compare(const Steps& all, const Steps& own, const SequenceSpan& span) {
  const auto pairs = [&](const Tensor& tensor) {
    return part(part(tensor, 2, span.query_start, span.q_len), 1, span.key_start, span.kv_len);
  };
  EXPECT_EQ(max_difference(pairs(all.scores), own.scores), 0.0);
  EXPECT_EQ(all.scaled_scores.defined(), own.scaled_scores.defined());
  EXPECT_EQ(all.softcapped_scores.defined(), own.softcapped_scores.defined());
  EXPECT_EQ(all.biased_scores.defined(), own.biased_scores.defined());
  EXPECT_TRUE(all.masked_scores.defined());
  if (own.scaled_scores.defined()) {
    EXPECT_EQ(max_difference(pairs(all.scaled_scores), own.scaled_scores), 0.0);
  }
  if (own.softcapped_scores.defined()) {
    EXPECT_EQ(max_difference(pairs(all.softcapped_scores), own.softcapped_scores), 0.0);
  }
  if (own.biased_scores.defined()) {
    EXPECT_EQ(max_difference(pairs(all.biased_scores), own.biased_scores), 0.0);
  }
  if (own.masked_scores.defined()) {
    EXPECT_EQ(max_difference(pairs(all.masked_scores), own.masked_scores), 0.0);
  }
  EXPECT_EQ(max_difference(pairs(all.weights), own.weights), 0.0);
  EXPECT_EQ(max_difference(pairs(all.visible), own.visible), 0.0);
  EXPECT_EQ(max_difference(part(all.lse, 1, span.query_start, span.q_len), own.lse), 0.0);
  EXPECT_EQ(max_difference(part(all.row_sums, 1, span.query_start, span.q_len), own.row_sums), 0.0);
  EXPECT_EQ(max_difference(part(all.context, 2, span.query_start, span.q_len), own.context), 0.0);
  EXPECT_EQ(all.hidden.defined(), own.hidden.defined());
  if (own.hidden.defined()) {
    const Tensor rows = part(all.hidden, 3, span.query_start, span.q_len);
    EXPECT_EQ(max_difference(part(rows, 2, span.key_start, span.kv_len), own.hidden), 0.0);
  }
}

/// Checks that keys of other sequences have no effect on any step.
void check_others(const Steps& all) {
  for_each_index(all.weights.shape(), [&](const Index& place) {
    for (std::int64_t sequence = 0; sequence < kCount; ++sequence) {
      const SequenceSpan span = span_of(sequence);
      const bool own_query =
          span.query_start <= place[2] && place[2] < span.query_start + span.q_len;
      const bool own_key = span.key_start <= place[3] && place[3] < span.key_start + span.kv_len;
      if (!own_query || own_key) continue;
      EXPECT_EQ(all.weights.value(place), 0.0);
      EXPECT_EQ(all.visible.value(place), 0.0);
      for (const Tensor* step : {&all.scores, &all.scaled_scores, &all.softcapped_scores,
                                 &all.biased_scores, &all.masked_scores}) {
        if (step->defined()) {
          EXPECT_EQ(step->value(place), -kInfinity);
        }
      }
      for (std::int64_t d = 0; all.hidden.defined() && d < all.hidden.extent(4); ++d) {
        EXPECT_EQ(all.hidden.value({place[0], place[1], place[2], place[3], d}), 0.0);
      }
    }
  });
}

void compare_rows(const RandomProblem& problem, const AttentionOptions& options, const Steps& all,
                  const ReferenceOptions& how) {
  std::vector<Row> rows;
  for_each_index(all.lse.shape(), [&](const Index& i) { rows.push_back({i[0], i[1], i[2]}); });
  const Rows found = attention_rows(problem.inputs(), options, rows, how);
  const auto flat = [](const Tensor& tensor, const Shape& shape) {
    return Tensor(tensor).reshaped(shape);
  };
  EXPECT_EQ(max_difference(found.context, flat(all.context, found.context.shape())), 0.0);
  EXPECT_EQ(max_difference(found.lse, flat(all.lse, found.lse.shape())), 0.0);
  EXPECT_EQ(max_difference(found.weights, flat(all.weights, found.weights.shape())), 0.0);
}

TEST(Packed, EachSequenceMatchesASeparateProblem) {
  const RandomProblem problem(kShortShape, 3, 2);
  RandomProblem own = problem;
  const auto all_cases = cases();
  ASSERT_GT(all_cases.size(), 250U);
  for (const Case& one : all_cases) {
    SCOPED_TRACE(one.name);
    const Steps all = attention_steps(problem.inputs(), one.packed);
    for (std::int64_t sequence = 0; sequence < kCount; ++sequence) {
      SCOPED_TRACE(sequence);
      const SequenceSpan span = span_of(sequence);
      compare(all, attention_steps(inputs_of(problem, span, own), one.alone(sequence)), span);
    }
    check_others(all);
    compare_rows(problem, one.packed, all, {});
    if (HasFailure()) return;  // one failing case is enough
  }
}

TEST(Packed, EveryScoreNormalizationAndArithmetic) {
  const RandomProblem problem(kShortShape, 3, 2);
  RandomProblem own = problem;
  RandomState random(4);
  const Tensor w = random.randn({3, 5}), u = random.randn({3, 5}), v = random.randn({5});
  const Tensor general = random.randn({3, 3});
  const AttentionOptions options{.mask = causal(), .score = {.softcap = 2.0}};
  AttentionOptions packed = options;
  packed.sequences = kShortSequences;
  for (const ScoreKind& kind : {ScoreKind(DotScore{}), ScoreKind(GeneralScore{general}),
                                ScoreKind(AdditiveScore{w, u, v})}) {
    for (const Normalization normalization :
         {Normalization::kSoftmax, Normalization::kSoftmaxUnshifted, Normalization::kSum}) {
      for (const DType arithmetic : {DType::kFloat64, DType::kFloat32}) {
        const ReferenceOptions how{kind, normalization, arithmetic};
        const Steps all = attention_steps(problem.inputs(), packed, how);
        for (std::int64_t sequence = 0; sequence < kCount; ++sequence) {
          const SequenceSpan span = span_of(sequence);
          compare(all, attention_steps(inputs_of(problem, span, own), options, how), span);
        }
        check_others(all);
        compare_rows(problem, packed, all, how);
      }
    }
  }
}

TEST(Packed, NanAndInfinityStayWithinTheirSequence) {
  const RandomProblem clean(kShortShape, 3, 2);
  const AttentionOptions options{.sequences = kShortSequences};
  const Steps before = attention_steps(clean.inputs(), options);
  for (const double poison : {kNan, kInfinity, -kInfinity}) {
    RandomProblem spoilt = clean;
    const SequenceSpan span = span_of(2);
    for (std::int64_t j = span.key_start; j < span.key_start + span.kv_len; ++j) {
      for (std::int64_t d = 0; d < 3; ++d) spoilt.key.at<double>({0, 1, j, d}) = poison;
      for (std::int64_t d = 0; d < 2; ++d) spoilt.value.at<double>({0, 1, j, d}) = poison;
    }
    const Steps after = attention_steps(spoilt.inputs(), options);
    for (std::int64_t i = 0; i < kShortShape.q_len; ++i) {
      if (span.query_start <= i && i < span.query_start + span.q_len) continue;
      for (std::int64_t head = 0; head < kShortShape.q_heads; ++head) {
        EXPECT_EQ(after.context.value({0, head, i, 0}), before.context.value({0, head, i, 0}));
        EXPECT_EQ(after.lse.value({0, head, i}), before.lse.value({0, head, i}));
      }
    }
  }
}

TEST(Packed, OneSequenceMatchesThePlainProblem) {
  const RandomProblem problem({1, 2, 1, 4, 6}, 3, 2);
  const AttentionOptions options{.mask = causal()};
  AttentionOptions packed = options;
  packed.sequences = {{0, 4}, {0, 6}};
  const Steps a = attention_steps(problem.inputs(), packed);
  const Steps b = attention_steps(problem.inputs(), options);
  EXPECT_EQ(max_difference(a.context, b.context), 0.0);
  EXPECT_EQ(max_difference(a.masked_scores, b.masked_scores), 0.0);
  const RandomProblem nothing({1, 2, 1, 0, 0}, 3, 2);
  packed.sequences = {{0, 0, 0}, {0, 0, 0}};
  EXPECT_EQ(attention_steps(nothing.inputs(), packed).context.shape(), (Shape{1, 2, 0, 2}));
}

// ---- Items --------------------------------------------------------------------------------------

TEST(Packed, SpansOfItems) {
  const auto list = [](const SequenceSpan& s) {
    return Integers{s.batch, s.query_start, s.q_len, s.key_start, s.kv_len};
  };
  EXPECT_EQ(kShortShape.items(), kCount);
  EXPECT_EQ(kShortSequences.count(), kCount);
  EXPECT_EQ(list(span_of(0)), (Integers{0, 0, 0, 0, 2}));
  EXPECT_EQ(list(span_of(2)), (Integers{0, 3, 2, 5, 5}));
  EXPECT_EQ(list(span_of(7)), (Integers{0, 12, 0, 15, 0}));
  const ProblemShape batches{3, 1, 1, 4, 5};
  EXPECT_EQ(batches.items(), 3);
  EXPECT_EQ(PackedSequences().count(), 0);
  EXPECT_EQ(list(sequence_span({}, batches, 2)), (Integers{2, 0, 4, 0, 5}));
}

TEST(Packed, OffsetsAreRelativeToTheSequence) {
  AttentionOptions options{.sequences = {{0, 2, 3}, {0, 5, 7}}};
  const ProblemShape shape{1, 1, 1, 3, 7, 2};
  const auto offsets = [&] {
    validate(options, shape);
    return Integers{query_offset(options, shape, 0), query_offset(options, shape, 1)};
  };
  EXPECT_EQ(offsets(), (Integers{3, 1}));
  options.mask = causal() & key_lengths({4, 0});
  EXPECT_EQ(offsets(), (Integers{2, -1}));
  options.mask = key_lengths({3});  // more keys than the second sequence has
  EXPECT_EQ(offsets(), (Integers{1, 1}));
  options.mask = key_lengths({3}) & key_lengths({4, 1});
  EXPECT_EQ(offsets(), (Integers{1, 0}));
  options.mask = key_lengths({3}) | causal();
  EXPECT_EQ(offsets(), (Integers{3, 1}));
  options.alignment = Alignment::offsets({7, -7});
  EXPECT_EQ(offsets(), (Integers{7, -7}));
  options.alignment = Alignment::offset(2);
  EXPECT_EQ(offsets(), (Integers{2, 2}));
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(Packed, InvalidSequences) {
  const ProblemShape shape{1, 1, 1, 5, 7, 2};
  const auto check = [&](Integers query_starts, Integers key_starts, const ProblemShape& of) {
    const AttentionOptions options{.sequences = {std::move(query_starts), std::move(key_starts)}};
    return message_of([&] { validate(options, of); });
  };
  EXPECT_EQ(check({0, 2, 5}, {0, 0, 7}, shape), "no error");
  EXPECT_EQ(check({0, 2, 5}, {0, 7}, shape),
            "sequences: expected as many query_starts as key_starts, got 3 and 2");
  EXPECT_EQ(check({}, {0, 7}, shape),
            "sequences: expected as many query_starts as key_starts, got 0 and 2");
  EXPECT_EQ(check({0, 5}, {}, shape),
            "sequences: expected as many query_starts as key_starts, got 2 and 0");
  EXPECT_EQ(check({0}, {0}, shape),
            "sequences: expected 2 starts or more, one more than there are sequences, got 1");
  EXPECT_EQ(check({0, 5}, {0, 7}, shape),
            "sequences: expected starts of as many sequences as the problem has (2), got those of "
            "1");
  EXPECT_EQ(check({}, {}, shape),
            "sequences: expected starts of as many sequences as the problem has (2), got those of "
            "0");
  EXPECT_EQ(check({0, 2, 5}, {0, 0, 7}, {2, 1, 1, 5, 7, 2}),
            "sequences: expected tensors of batch 1 to be packed into, got batch 2");
  EXPECT_EQ(check({1, 2, 5}, {0, 0, 7}, shape),
            "sequences: expected query_starts from 0 to q_len = 5, got from 1 to 5");
  EXPECT_EQ(check({0, 2, 4}, {0, 0, 7}, shape),
            "sequences: expected query_starts from 0 to q_len = 5, got from 0 to 4");
  EXPECT_EQ(check({0, 2, 5}, {0, 0, 8}, shape),
            "sequences: expected key_starts from 0 to kv_len = 7, got from 0 to 8");
  EXPECT_EQ(check({0, 2, 5}, {-1, 0, 7}, shape),
            "sequences: expected key_starts from 0 to kv_len = 7, got from -1 to 7");
  EXPECT_EQ(check({0, 6, 5}, {0, 0, 7}, shape),
            "sequences: expected query_starts that never decrease, got 5 after 6");
  EXPECT_EQ(check({0, 2, 5}, {0, -3, 7}, shape),
            "sequences: expected key_starts that never decrease, got -3 after 0");

  const RandomProblem two({2, 1, 1, 5, 7}, 3, 2);
  const AttentionOptions packed{.sequences = {{0, 2, 5}, {0, 3, 7}}};
  EXPECT_EQ(message_of([&] { attention_steps(two.inputs(), packed); }),
            "sequences: expected tensors of batch 1 to be packed into, got batch 2");
}

TEST(Packed, OptionsInconsistentWithTheSequences) {
  const ProblemShape shape{1, 1, 1, 5, 7, 2};
  AttentionOptions options{.sequences = {{0, 2, 5}, {0, 3, 7}}};
  const auto check = [&](const Mask& mask) {
    options.mask = mask;
    return message_of([&] { validate(options, shape); });
  };
  EXPECT_EQ(check(key_lengths({3, 4})), "no error");
  EXPECT_EQ(check(key_lengths({4})), "no error");
  EXPECT_EQ(check(key_lengths({1, 2, 3})),
            "key_lengths: expected 1 length or one per sequence (2), got 3");
  EXPECT_EQ(check(key_lengths({4, 4})),
            "key_lengths: expected lengths from 0 to 3, the keys of sequence 0, got 4");
  EXPECT_EQ(check(causal() | key_lengths({3, -1})),
            "key_lengths: expected lengths from 0 to 4, the keys of sequence 1, got -1");
  EXPECT_EQ(check(key_lengths({5})),
            "key_lengths: expected lengths from 0 to 4, the keys of the longest sequence, got 5");
  EXPECT_EQ(check(key_lengths({-1})),
            "key_lengths: expected lengths from 0 to 4, the keys of the longest sequence, got -1");
  EXPECT_EQ(check(documents(Tensor(DType::kInt64, {5}), Tensor(DType::kInt64, {2, 7}))),
            "documents: expected key ids of shape [7] or [1, 7], got [2, 7]");
  EXPECT_EQ(check(dense(Tensor(DType::kBool, {2, 1, 5, 7}))),
            "dense mask: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = "
            "[1, 1, 5, 7], got [2, 1, 5, 7]");
  options.mask = {};
  options.alignment = Alignment::offsets({1, 2, 3});
  EXPECT_EQ(message_of([&] { validate(options, shape); }),
            "alignment: expected 1 offset or one per sequence (2), got 3");
  options.alignment = {};
  const RandomProblem problem(shape, 3, 2);
  const std::vector<Row> second_item = {{1, 0, 0}};
  EXPECT_EQ(message_of([&] { attention_rows(problem.inputs(), options, second_item); }),
            "row: expected [batch, head, query] within [1, 1, 5], got [1, 0, 0]");
}

}  // namespace
}  // namespace fovea::reference
