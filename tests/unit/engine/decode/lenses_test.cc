// SPDX-License-Identifier: Apache-2.0
//
// Lenses of decoding against the oracle's weights, with contiguous and paged caches.

#include "fovea/lenses.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"

#include "support/blocks.h"
#include "support/forward.h"
#include "support/lenses.h"
#include "support/option_sets.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr ProblemShape kShape{2, 6, 3, 3, 700};

Seen decode_with_lenses(const reference::Inputs& in, const AttentionOptions& options,
                        const LensSizes& sizes) {
  return look_through(
      [](const TensorView& query, const TensorView& key, const TensorView& value,
         const AttentionOptions& with,
         const AttentionOutputs& outputs) { attention_decode(query, key, value, with, outputs); },
      in, options, sizes);
}

TEST(AttentionDecodeLenses, AgreeWithTheOracle) {
  expect_lenses_under(option_sets(kShape), decode_with_lenses, stored_problem(kShape, 33, 20),
                      {{8, 2, 20, Pool::kSum},
                       {1, 1, 33, Pool::kMean},
                       {64, 3, 7, Pool::kMax},
                       {5, 3, 700, Pool::kSum}});
}

TEST(AttentionDecodeLenses, LongCache) {
  const RandomProblem p = stored_problem({1, 4, 2, 2, 20000}, 12, 4);
  const LensSizes sizes{64, 2, 100, Pool::kSum};
  for (const Mask& mask : {Mask(), window(12000, 0)}) {
    LensCheck(p.inputs(), {.mask = mask})
        .expect(decode_with_lenses(p.inputs(), {.mask = mask}, sizes), sizes);
  }
}

TEST(AttentionDecodeLenses, LongDistances) { expect_digits_far_away(decode_with_lenses); }

TEST(AttentionDecodeLenses, LensesAndThreadsDoNotChangeTheBits) {
  const RandomProblem p = stored_problem({2, 4, 2, 2, 9000}, 16, 8);
  const LensSizes sizes{8, 2, 30, Pool::kSum};
  AttentionOptions options{.mask = causal()};
  options.execution.threads = 1;
  const Seen one = decode_with_lenses(p.inputs(), options, sizes);
  for (const int threads : {2, 3, 8}) {
    options.execution.threads = threads;
    EXPECT_TRUE(same_bits(decode_with_lenses(p.inputs(), options, sizes), one)) << threads;
  }
  Seen alone = room_for(p.inputs(), sizes);
  attention_decode(p.query, p.key, p.value, options, {.context = alone.context, .lse = alone.lse});
  EXPECT_TRUE(same_bits(alone.context, one.context));
  EXPECT_TRUE(same_bits(alone.lse, one.lse));
  // The lenses alone, without the outputs.
  const Lenses lenses = alone.lenses();
  attention_decode(p.query, p.key, p.value, options, {.lenses = &lenses});
  EXPECT_TRUE(same_bits(alone, one));
}

TEST(AttentionDecodeLenses, PagedMatchesContiguous) {
  RandomProblem stored({3, 4, 2, 2, 700}, 24, 20);
  for (Tensor* tensor : {&stored.query, &stored.key, &stored.value}) {
    *tensor = convert(*tensor, DType::kFloat32);
  }
  const std::vector<std::int64_t> lengths{700, 0, 333};
  const LensSizes sizes{8, 2, 30, Pool::kMean};
  for (const std::int64_t block_size : {1, 16, 1000}) {
    const Blocks blocks(stored, block_size, lengths, DType::kFloat32);
    for (const Mask& mask : {Mask(), causal(), window(100, 0)}) {
      const Seen expected =
          decode_with_lenses(stored.inputs(), {.mask = mask & key_lengths(lengths)}, sizes);
      Seen seen = room_for(stored.inputs(), sizes);
      const Lenses lenses = seen.lenses();
      attention_decode(stored.query, blocks.view(), {.mask = mask},
                       {.context = seen.context, .lse = seen.lse, .lenses = &lenses});
      EXPECT_TRUE(same_bits(seen, expected)) << block_size << ", " << mask.to_string();
    }
  }
}

TEST(AttentionDecodeLenses, NanAndFullyMaskedRows) {
  RandomProblem p = stored_problem({1, 2, 1, 2, 90}, 8, 8);
  set_value(p.query, {0, 1, 0, 3}, std::nan(""));
  const LensSizes sizes{3, 2, 10, Pool::kSum};
  for (const Mask& mask : {Mask(), causal(), window(5, 0) & key_lengths({40})}) {
    const AttentionOptions options{.mask = mask, .alignment = Alignment::offset(80)};
    SCOPED_TRACE(mask.to_string());
    LensCheck(p.inputs(), options).expect(decode_with_lenses(p.inputs(), options, sizes), sizes);
  }
  const RandomProblem none = stored_problem({1, 2, 1, 2, 0}, 8, 8);
  LensCheck(none.inputs(), {}).expect(decode_with_lenses(none.inputs(), {}, {0, 0, 0}), {0, 0, 0});
}

TEST(AttentionDecodeLenses, PackedSequences) {
  const RandomProblem p = stored_problem({1, 4, 2, 4, 300}, 12, 8);
  AttentionOptions options{.mask = causal()};
  options.sequences = {{0, 1, 4}, {0, 120, 300}};
  const LensSizes sizes{8, 0, 0, Pool::kSum};
  LensCheck(p.inputs(), options).expect(decode_with_lenses(p.inputs(), options, sizes), sizes);
  // The longest sequence has no queries.
  options.sequences = {{0, 0, 4, 4}, {0, 170, 290, 300}};
  LensCheck(p.inputs(), options).expect(decode_with_lenses(p.inputs(), options, sizes), sizes);
}

/// Only the queries of a sequence are counted for the choice of the pass.
TEST(AttentionDecodeLenses, PackedSequencesMatchSeparateCalls) {
  const RandomProblem p = stored_problem({1, 2, 1, 7, 900, 2}, 16, 8);
  const AttentionOptions packed{.sequences = {{0, 3, 7}, {0, 400, 900}}};
  const LensSizes sizes{8, 0, 0, Pool::kSum};
  const Seen all = decode_with_lenses(p.inputs(), packed, sizes);
  for (std::int64_t s = 0; s < packed.sequences.count(); ++s) {
    const SequenceSpan span = sequence_span(packed, {1, 2, 1, 7, 900, 2}, s);
    const reference::Inputs one{rows_from(p.query, span.query_start, span.q_len),
                                rows_from(p.key, span.key_start, span.kv_len),
                                rows_from(p.value, span.key_start, span.kv_len)};
    const Seen alone = decode_with_lenses(one, {}, sizes);
    EXPECT_TRUE(same_bits(rows_from(all.context, span.query_start, span.q_len), alone.context));
    EXPECT_TRUE(
        same_bits(laid_over(all.entropy.view(), span.query_start, {1, 2, span.q_len}, {0, 7, 1}),
                  alone.entropy));
  }
}

}  // namespace
}  // namespace fovea::test
