// SPDX-License-Identifier: Apache-2.0
//
// Errors of the options of attention_forward: their messages, and that the outputs are untouched.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"

#include "support/bad_call.h"
#include "support/limits.h"

namespace fovea::test {
namespace {

Tensor ids(const Shape& shape) { return Tensor(DType::kInt64, shape); }

// The problem of Call (support/bad_call.h): batch 2, q_heads 4, kv_heads 2, q_len 6, kv_len 8, dims
// 5 and 3.
const std::vector<BadCall> kBadScores{
    {"scale nan", [](Call& c) { c.options.score.scale = std::nan(""); },
     "scale: expected a finite number, got nan"},
    {"scale inf", [](Call& c) { c.options.score.scale = kInfinity; },
     "scale: expected a finite number, got inf"},
    {"scale beyond float32", [](Call& c) { c.options.score.scale = 1e39; },
     "scale: expected a number that float32 holds, got 1e+39"},
    {"softcap negative", [](Call& c) { c.options.score.softcap = -1.0; },
     "softcap: expected a finite number of 0 (off) or more, got -1"},
    {"softcap nan", [](Call& c) { c.options.score.softcap = std::nan(""); },
     "softcap: expected a finite number of 0 (off) or more, got nan"},
    {"softcap inf", [](Call& c) { c.options.score.softcap = kInfinity; },
     "softcap: expected a finite number of 0 (off) or more, got inf"},
    {"softcap beyond float32", [](Call& c) { c.options.score.softcap = 1e39; },
     "softcap: expected a number that float32 holds, got 1e+39"},
    {"softcap far below the scale",
     [](Call& c) {
       c.options.score.scale = 4e8;
       c.options.score.softcap = 1e-30;
     },
     "softcap: expected scale / softcap to be a number that float32 holds, got scale "
     "400000000 and softcap 1e-30"},
    {"softcap below float32", [](Call& c) { c.options.score.softcap = 1e-60; },
     "softcap: expected a number that float32 holds, got 1e-60"},
    {"bias of another shape",
     [](Call& c) {
       c.options.score.bias = Tensor(DType::kFloat32, {6, 7});
     },
     "bias: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = [2, 4, 6, 8], "
     "got "
     "[6, 7]"},
    {"bias of rank 5",
     [](Call& c) {
       c.options.score.bias = Tensor(DType::kFloat32, {1, 2, 4, 6, 8});
     },
     "bias: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = [2, 4, 6, 8], "
     "got "
     "[1, 2, 4, 6, 8]"},
    {"bias of the heads of key",
     [](Call& c) {
       c.options.score.bias = Tensor(DType::kFloat32, {2, 2, 6, 8});
     },
     "bias: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = [2, 4, 6, 8], "
     "got "
     "[2, 2, 6, 8]"},
    {"bias of int64",
     [](Call& c) {
       c.options.score.bias = Tensor(DType::kInt64, {6, 8});
     },
     "bias: expected float32, float64, float16 or bfloat16, got int64"},
    {"bias without data",
     [](Call& c) {
       c.options.score.bias = TensorView(static_cast<const float*>(nullptr), {6, 8});
     },
     "bias: expected data for shape [6, 8], got a null pointer"},
    {"alibi with too few slopes",
     [](Call& c) {
       c.options.score.alibi = Alibi{{1, 2}};
     },
     "alibi: expected one number per query head (4), got 2"},
    {"alibi with nan",
     [](Call& c) {
       c.options.score.alibi = Alibi{{1, 2, std::nan(""), 4}};
     },
     "alibi: expected numbers, got nan"},
    {"alibi with minus inf",
     [](Call& c) {
       c.options.score.alibi = Alibi{{1, 2, -kInfinity, 4}};
     },
     "alibi: expected finite slopes, got -inf"},
    {"relative without a table", [](Call& c) { c.options.score.relative = RelativeTable{}; },
     "relative: expected a table [buckets, q_heads] = [4 or more, 4], got nothing"},
    {"relative with too few buckets",
     [](Call& c) {
       c.options.score.relative = RelativeTable{Tensor(DType::kFloat64, {3, 4})};
     },
     "relative: expected a table [buckets, q_heads] = [4 or more, 4], got [3, 4]"},
    {"relative of other heads",
     [](Call& c) {
       c.options.score.relative = RelativeTable{Tensor(DType::kFloat64, {32, 2})};
     },
     "relative: expected a table [buckets, q_heads] = [4 or more, 4], got [32, 2]"},
    {"relative of rank 3",
     [](Call& c) {
       c.options.score.relative = RelativeTable{Tensor(DType::kFloat64, {1, 32, 4})};
     },
     "relative: expected a table [buckets, q_heads] = [4 or more, 4], got [1, 32, 4]"},
    {"relative of bool",
     [](Call& c) {
       c.options.score.relative = RelativeTable{Tensor(DType::kBool, {32, 4})};
     },
     "relative: expected float32, float64, float16 or bfloat16, got bool"},
    {"relative without data",
     [](Call& c) {
       c.options.score.relative =
           RelativeTable{TensorView(static_cast<const float*>(nullptr), {32, 4})};
     },
     "relative: expected data for shape [32, 4], got a null pointer"},
    {"relative with too short a distance",
     [](Call& c) {
       c.options.score.relative = RelativeTable{Tensor(DType::kFloat64, {32, 4}), true, 8};
     },
     "relative: expected max_distance above 8 (the distances with a bucket of their own), got 8"},
    {"too many sinks",
     [](Call& c) {
       c.options.score.sinks = {1, 2, 3, 4, 5};
     },
     "sinks: expected one number per query head (4), got 5"},
    {"a sink of nan",
     [](Call& c) {
       c.options.score.sinks = {1, 2, std::nan(""), 4};
     },
     "sinks: expected numbers, got nan"},
    {"a sink of inf",
     [](Call& c) {
       c.options.score.sinks = {1, 2, kInfinity, 4};
     },
     "sinks: expected numbers, got inf"},
    {"a custom function for tiles alone",
     [](Call& c) { c.options.score.custom.tile = [](const void*, const ScoreTile&) {}; },
     "custom: expected a function for tiles and one for single scores, got one of them"},
    {"a derivative for tiles alone",
     [](Call& c) { c.options.score.custom.tile_derivative = [](const void*, const ScoreTile&) {}; },
     "custom: expected a derivative for tiles and one for single scores, got one of them"},
    {"a derivative for single scores alone",
     [](Call& c) {
       c.options.score.custom.one_derivative = [](const void*, double score, const ScorePosition&) {
         return score;
       };
     },
     "custom: expected a derivative for tiles and one for single scores, got one of them"},
};

const std::vector<BadCall> kBadDropouts{
    {"probability negative", [](Call& c) { c.options.dropout.probability = -0.1; },
     "dropout: expected a probability from 0 up to, but not, 1, got -0.1"},
    {"probability one", [](Call& c) { c.options.dropout.probability = 1.0; },
     "dropout: expected a probability from 0 up to, but not, 1, got 1"},
    {"probability nan", [](Call& c) { c.options.dropout.probability = std::nan(""); },
     "dropout: expected a probability from 0 up to, but not, 1, got nan"},
    {"probability inf", [](Call& c) { c.options.dropout.probability = kInfinity; },
     "dropout: expected a probability from 0 up to, but not, 1, got inf"},
};

const std::vector<BadCall> kBadMasks{
    {"window to the left below minus 1", [](Call& c) { c.options.mask = window(-2, 0); },
     "window: expected left and right of 0 or more, or -1 for unbounded, got (-2, 0)"},
    {"window to the right below minus 1", [](Call& c) { c.options.mask = window(3, -5); },
     "window: expected left and right of 0 or more, or -1 for unbounded, got (3, -5)"},
    {"prefix negative", [](Call& c) { c.options.mask = prefix(-1); },
     "prefix: expected 0 or more keys, got -1"},
    {"no key lengths", [](Call& c) { c.options.mask = key_lengths({}); },
     "key_lengths: expected at least 1 length, got none"},
    {"too many key lengths",
     [](Call& c) {
       c.options.mask = key_lengths({1, 2, 3});
     },
     "key_lengths: expected 1 length or one per batch item (2), got 3"},
    {"a key length beyond the keys",
     [](Call& c) {
       c.options.mask = key_lengths({8, 9});
     },
     "key_lengths: expected lengths from 0 to kv_len = 8, got 9"},
    {"a negative key length", [](Call& c) { c.options.mask = causal() & key_lengths({-1}); },
     "key_lengths: expected lengths from 0 to kv_len = 8, got -1"},
    {"document ids of floats",
     [](Call& c) { c.options.mask = documents(Tensor(DType::kFloat32, {6}), ids({8})); },
     "documents: expected int64 ids, got float32"},
    {"one array of ids where lengths differ", [](Call& c) { c.options.mask = documents(ids({6})); },
     "documents: expected key ids of shape [8] or [2, 8], got [6]"},
    {"too many query ids",
     [](Call& c) {
       c.options.mask = causal() | documents(ids({2, 7}), ids({8}));
     },
     "documents: expected query ids of shape [6] or [2, 6], got [2, 7]"},
    {"key ids of another batch",
     [](Call& c) {
       c.options.mask = documents(ids({6}), ids({3, 8}));
     },
     "documents: expected key ids of shape [8] or [2, 8], got [3, 8]"},
    {"a dense mask of floats",
     [](Call& c) {
       c.options.mask = dense(Tensor(DType::kFloat32, {6, 8}));
     },
     "dense mask: expected bool, true where visible, got float32; additive numbers are a bias "
     "(ScoreOptions::bias)"},
    {"a dense mask of another shape",
     [](Call& c) {
       c.options.mask = dense(Tensor(DType::kBool, {8, 6}));
     },
     "dense mask: expected a shape that broadcasts to [batch, q_heads, q_len, kv_len] = "
     "[2, 4, 6, 8], got [8, 6]"},
    {"too many rules",
     [](Call& c) {
       for (int rule = 0; rule < kMaxMaskRules + 1; ++rule)
         c.options.mask = c.options.mask & causal();
     },
     "mask: expected at most 64 rules, got more; many documents are one rule, and so is any "
     "boolean "
     "tensor"},
    {"too many offsets",
     [](Call& c) {
       c.options.alignment = Alignment::offsets({1, 2, 3});
     },
     "alignment: expected 1 offset or one per batch item (2), got 3"},
    {"no offsets", [](Call& c) { c.options.alignment = Alignment::offsets({}); },
     "alignment: expected 1 offset or one per batch item (2), got 0"},
    {"an offset too large",
     [](Call& c) { c.options.alignment = Alignment::offset((std::int64_t{1} << 40) + 1); },
     "alignment: expected offsets from -1099511627776 to 1099511627776, got 1099511627777"},
    {"an offset too small",
     [](Call& c) {
       c.options.alignment = Alignment::offsets({0, -(std::int64_t{1} << 41)});
     },
     "alignment: expected offsets from -1099511627776 to 1099511627776, got -2199023255552"},
};

/// Views the tensors as a batch of 1 with 6 queries and 8 keys, and packs them into sequences.
void pack(Call& c, std::vector<std::int64_t> query_starts, std::vector<std::int64_t> key_starts) {
  for (TensorView* view : {&c.query, &c.key, &c.value}) {
    Shape shape = view->shape();
    shape[0] = 1;
    *view = TensorView(view->data(), view->dtype(), shape, view->strides());
  }
  c.context = MutableTensorView(c.context_memory.data(), {1, 4, 6, 3});
  c.lse = MutableTensorView(c.lse_memory.data(), {1, 4, 6});
  c.options.sequences = {std::move(query_starts), std::move(key_starts)};
}

const std::vector<BadCall> kBadSequences{
    {"packed into a batch of 2",
     [](Call& c) {
       c.options.sequences = {{0, 6}, {0, 8}};
     },
     "sequences: expected tensors of batch 1 to be packed into, got batch 2"},
    {"query starts alone",
     [](Call& c) {
       pack(c, {0, 6}, {});
     },
     "sequences: expected as many query_starts as key_starts, got 2 and 0"},
    {"one start", [](Call& c) { pack(c, {0}, {0}); },
     "sequences: expected 2 starts or more, one more than there are sequences, got 1"},
    {"query starts that end early",
     [](Call& c) {
       pack(c, {0, 5}, {0, 8});
     },
     "sequences: expected query_starts from 0 to q_len = 6, got from 0 to 5"},
    {"key starts that begin late",
     [](Call& c) {
       pack(c, {0, 6}, {1, 8});
     },
     "sequences: expected key_starts from 0 to kv_len = 8, got from 1 to 8"},
    {"starts that decrease",
     [](Call& c) {
       pack(c, {0, 4, 3, 6}, {0, 1, 2, 8});
     },
     "sequences: expected query_starts that never decrease, got 3 after 4"},
    {"offsets of another number of sequences",
     [](Call& c) {
       pack(c, {0, 2, 4, 6}, {0, 1, 2, 8});
       c.options.alignment = Alignment::offsets({1, 2});
     },
     "alignment: expected 1 offset or one per sequence (3), got 2"},
    {"a key length beyond a sequence",
     [](Call& c) {
       pack(c, {0, 2, 6}, {0, 3, 8});
       c.options.mask = key_lengths({4, 5});
     },
     "key_lengths: expected lengths from 0 to 3, the keys of sequence 0, got 4"},
};

const std::vector<BadCall> kBadExecutions{
    {"negative threads", [](Call& c) { c.options.execution.threads = -1; },
     "threads: expected 0 (as many as OpenMP says) or more, got -1"},
};

class AttentionOptionErrors : public testing::TestWithParam<BadCall> {};

TEST_P(AttentionOptionErrors, MessageAndUntouchedOutputs) { expect_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scores, AttentionOptionErrors, testing::ValuesIn(kBadScores),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Dropouts, AttentionOptionErrors, testing::ValuesIn(kBadDropouts),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Masks, AttentionOptionErrors, testing::ValuesIn(kBadMasks), name_of_case);
INSTANTIATE_TEST_SUITE_P(Sequences, AttentionOptionErrors, testing::ValuesIn(kBadSequences),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Executions, AttentionOptionErrors, testing::ValuesIn(kBadExecutions),
                         name_of_case);

// Tensors of this size cannot be allocated: only their shapes are validated.
TEST(AttentionDropoutErrors, ShapesBeyondTheCounterRange) {
  const std::int64_t words = std::int64_t{1} << 32;
  const auto refusal_of = [](const ProblemShape& shape, PackedSequences sequences = {}) {
    const AttentionOptions options{.dropout = {.probability = 0.5}, .sequences = sequences};
    return message_of([&] { validate(options, shape); });
  };
  EXPECT_EQ(refusal_of({1, 1, 1, words - 1, 4 * words - 1}), "no error");
  EXPECT_EQ(refusal_of({1, 1, 1, words, 1}),
            "dropout: expected q_len of at most 4294967295, got 4294967296");
  EXPECT_EQ(refusal_of({1, 1, 1, 1, 4 * words}),
            "dropout: expected kv_len of at most 17179869183, got 17179869184");
  const auto refusal_of_part = [](std::int64_t first_query, std::int64_t first_key) {
    const AttentionOptions options{
        .dropout = {.probability = 0.5, .first_query = first_query, .first_key = first_key}};
    return message_of([&] { validate(options, {1, 1, 1, 2, 2}); });
  };
  EXPECT_EQ(refusal_of_part(words - 3, 4 * words - 3), "no error");
  EXPECT_EQ(refusal_of_part(words - 2, 0), "dropout: expected q_len of at most 1, got 2");
  EXPECT_EQ(refusal_of_part(0, 4 * words), "dropout: expected kv_len of at most 0, got 2");
  EXPECT_EQ(refusal_of_part(0, -1), "dropout: expected first positions of 0 or more, got -1");
  EXPECT_EQ(refusal_of({65536, 65535, 1, 1, 1}), "no error");
  EXPECT_EQ(refusal_of({65536, 65536, 1, 1, 1}),
            "dropout: expected q_heads * batch of at most 4294967295, got 65536 * 65536");
  EXPECT_EQ(refusal_of({std::int64_t{1} << 40, std::int64_t{1} << 40, 1, 1, 1}),
            "dropout: expected q_heads * batch of at most 4294967295, got 1099511627776 * "
            "1099511627776");
  EXPECT_EQ(refusal_of({1, words / 2, 1, 2, 2, 2}, {{0, 1, 2}, {0, 1, 2}}),
            "dropout: expected q_heads * sequences of at most 4294967295, got 2147483648 * 2");
  EXPECT_EQ(refusal_of({0, words, 1, 1, 1}), "no error");
  // Without dropout there is no such limit.
  EXPECT_EQ(message_of([&] { validate({}, {1, 1, 1, words, 4 * words}); }), "no error");
}

// Death tests: an option that is wrongly accepted would make the kernel read through a null
// pointer.
TEST(AttentionOptionErrorsDeathTest, NullData) {
  const auto refusal_of = [](const std::function<void(Call&)>& spoil) {
    Call call;
    std::cerr << message_of([&] {
      spoil(call);
      call.run();
    });
    std::_Exit(0);
  };
  const auto nothing = [](DType dtype, const Shape& shape) {
    return TensorView(nullptr, dtype, shape);
  };
  EXPECT_EXIT(refusal_of([&](Call& c) {
                c.options.score.bias = nothing(DType::kFloat32, {6, 8});
              }),
              testing::ExitedWithCode(0), "^bias: expected data for shape .6, 8., got a null ");
  EXPECT_EXIT(refusal_of([&](Call& c) {
                c.options.score.relative = RelativeTable{nothing(DType::kFloat64, {32, 4})};
              }),
              testing::ExitedWithCode(0),
              "^relative: expected data for shape .32, 4., got a null ");
  EXPECT_EXIT(refusal_of([&](Call& c) {
                c.options.mask = dense(nothing(DType::kBool, {6, 8}));
              }),
              testing::ExitedWithCode(0),
              "^dense mask: expected data for shape .6, 8., got a null ");
}

}  // namespace
}  // namespace fovea::test
