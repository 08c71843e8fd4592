// SPDX-License-Identifier: Apache-2.0
//
// Packed sequences in the engine: bitwise equal to a separate call for each sequence, with masks
// and positions relative to the sequence.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Empty sequences at both ends, sequences without queries and without keys, and sequences of one
/// row, of more than a panel and of more than a block.
const PackedSequences kLongSequences = {{0, 0, 3, 60, 64, 64, 65, 165, 177, 177},
                                        {0, 5, 8, 70, 70, 90, 91, 200, 800, 800}};
constexpr ProblemShape kLongShape{1, 4, 2, 177, 800, 9};

/// Returns the options of a separate call for one sequence.
using OptionsOf = std::function<AttentionOptions(std::int64_t sequence, const SequenceSpan& span)>;

class AttentionPacked : public testing::Test {
 protected:
  void same_as_separate(AttentionOptions packed, const OptionsOf& of_one) {
    packed.sequences = kLongSequences;
    const Forward all = forward(problem_.inputs(), packed);
    for (std::int64_t s = 0; s < kLongSequences.count(); ++s) {
      const SequenceSpan span = sequence_span(packed, kLongShape, s);
      const Forward one = forward({rows_from(problem_.query, span.query_start, span.q_len),
                                   rows_from(problem_.key, span.key_start, span.kv_len),
                                   rows_from(problem_.value, span.key_start, span.kv_len)},
                                  of_one(s, span));
      const TensorView context = rows_from(all.context, span.query_start, span.q_len);
      const TensorView lse =
          laid_over(all.lse.view(), span.query_start, {1, kLongShape.q_heads, span.q_len},
                    {0, kLongShape.q_len, 1});
      EXPECT_TRUE(same_bits(context, one.context)) << "sequence " << s;
      EXPECT_TRUE(same_bits(lse, one.lse)) << "sequence " << s;
    }
    expect_exact(problem_.inputs(), packed, some_rows(kLongShape, 40));
  }
  void same_as_separate(const AttentionOptions& options) {
    same_as_separate(options, [&](std::int64_t, const SequenceSpan&) { return options; });
  }

  RandomProblem problem_ = stored_problem(kLongShape, 12, 10);
};

TEST_F(AttentionPacked, Plain) { same_as_separate({}); }

TEST_F(AttentionPacked, MasksAreRelativeToTheSequence) {
  for (const Mask& mask : {causal(), window(20, 3), prefix(6), causal() | prefix(4)}) {
    for (const Alignment& alignment :
         {Alignment::bottom_right(), Alignment::top_left(), Alignment::offset(9)}) {
      same_as_separate({.mask = mask, .alignment = alignment});
    }
  }
}

TEST_F(AttentionPacked, ScoresAreRelativeToTheSequence) {
  const Tensor table = RandomState(2).randn({32, kLongShape.q_heads});
  same_as_separate({.score = {.softcap = 4.0, .alibi = Alibi{}, .sinks = {0, 1, -1, 2}}});
  same_as_separate({.mask = causal(), .score = {.relative = RelativeTable{table}}});
}

TEST_F(AttentionPacked, OptionsPerSequence) {
  const std::vector<std::int64_t> offsets{0, -2, 30, 5, 7, 0, 9, 580, 3};
  same_as_separate({.mask = causal(), .alignment = Alignment::offsets(offsets)},
                   [&](std::int64_t s, const SequenceSpan&) {
                     return AttentionOptions{
                         .mask = causal(),
                         .alignment = Alignment::offset(offsets[static_cast<std::size_t>(s)])};
                   });
  const std::vector<std::int64_t> lengths{5, 0, 33, 0, 20, 1, 100, 599, 0};
  same_as_separate({.mask = causal() & key_lengths(lengths)},
                   [&](std::int64_t s, const SequenceSpan&) {
                     const Mask real = key_lengths({lengths[static_cast<std::size_t>(s)]});
                     return AttentionOptions{.mask = causal() & real};
                   });
}

TEST_F(AttentionPacked, OptionsAlongThePackedTensors) {
  const Tensor bias =
      convert(RandomState(3).randn({kLongShape.q_heads, kLongShape.q_len, kLongShape.kv_len}),
              DType::kFloat32);
  const Tensor open =
      convert(RandomState(4).randint(0, 2, {kLongShape.q_len, kLongShape.kv_len}), DType::kBool);
  const Tensor query_ids = RandomState(5).randint(0, 3, {kLongShape.q_len});
  const Tensor key_ids = RandomState(6).randint(0, 3, {kLongShape.kv_len});
  const auto ids_of = [](const Tensor& ids, std::int64_t start, std::int64_t count) {
    const auto part = ids.span<std::int64_t>().subspan(static_cast<std::size_t>(start),
                                                       static_cast<std::size_t>(count));
    return Tensor::from<std::int64_t>({count}, part);
  };
  same_as_separate(
      {.mask = dense(open) & documents(query_ids, key_ids), .score = {.bias = bias}},
      [&](std::int64_t, const SequenceSpan& span) {
        const std::int64_t first = span.query_start * kLongShape.kv_len + span.key_start;
        const TensorView part =
            laid_over(bias.view(), first, {kLongShape.q_heads, span.q_len, span.kv_len},
                      {kLongShape.q_len * kLongShape.kv_len, kLongShape.kv_len, 1});
        const TensorView open_part =
            laid_over(open.view(), first, {span.q_len, span.kv_len}, {kLongShape.kv_len, 1});
        return AttentionOptions{.mask = dense(Tensor(open_part)) &
                                        documents(ids_of(query_ids, span.query_start, span.q_len),
                                                  ids_of(key_ids, span.key_start, span.kv_len)),
                                .score = {.bias = Tensor(part)}};
      });
}

TEST_F(AttentionPacked, AnyNumberOfThreads) {
  AttentionOptions options{.mask = causal(), .sequences = kLongSequences};
  options.execution.threads = 1;
  const Forward one = forward(problem_.inputs(), options);
  for (const int threads : {2, 3, 8}) {
    options.execution.threads = threads;
    EXPECT_TRUE(same_bits(forward(problem_.inputs(), options), one)) << threads;
  }
}

TEST_F(AttentionPacked, ManySequencesOfOneQuery) {
  const std::int64_t count = 177;
  PackedSequences sequences;
  for (std::int64_t s = 0; s <= count; ++s) {
    sequences.query_starts.push_back(s);
    sequences.key_starts.push_back(s * 4);
  }
  sequences.key_starts.back() = 800;
  expect_exact(problem_.inputs(), {.sequences = sequences});
}

/// Decoding divides keys by the number of rows per key head, and multiplies pairs of bfloat16 if
/// the keys fit in a cache. Neither may depend on the other sequences.
TEST(AttentionPackedDecode, SameAsSeparate) {
  const PackedSequences sequences = {{0, 1, 4, 5, 5, 7, 16, 17},
                                     {0, 4096, 4200, 5700, 5700, 9000, 9300, 9600}};
  for (const std::int64_t group : {1, 4}) {
    const ProblemShape shape{1,
                             2 * group,
                             2,
                             sequences.query_starts.back(),
                             sequences.key_starts.back(),
                             sequences.count()};
    const RandomProblem problem = stored_problem(shape, 64, 24);
    for (const bool decode : {true, false}) {
      const auto compute = [&](const TensorView& query, const TensorView& key,
                               const TensorView& value, const AttentionOptions& options) {
        Forward found{Tensor(DType::kFloat32, {1, query.extent(1), query.extent(2), 24}),
                      Tensor(DType::kFloat32, {1, query.extent(1), query.extent(2)})};
        const AttentionOutputs outputs{found.context, found.lse};
        if (decode) {
          attention_decode(query, key, value, options, outputs);
        } else {
          attention_forward(query, key, value, options, outputs);
        }
        return found;
      };
      const AttentionOptions packed{.sequences = sequences};
      const Forward all = compute(problem.query, problem.key, problem.value, packed);
      for (std::int64_t s = 0; s < sequences.count(); ++s) {
        const SequenceSpan span = sequence_span(packed, shape, s);
        const Forward one = compute(rows_from(problem.query, span.query_start, span.q_len),
                                    rows_from(problem.key, span.key_start, span.kv_len),
                                    rows_from(problem.value, span.key_start, span.kv_len), {});
        EXPECT_TRUE(same_bits(rows_from(all.context, span.query_start, span.q_len), one.context))
            << (decode ? "decode" : "forward") << ", group " << group << ", sequence " << s;
        EXPECT_TRUE(same_bits(laid_over(all.lse.view(), span.query_start,
                                        {1, shape.q_heads, span.q_len}, {0, shape.q_len, 1}),
                              one.lse))
            << (decode ? "decode" : "forward") << ", group " << group << ", sequence " << s;
      }
    }
  }
}

/// Sequences with few and with more rows per key head are divided differently.
TEST(AttentionPackedDecode, ProgressIsThatOfOneCall) {
  const RandomProblem problem = stored_problem({1, 8, 2, 4, 90, 2}, 16, 8);
  std::vector<std::int64_t> steps, totals;
  AttentionOptions options{.sequences = {{0, 1, 4}, {0, 40, 90}}};
  options.execution.progress = [&](std::int64_t done, std::int64_t total) {
    steps.push_back(done);
    totals.push_back(total);
  };
  Tensor context(DType::kFloat32, {1, 8, 4, 8});
  attention_decode(problem.query, problem.key, problem.value, options, {.context = context});
  ASSERT_GE(steps.size(), 2);
  EXPECT_EQ(steps.front(), 0);
  EXPECT_EQ(steps.back(), totals.back());
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_EQ(std::ranges::count(totals, totals.front()), std::ssize(totals));
}

TEST_F(AttentionPacked, NanStaysWithinItsSequence) {
  AttentionOptions options{.sequences = kLongSequences};
  const Forward clean = forward(problem_.inputs(), options);
  for (const std::int64_t row : {5, 69, 199}) {  // the first or last key of a sequence
    for (Tensor* tensor : {&problem_.key, &problem_.value}) {
      fill(tensor->view()[0][0][row], std::numeric_limits<double>::quiet_NaN());
    }
  }
  const Forward poisoned = forward(problem_.inputs(), options);
  for (std::int64_t q = 0; q < kLongShape.q_len; ++q) {
    // Keys 5, 69 and 199 belong to the sequences of the queries 0 to 2, 3 to 59 and 65 to 164.
    const bool sees = q < 60 || (q >= 65 && q < 165);
    EXPECT_EQ(std::isnan(poisoned.lse.value({0, 0, q})), sees) << q;
    if (sees) continue;
    EXPECT_EQ(poisoned.lse.value({0, 0, q}), clean.lse.value({0, 0, q})) << q;
  }
}

}  // namespace
}  // namespace fovea::test
