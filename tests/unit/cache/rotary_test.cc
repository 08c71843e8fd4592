// SPDX-License-Identifier: Apache-2.0
//
// Rotary embedding: hand-computed values, complex rotation in long double, properties of rotations,
// and all errors.

#include "fovea/rotary.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/random.h"

#include "support/bad_value.h"
#include "support/message_of.h"

namespace fovea::test {
namespace {

using Pairs = Rotary::Pairs;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

std::vector<double> rotated_row(const std::vector<double>& row, std::int64_t position,
                                const Rotary& rotary) {
  const auto dim = static_cast<std::int64_t>(row.size());
  const Tensor source = Tensor::from<double>({1, dim}, row);
  Tensor target(DType::kFloat64, {1, dim});
  apply_rotary(source, position, rotary, target);
  const auto result = target.span<double>();
  return {result.begin(), result.end()};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-15) << i;
}

TEST(Rotary, HandComputedValues) {
  // Frequencies 1 and 1/100; cos 1 = 0.54030231, sin 1 = 0.84147098, cos 0.01 = 0.99995,
  // sin 0.01 = 0.00999983.
  expect_near(rotated_row({1, 2, 3, 4}, 1, {}),
              {-1.9841106485555497, 1.9599006674966640, 2.4623779024123156, 4.0197996683349940});
  expect_near(rotated_row({1, 2, 3, 4}, 1, {.pairs = Pairs::kInterleaved}),
              {-1.1426396637476532, 1.9220755965441761, 2.9598506679133290, 4.0297995016691610});
  // A quarter turn, and three quarters.
  const Rotary quarter{.inverse_frequencies = {std::numbers::pi / 2}};
  expect_near(rotated_row({3, 5}, 1, quarter), {-5, 3});
  expect_near(rotated_row({3, 5}, -1, quarter), {5, -3});
  expect_near(rotated_row({3, 5}, 3, quarter), {5, -3});
}

TEST(Rotary, SubsetOfTheDimensions) {
  const double c = std::cos(3.0);
  const double s = std::sin(3.0);
  const std::vector<double> row{1, 2, 3, 4, 5};
  for (const Pairs pairs : {Pairs::kHalves, Pairs::kInterleaved}) {
    expect_near(rotated_row(row, 3, {.dims = 2, .pairs = pairs}), {c - 2 * s, 2 * c + s, 3, 4, 5});
  }
  const double c2 = std::cos(0.03);
  const double s2 = std::sin(0.03);
  expect_near(rotated_row(row, 3, {.dims = 4}),
              {c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2, 5});
}

TEST(Rotary, PositionZeroCopies) {
  const std::vector<double> row{1, -2, 0.5, 1e300};
  EXPECT_EQ(rotated_row(row, 0, {}), row);
}

TEST(Rotary, Frequencies) {
  EXPECT_EQ(rotary_inverse_frequencies(10000.0, 0), std::vector<double>{});
  EXPECT_EQ(rotary_inverse_frequencies(16.0, 4), (std::vector<double>{1.0, 0.25}));
  EXPECT_EQ(rotary_inverse_frequencies(500000.0, 128).size(), 64U);
  RandomState random(3);
  const Tensor source = random.randn({3, 8});
  Tensor from_base(DType::kFloat64, {3, 8});
  Tensor from_frequencies(DType::kFloat64, {3, 8});
  apply_rotary(source, 11, {.base = 500.0}, from_base);
  apply_rotary(source, 11, {.inverse_frequencies = rotary_inverse_frequencies(500.0, 8)},
               from_frequencies);
  EXPECT_TRUE(std::ranges::equal(from_base.span<double>(), from_frequencies.span<double>()));
}

/// The expected element, and the tolerance for the result.
struct Expected {
  double number = 0.0;
  double tolerance = 0.0;
};

/// Returns half an ulp of 1, the largest relative rounding error of a type.
double unit_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-53;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

Expected oracle(const TensorView& source, const Index& at, double position, const Rotary& rotary,
                DType target) {
  const int last = source.rank() - 1;
  const std::int64_t dims = rotary.dims == 0 ? source.extent(last) : rotary.dims;
  const double storage = unit_of(target);
  if (at[last] >= dims) {
    const double x = source.value(at);
    return {x, storage * std::abs(x) + 0x1p-25};
  }
  const bool halves = rotary.pairs == Pairs::kHalves;
  const std::int64_t pair = halves ? at[last] % (dims / 2) : at[last] / 2;
  const bool second = halves ? at[last] >= dims / 2 : at[last] % 2 == 1;
  Index a = at;
  Index b = at;
  a[last] = halves ? pair : 2 * pair;
  b[last] = halves ? pair + dims / 2 : 2 * pair + 1;
  const long double frequency =
      rotary.inverse_frequencies.empty()
          ? std::pow(static_cast<long double>(rotary.base),
                     -2.0L * static_cast<long double>(pair) / static_cast<long double>(dims))
          : static_cast<long double>(rotary.inverse_frequencies[static_cast<std::size_t>(pair)]);
  const long double angle = static_cast<long double>(position) * frequency;
  const std::complex<long double> turned =
      std::complex<long double>(source.value(a), source.value(b)) * std::polar(1.0L, angle);
  const double number = static_cast<double>(second ? turned.imag() : turned.real());
  // Arithmetic: two products of a number and a rounded sine or cosine, and their sum, add up to
  // three roundings of the computation type. Angle: one float64 rounding of the frequency,
  // or two if the C library's pow is not correctly rounded, and one of the angle itself. Storage:
  // one more rounding.
  const bool wide = source.dtype() == DType::kFloat64 || target == DType::kFloat64;
  const double size = std::abs(source.value(a)) + std::abs(source.value(b));
  const double arithmetic = 3.0 * (wide ? 0x1p-53 : 0x1p-24) * size;
  const double turn = 4.0 * 0x1p-53 * static_cast<double>(std::abs(angle)) * size;
  // Subnormal float16 numbers are 2^-24 apart.
  const double step = target == DType::kFloat16 ? 0x1p-25 : 0.0;
  return {number, 1.01 * (arithmetic + turn + storage * std::abs(number) + step)};
}

void expect_as_oracle(const TensorView& source, std::int64_t first, const Rotary& rotary,
                      const TensorView& result) {
  const int token = source.rank() - 2;
  for_each_index(source.shape(), [&](const Index& at) {
    const auto position = static_cast<double>(first + at[token]);
    const Expected expected = oracle(source, at, position, rotary, result.dtype());
    ASSERT_NEAR(result.value(at), expected.number, expected.tolerance)
        << to_string(at) << " of " << dtype_name(source.dtype()) << " to "
        << dtype_name(result.dtype()) << " at position " << position;
  });
}

TEST(Rotary, MatchesComplexRotationInEveryType) {
  RandomState random(1);
  const Tensor normal = random.randn({2, 3, 5, 12});
  for (const DType from : kFloats) {
    const Tensor source = convert(normal, from);
    for (const DType to : kFloats) {
      for (const Pairs pairs : {Pairs::kHalves, Pairs::kInterleaved}) {
        for (const std::int64_t dims : {0, 2, 10, 12}) {
          const Rotary rotary{.base = 1234.5, .dims = dims, .pairs = pairs};
          Tensor target(to, source.shape());
          apply_rotary(source, 40, rotary, target);
          expect_as_oracle(source, 40, rotary, target);
        }
      }
    }
  }
}

TEST(Rotary, FarPositionsAreExactInDouble) {
  RandomState random(2);
  const Tensor normal = random.randn({4, 128});
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Tensor source = convert(normal, dtype);
    for (const std::int64_t first : {99'999, 999'997, -1'000'000}) {
      Tensor target(dtype, source.shape());
      apply_rotary(source, first, {}, target);
      expect_as_oracle(source, first, {}, target);
    }
  }
}

TEST(Rotary, AnyRankAndStrides) {
  RandomState random(4);
  const Rotary rotary{.pairs = Pairs::kInterleaved};
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3, 4}, Shape{2, 1, 2, 3, 2, 4}}) {
    const Tensor source = random.randn(shape);
    Tensor target(DType::kFloat32, shape);
    apply_rotary(source, 5, rotary, target);
    expect_as_oracle(source, 5, rotary, target);
  }
  // [length, heads, dim] viewed as [heads, length, dim]: into transposed columns, then backwards.
  const Tensor memory = random.randn({5, 3, 4});
  const TensorView source = memory.view().transposed(0, 1);
  Tensor columns(DType::kFloat64, {3, 4, 5});
  apply_rotary(source, 5, rotary, columns.view().transposed(1, 2));
  expect_as_oracle(source, 5, rotary, columns.view().transposed(1, 2));
  const TensorView backwards(memory.span<double>().data() + 59, DType::kFloat64, {3, 5, 4},
                             {-20, -4, -1});
  Tensor target(DType::kFloat64, {3, 5, 4});
  apply_rotary(backwards, 5, rotary, target);
  expect_as_oracle(backwards, 5, rotary, target);
  // One row, repeated by a stride of 0.
  const TensorView repeated(memory.span<double>().data(), DType::kFloat64, {3, 5, 4}, {0, 0, 1});
  apply_rotary(repeated, 5, rotary, target);
  expect_as_oracle(repeated, 5, rotary, target);
}

TEST(Rotary, InPlace) {
  RandomState random(5);
  for (const DType dtype : kFloats) {
    for (const Pairs pairs : {Pairs::kHalves, Pairs::kInterleaved}) {
      Tensor memory = convert(random.randn({2, 4, 6}), dtype);
      Tensor target(dtype, memory.shape());
      apply_rotary(memory, 9, {.pairs = pairs}, target);
      apply_rotary(memory, 9, {.pairs = pairs}, memory);
      for_each_index(memory.shape(),
                     [&](const Index& at) { ASSERT_EQ(memory.value(at), target.value(at)); });
    }
  }
}

TEST(Rotary, ExplicitPositions) {
  RandomState random(6);
  const Tensor source = random.randn({2, 3, 4, 8});
  Tensor expected(DType::kFloat64, source.shape());
  Tensor target(DType::kFloat64, source.shape());
  const auto expect_same = [&] {
    EXPECT_TRUE(std::ranges::equal(target.span<double>(), expected.span<double>()));
  };
  apply_rotary(source, -2, {}, expected);
  apply_rotary(source, Tensor::from<std::int64_t>({4}, std::vector<std::int64_t>{-2, -1, 0, 1}), {},
               target);
  expect_same();
  // Item 1 at the positions of item 0, through a stride of 0, then at its own positions.
  const Tensor both =
      Tensor::from<std::int64_t>({2, 4}, std::vector<std::int64_t>{-2, -1, 0, 1, 7, 8, 9, 10});
  apply_rotary(source, TensorView(both.view().data(), DType::kInt64, {2, 4}, {0, 1}), {}, target);
  expect_same();
  apply_rotary(source.view()[1], 7, {}, expected.view()[1]);
  apply_rotary(source, both, {}, target);
  expect_same();
  // Positions in any order and at any distance.
  const Tensor anywhere =
      Tensor::from<std::int64_t>({4}, std::vector<std::int64_t>{300, 5, 5, -1'000'000});
  apply_rotary(source, anywhere, {}, target);
  for (std::int64_t t = 0; t < 4; ++t) {
    const std::vector<double> row(source.span<double>().data() + t * 8,
                                  source.span<double>().data() + (t + 1) * 8);
    const std::vector<double> alone = rotated_row(row, anywhere.at<std::int64_t>({t}), {});
    EXPECT_TRUE(std::ranges::equal(
        alone, target.span<double>().subspan(static_cast<std::size_t>(t * 8), 8)));
  }
}

TEST(Rotary, ProductsDependOnlyOnTheDistance) {
  RandomState random(7);
  const Tensor query = random.randn({1, 64});
  const Tensor key = random.randn({1, 64});
  const auto product = [&](std::int64_t query_at, std::int64_t key_at, const Rotary& rotary) {
    Tensor q(DType::kFloat64, {1, 64});
    Tensor k(DType::kFloat64, {1, 64});
    apply_rotary(query, query_at, rotary, q);
    apply_rotary(key, key_at, rotary, k);
    double sum = 0.0;
    for (std::int64_t i = 0; i < 64; ++i) sum += q.value({0, i}) * k.value({0, i});
    return sum;
  };
  for (const Rotary& rotary :
       {Rotary{}, Rotary{.pairs = Pairs::kInterleaved}, Rotary{.dims = 16}}) {
    const double near = product(7, 4, rotary);
    EXPECT_NEAR(product(3, 0, rotary), near, 1e-11);
    EXPECT_NEAR(product(1003, 1000, rotary), near, 1e-11);
    // Angles up to 1e6 are accurate to 1e-10.
    EXPECT_NEAR(product(1'000'000, 999'997, rotary), near, 64 * 4 * 1e-10);
    EXPECT_GT(std::abs(product(8, 4, rotary) - near), 1e-3);
    // The sign of the distance matters as well: each pair adds |a b| cos, but sin changes its sign.
    EXPECT_GT(std::abs(product(4, 7, rotary) - near), 1e-3);
  }
}

TEST(Rotary, KeepsNorms) {
  RandomState random(8);
  const Tensor source = convert(random.randn({100, 64}), DType::kFloat32);
  Tensor target(DType::kFloat32, {100, 64});
  apply_rotary(source, 12345, {}, target);
  const auto norm = [](const Tensor& tensor, std::int64_t row) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < 64; ++i) sum += std::pow(tensor.value({row, i}), 2);
    return std::sqrt(sum);
  };
  for (std::int64_t row = 0; row < 100; ++row) {
    EXPECT_NEAR(norm(target, row), norm(source, row), 3 * 0x1p-24 * 2 * norm(source, row));
  }
}

TEST(Rotary, InfAndNanStayInTheirPairs) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> result = rotated_row({inf, 1, 2, 3, std::nan(""), 5}, 0, {});
  EXPECT_EQ(result[0], inf);
  EXPECT_TRUE(std::isnan(result[3]));  // 3 + inf * 0
  EXPECT_TRUE(std::isnan(result[1]));
  EXPECT_TRUE(std::isnan(result[4]));
  EXPECT_EQ(result[2], 2);
  EXPECT_EQ(result[5], 5);
}

TEST(Rotary, EmptyInputs) {
  for (const Shape& shape : {Shape{0, 4}, Shape{3, 0}, Shape{2, 0, 5, 4}, Shape{0, 2, 5, 4}}) {
    const Tensor source(DType::kFloat32, shape);
    Tensor target(DType::kFloat32, shape);
    EXPECT_EQ(message_of([&] { apply_rotary(source, 3, {}, target); }), "no error");
  }
  // No memory is needed either.
  const TensorView none(nullptr, DType::kFloat32, {0, 4}, {4, 1});
  EXPECT_EQ(message_of([&] {
              apply_rotary(none, TensorView(nullptr, DType::kInt64, {0}, {1}), {},
                           MutableTensorView(nullptr, DType::kFloat32, {0, 4}, {4, 1}));
            }),
            "no error");
}

/// Rows [2, 3, 6] at explicit positions [2, 3], or at consecutive positions from `first` if it is
/// set.
struct RotaryCall {
  void run() {
    if (first.has_value()) {
      apply_rotary(source, *first, rotary, target);
    } else {
      apply_rotary(source, positions, rotary, target);
    }
  }

  std::vector<float> source_memory = std::vector<float>(100, 1.0F);
  std::vector<float> target_memory = std::vector<float>(100, 7.0F);
  std::vector<std::int64_t> positions_memory = {0, 1, 2, 3, 4, 5};
  TensorView source{source_memory.data(), {2, 3, 6}};
  MutableTensorView target{target_memory.data(), {2, 3, 6}};
  TensorView positions{positions_memory.data(), {2, 3}};
  std::optional<std::int64_t> first;
  Rotary rotary;
};

constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<Bad<RotaryCall>> kBadRotaryCalls{
    {"no source", [](RotaryCall& c) { c.source = {}; },
     "source: expected [..., length, dim], got nothing"},
    {"source of rank 1", [](RotaryCall& c) { c.source = c.source[0][0]; },
     "source: expected [..., length, dim], got [6]"},
    {"no target", [](RotaryCall& c) { c.target = {}; },
     "target: expected [..., length, dim], got nothing"},
    {"source of bool",
     [](RotaryCall& c) {
       c.source = TensorView(c.source.data(), DType::kBool, {2, 3, 6}, {18, 6, 1});
     },
     "source: expected float32, float64, float16 or bfloat16, got bool"},
    {"target of int64",
     [](RotaryCall& c) {
       c.target = MutableTensorView(c.positions_memory.data(), {1, 3});
     },
     "target: expected float32, float64, float16 or bfloat16, got int64"},
    {"source without data",
     [](RotaryCall& c) {
       c.source = TensorView(nullptr, DType::kFloat32, {2, 3, 6}, {18, 6, 1});
     },
     "source: expected data for shape [2, 3, 6], got a null pointer"},
    {"source beyond memory",
     [](RotaryCall& c) {
       c.source = TensorView(c.source.data(), DType::kFloat32, {2, 3, 6}, {1LL << 47, 6, 1});
     },
     "source: expected strides that stay within memory, got [140737488355328, 6, 1] for shape "
     "[2, 3, 6]"},
    {"another shape",
     [](RotaryCall& c) {
       c.target = MutableTensorView(c.target_memory.data(), {2, 6, 3});
     },
     "target: expected the shape of source = [2, 3, 6], got [2, 6, 3]"},
    {"elements of target twice",
     [](RotaryCall& c) {
       c.target = MutableTensorView(c.target_memory.data(), DType::kFloat32, {2, 3, 6}, {6, 6, 1});
     },
     "target: expected an element in memory for each index, got strides [6, 6, 1] for shape "
     "[2, 3, 6]"},
    {"overlap",
     [](RotaryCall& c) {
       c.source = TensorView(c.target_memory.data() + 6, {2, 3, 6});
     },
     "target: expected memory of its own, or source itself, got memory that overlaps source"},
    {"source in another type",
     [](RotaryCall& c) {
       c.source = TensorView(c.target_memory.data(), DType::kFloat16, {2, 3, 6}, {18, 6, 1});
     },
     "target: expected memory of its own, or source itself, got memory that overlaps source"},
    {"source in another order",
     [](RotaryCall& c) {
       c.source = TensorView(c.target_memory.data(), DType::kFloat32, {2, 3, 6}, {18, 1, 3});
     },
     "target: expected memory of its own, or source itself, got memory that overlaps source"},
    {"overlapping positions",
     [](RotaryCall& c) {
       c.positions = TensorView(c.target_memory.data() + 8, DType::kInt64, {2, 3}, {3, 1});
     },
     "target: expected memory of its own, or source itself, got memory that overlaps positions"},
    {"no positions", [](RotaryCall& c) { c.positions = {}; },
     "positions: expected int64 [3] or [2, 3], got nothing"},
    {"positions of floats",
     [](RotaryCall& c) { c.positions = TensorView(c.source_memory.data(), {3}); },
     "positions: expected int64 [3] or [2, 3], got float32 [3]"},
    {"positions of a wrong shape",
     [](RotaryCall& c) {
       c.positions = TensorView(c.positions_memory.data(), {3, 2});
     },
     "positions: expected int64 [3] or [2, 3], got int64 [3, 2]"},
    {"positions of items that are not there",
     [](RotaryCall& c) {
       c.source = c.source[0];
       c.target = c.target[0];
     },
     "positions: expected int64 [3], got int64 [2, 3]"},
    {"positions without data",
     [](RotaryCall& c) { c.positions = TensorView(nullptr, DType::kInt64, {3}, {1}); },
     "positions: expected data for shape [3], got a null pointer"},
    {"a position that float64 does not hold",
     [](RotaryCall& c) { c.positions_memory[4] = (1LL << 53) + 1; },
     "positions: expected positions from -9007199254740992 to 9007199254740992, got "
     "9007199254740993"},
    {"a first position too low",
     [](RotaryCall& c) { c.first = std::numeric_limits<std::int64_t>::min(); },
     "first_position: expected positions from -9007199254740992 to 9007199254740992, got "
     "-9223372036854775808"},
    {"a last position too high", [](RotaryCall& c) { c.first = (1LL << 53) - 2; },
     "first_position + length: expected positions from -9007199254740992 to 9007199254740992, got "
     "9007199254740993"},
    {"more dims than there are", [](RotaryCall& c) { c.rotary.dims = 8; },
     "rotary: expected dims from 0 (all) to head_dim = 6, got 8"},
    {"negative dims", [](RotaryCall& c) { c.rotary.dims = -2; },
     "rotary: expected dims from 0 (all) to head_dim = 6, got -2"},
    {"odd dims", [](RotaryCall& c) { c.rotary.dims = 5; },
     "rotary: expected an even number of dims to rotate, got 5"},
    {"an odd head_dim",
     [](RotaryCall& c) {
       c.source = TensorView(c.source_memory.data(), {2, 3, 5});
       c.target = MutableTensorView(c.target_memory.data(), {2, 3, 5});
     },
     "rotary: expected an even number of dims to rotate, got 5, all of head_dim"},
    {"base 0", [](RotaryCall& c) { c.rotary.base = 0.0; },
     "rotary: expected a base above 0, got 0"},
    {"negative base", [](RotaryCall& c) { c.rotary.base = -1.5; },
     "rotary: expected a base above 0, got -1.5"},
    {"nan as base", [](RotaryCall& c) { c.rotary.base = std::nan(""); },
     "rotary: expected a base above 0, got nan"},
    {"infinite base", [](RotaryCall& c) { c.rotary.base = kInf; },
     "rotary: expected a base above 0, got inf"},
    {"too few frequencies",
     [](RotaryCall& c) {
       c.rotary.inverse_frequencies = {1, 2};
     },
     "rotary: expected 3 inverse_frequencies for 6 dims, got 2"},
    {"an infinite frequency",
     [](RotaryCall& c) {
       c.rotary.inverse_frequencies = {1, kInf, 2};
     },
     "rotary: expected finite inverse_frequencies, got inf at 1"},
};

class RotaryErrors : public testing::TestWithParam<Bad<RotaryCall>> {};

TEST_P(RotaryErrors, Message) {
  RotaryCall call;
  GetParam().spoil(call);
  EXPECT_EQ(message_of([&] { call.run(); }), GetParam().message);
  EXPECT_TRUE(std::ranges::all_of(call.target_memory, [](float x) { return x == 7.0F; }));
}

INSTANTIATE_TEST_SUITE_P(All, RotaryErrors, testing::ValuesIn(kBadRotaryCalls),
                         name_of_bad<RotaryCall>);

TEST(Rotary, FrequencyErrors) {
  EXPECT_EQ(message_of([] { rotary_inverse_frequencies(10000.0, 7); }),
            "rotary: expected an even number of dims to rotate, got 7");
  EXPECT_EQ(message_of([] { rotary_inverse_frequencies(10000.0, -2); }),
            "rotary: expected an even number of dims to rotate, got -2");
  EXPECT_EQ(message_of([] { rotary_inverse_frequencies(-1.0, 2); }),
            "rotary: expected a base above 0, got -1");
}

}  // namespace
}  // namespace fovea::test
