// SPDX-License-Identifier: Apache-2.0
//
// Accuracy of gradients: errors within the 1x rule for many sizes, kinds of inputs, masks, packed
// sequences and dropout. Gradients of score options are tested in score_test.cc.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

// ---- Sizes --------------------------------------------------------------------------------------

TEST(AttentionBackwardAccuracy, EveryDim) {
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 1; dim <= 33; ++dim) dims.push_back(dim);
  dims.insert(dims.end(), {59, 64, 80, 128, 200});
  const ProblemShape shape{1, 2, 1, 50, 70};
  for (std::size_t n = 0; n < dims.size(); ++n) {
    const std::int64_t head_dim = dims[n], value_dim = dims[dims.size() - 1 - n];
    SCOPED_TRACE(testing::Message() << "dims " << head_dim << " and " << value_dim);
    const RandomProblem p = stored_problem(shape, head_dim, value_dim);
    expect_exact_backward(p.inputs(), {.mask = n % 3 == 0 ? causal() : Mask()});
    const RandomProblem equal = stored_problem(shape, head_dim, head_dim);
    expect_exact_backward(equal.inputs());
  }
}

TEST(AttentionBackwardAccuracy, LengthsAroundVectorsPanelsAndBlocks) {
  int number = 0;
  for (const std::int64_t q_len : {1, 2, 7, 8, 9, 16, 23, 25, 47, 48, 49, 97}) {
    for (const std::int64_t kv_len : {1, 2, 3, 7, 8, 15, 16, 17, 111, 127, 128, 129, 200}) {
      SCOPED_TRACE(testing::Message() << q_len << " x " << kv_len);
      const RandomProblem p = stored_problem({1, 1, 1, q_len, kv_len}, 5, 3);
      expect_exact_backward(p.inputs(), {.mask = number++ % 2 == 0 ? causal() : Mask()});
    }
  }
}

TEST(AttentionBackwardAccuracy, SeveralBlocksOfKeys) {
  // Blocks of 176, 240, 512 and 352 keys.
  for (const ProblemShape& shape :
       {ProblemShape{1, 1, 1, 60, 1300}, ProblemShape{1, 2, 1, 33, 700},
        ProblemShape{2, 4, 4, 9, 1024}, ProblemShape{1, 8, 4, 7, 700}}) {
    for (const Mask& mask : {Mask(), causal(), window(200, 10)}) {
      SCOPED_TRACE(testing::Message()
                   << shape.q_len << " x " << shape.kv_len << ", " << mask.to_string());
      const RandomProblem p = stored_problem(shape, 20, 12);
      expect_exact_backward(p.inputs(), {.mask = mask});
    }
  }
}

TEST(AttentionBackwardGroups, SeveralGroupsOfQueries) {
  // The tile unit computes 256 queries and 128 keys together.
  Tensor ids(DType::kInt64, {450});
  for (std::int64_t i = 0; i < 450; ++i) set_value(ids, {i}, static_cast<double>(i / 110 % 3));
  const AttentionOptions all[] = {{},
                                  {.mask = causal()},
                                  {.mask = window(70, 40)},
                                  {.mask = documents(ids)},
                                  {.mask = causal(), .score = {.alibi = Alibi{}}}};
  for (const AttentionOptions& options : all) {
    SCOPED_TRACE(options.mask.to_string());
    const RandomProblem p = stored_problem({1, 2, 1, 450, 450}, 36, 70);
    expect_exact_backward(p.inputs(), options);
  }
}

TEST(AttentionBackwardAccuracy, GroupedHeadsAndBatches) {
  for (const ProblemShape& shape : {ProblemShape{3, 6, 2, 20, 30}, ProblemShape{2, 5, 1, 50, 150},
                                    ProblemShape{1, 12, 4, 3, 9}, ProblemShape{4, 3, 3, 1, 40}}) {
    const RandomProblem p = stored_problem(shape, 16, 24);
    expect_exact_backward(p.inputs());
    expect_exact_backward(p.inputs(), {.mask = causal()}, random_loss(p.inputs(), false));
  }
}

// ---- Inputs -------------------------------------------------------------------------------------

TEST(AttentionBackwardAccuracy, AllKindsOfInputs) {
  for (const InputKind kind : kInputKinds) {
    for (const std::int64_t length : {10, 100, 230}) {
      for (const std::int64_t dim : {16, 64}) {
        for (const Mask& mask : {Mask(), causal()}) {
          SCOPED_TRACE(testing::Message() << name_of(kind) << ", length " << length << ", dim "
                                          << dim << ", " << mask.to_string());
          const RandomProblem p = stored_problem({1, 2, 1, length, length}, dim, dim, kind, 3);
          expect_exact_backward(p.inputs(), {.mask = mask});
        }
      }
    }
  }
}

TEST(AttentionBackwardAccuracy, LossOfOnlyLseOrOnlyContext) {
  const RandomProblem p = stored_problem({2, 2, 1, 30, 140}, 8, 8);
  ResultLoss loss = random_loss(p.inputs());
  fill(loss.context, 0.0);
  expect_exact_backward(p.inputs(), {.mask = causal()}, loss);
  expect_exact_backward(p.inputs(), {.mask = causal()}, random_loss(p.inputs(), false));
}

// ---- Masks --------------------------------------------------------------------------------------

constexpr ProblemShape kAccuracyShape{2, 2, 1, 53, 200};

Tensor random_bools(const Shape& shape, double share, std::uint64_t seed) {
  RandomState random(seed);
  Tensor bools(DType::kBool, shape);
  for (bool& one : bools.span<bool>()) one = random.rand() < share;
  return bools;
}

Tensor sorted_ids(std::int64_t length, std::uint64_t seed) {
  Tensor ids = RandomState(seed).randint(0, 7, {length});
  std::ranges::sort(ids.span<std::int64_t>());
  return ids;
}

std::vector<Mask> masks() {
  const std::int64_t q_len = kAccuracyShape.q_len, kv_len = kAccuracyShape.kv_len;
  return {causal(),
          window(30, 5),
          window(-1, 3),
          window(100, -1),
          window(0, 0),
          prefix(129),
          prefix(0),
          key_lengths({kv_len, 100}),
          key_lengths({0, 7}),
          documents(sorted_ids(q_len, 1), sorted_ids(kv_len, 2)),
          documents(RandomState(3).randint(0, 4, {2, q_len}),
                    RandomState(4).randint(0, 4, {2, kv_len})),
          dense(random_bools({2, 2, q_len, kv_len}, 0.5, 5)),
          dense(random_bools({q_len, kv_len}, 0.003, 6)),
          dense(random_bools({1, 2, 1, kv_len}, 0.9, 7)),
          dense(random_bools({q_len, 1}, 0.5, 8)),
          dense(random_bools({kv_len}, 0.0, 9)),
          causal() & dense(random_bools({kv_len}, 0.5, 10)),
          (causal() | prefix(20)) & key_lengths({150, 190}),
          window(7, 7) | prefix(3)};
}

TEST(AttentionBackwardAccuracy, EveryMaskUnderEveryAlignment) {
  const RandomProblem p = stored_problem(kAccuracyShape, 5, 3);
  std::size_t turn = 0;
  const std::vector<Alignment> alignments{Alignment::bottom_right(), Alignment::top_left(),
                                          Alignment::offset(117), Alignment::offsets({-30, 150}),
                                          Alignment::offset(-2000)};
  for (const Mask& mask : masks()) {
    // Every third mask is tested with all alignments.
    const std::size_t count = turn % 3 == 0 ? alignments.size() : 2;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t which = (turn + i) % alignments.size();
      SCOPED_TRACE(testing::Message() << mask.to_string() << ", alignment " << which);
      expect_exact_backward(p.inputs(), {.mask = mask, .alignment = alignments[which]});
    }
    ++turn;
  }
}

// ---- Packed sequences ---------------------------------------------------------------------------

TEST(AttentionBackwardAccuracy, PackedSequences) {
  // Empty sequences at both ends, sequences without queries and without keys, and sequences of one
  // row, of more than a panel and of more than a block.
  const PackedSequences sequences{{0, 0, 3, 60, 64, 64, 65, 165, 177, 177},
                                  {0, 5, 8, 70, 70, 90, 91, 200, 500, 500}};
  const ProblemShape shape{1, 4, 2, 177, 500, 9};
  const RandomProblem p = stored_problem(shape, 12, 10);
  const Tensor table = RandomState(2).randn({32, 4});
  const Tensor bias = convert(RandomState(3).randn({1, 177, 500}), DType::kFloat32);
  const std::vector<AttentionOptions> all{
      {},
      {.mask = causal()},
      {.mask = window(20, 3), .alignment = Alignment::top_left()},
      {.score = {.softcap = 4.0, .alibi = Alibi{}, .sinks = {0, 1, -1, 2}}},
      {.mask = causal(), .score = {.relative = RelativeTable{table}}},
      {.score = {.bias = bias}},
      {.mask = causal(), .dropout = {.probability = 0.3, .seed = 8}},
      {.mask = causal(), .alignment = Alignment::offsets({0, -2, 30, 5, 7, 0, 9, 280, 3})}};
  for (std::size_t n = 0; n < all.size(); ++n) {
    SCOPED_TRACE(n);
    AttentionOptions options = all[n];
    options.sequences = sequences;
    expect_exact_backward(p.inputs(), options);
  }
}

TEST(AttentionBackwardAccuracy, OneSequenceAndAnEmptyOneMatchAPlainCall) {
  const ProblemShape shape{1, 2, 2, 90, 130};
  const RandomProblem p = stored_problem(shape, 8, 8);
  AttentionOptions options{.mask = causal()};
  options.sequences = {{0, 90, 90}, {0, 130, 130}};
  const ResultLoss loss = random_loss(p.inputs());
  EXPECT_TRUE(same_bits(backward(p.inputs(), options, loss),
                        backward(p.inputs(), {.mask = causal()}, loss)));
}

// ---- Dropout ------------------------------------------------------------------------------------

TEST(AttentionBackwardAccuracy, Dropout) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    for (const ProblemShape& shape :
         {ProblemShape{2, 4, 2, 53, 90}, ProblemShape{1, 1, 1, 30, 500}}) {
      for (const Mask& mask : {Mask(), causal(), window(9, 30)}) {
        SCOPED_TRACE(testing::Message() << probability << ", " << mask.to_string());
        const RandomProblem p = stored_problem(shape, 11, 17);
        const Dropout dropout{.probability = probability, .seed = 123456789012345, .call = 7};
        expect_exact_backward(p.inputs(), {.mask = mask, .dropout = dropout});
        expect_exact_backward(p.inputs(),
                              {.mask = mask, .score = {.softcap = 2.0}, .dropout = dropout});
      }
    }
  }
}

}  // namespace
}  // namespace fovea::test
