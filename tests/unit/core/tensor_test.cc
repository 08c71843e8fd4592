// SPDX-License-Identifier: Apache-2.0
//
// fovea/tensor.h: shapes, strides, views, ownership and the messages of its errors.

#include "fovea/tensor.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"

#include "support/limits.h"
#include "support/message_of.h"
#include "support/tensors.h"

namespace fovea {
namespace {

using test::elements;
using test::kMaxInt;
using test::message_of;

constexpr std::int64_t kBig = std::int64_t{1} << 40;

// Returns a tensor of 0, 1, 2, ..., counted along the last dimension first.
Tensor counting(const Shape& shape) {
  Tensor tensor(DType::kInt64, shape);
  std::int64_t next = 0;
  for (std::int64_t& x : tensor.span<std::int64_t>()) x = next++;
  return tensor;
}

// Constness is part of a view's type.
static_assert(std::is_constructible_v<TensorView, MutableTensorView>);
static_assert(!std::is_constructible_v<MutableTensorView, TensorView>);
static_assert(std::is_constructible_v<TensorView, const float*, Shape>);
static_assert(!std::is_constructible_v<MutableTensorView, const float*, Shape>);
static_assert(std::is_nothrow_move_constructible_v<Tensor>);
static_assert(std::is_nothrow_move_assignable_v<Tensor>);

TEST(DType, NamesSizesAndTypesAgree) {
  EXPECT_EQ(dtype_name(DType::kFloat32), "float32");
  EXPECT_EQ(dtype_name(DType::kFloat64), "float64");
  EXPECT_EQ(dtype_name(DType::kInt64), "int64");
  EXPECT_EQ(dtype_name(DType::kBool), "bool");
  EXPECT_EQ(dtype_size(dtype_of<float>()), sizeof(float));
  EXPECT_EQ(dtype_size(dtype_of<double>()), sizeof(double));
  EXPECT_EQ(dtype_size(dtype_of<const std::int64_t>()), sizeof(std::int64_t));
  EXPECT_EQ(dtype_size(dtype_of<bool>()), sizeof(bool));
}

TEST(Shape, HoldsUpToSixExtents) {
  Shape shape;
  EXPECT_EQ(shape.rank(), 0);
  for (int i = 0; i < kMaxRank; ++i) shape.push_back(i + 2);
  EXPECT_EQ(shape, (Shape{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(shape[5], 7);
  shape[5] = 9;
  EXPECT_EQ(shape, (Shape{2, 3, 4, 5, 6, 9}));
  EXPECT_EQ(message_of([&] { shape.push_back(1); }),
            "tensor: expected at most 6 dimensions, got more");
  EXPECT_EQ(shape.rank(), kMaxRank);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7}), InvalidArgument);
  EXPECT_EQ(Shape(3, [](int dim) { return 10 - dim; }), (Shape{10, 9, 8}));
  EXPECT_THROW(Shape(kMaxRank + 1, [](int) { return 1; }), InvalidArgument);
}

TEST(Shape, ComparesExtentsAndRank) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE((Shape{2, 0}), (Shape{2}));  // unused extents must not be compared
  const std::array<std::int64_t, 2> extents = {4, 5};
  EXPECT_EQ(Shape(std::span<const std::int64_t>(extents)), (Shape{4, 5}));
}

TEST(Shape, ReadsLikeAList) {
  EXPECT_EQ(to_string({}), "[]");
  EXPECT_EQ(to_string({7}), "[7]");
  EXPECT_EQ(to_string({2, 3, -1}), "[2, 3, -1]");
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({5}), 5);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({2, 0, 4}), 0);
  EXPECT_EQ(element_count({kMaxInt}), kMaxInt);
  EXPECT_EQ(element_count({kBig, kBig, 0}), 0);  // zero, although kBig * kBig overflows
  EXPECT_EQ(element_count({0, kBig, kBig}), 0);
}

TEST(Shape, RejectsNegativeAndOverflowingCounts) {
  EXPECT_EQ(message_of([] {
              element_count({2, -1});
            }),
            "tensor: expected extents of 0 or more, got shape [2, -1]");
  EXPECT_THROW(element_count({0, -1}), InvalidArgument);
  EXPECT_EQ(message_of([] {
              element_count({kBig, kBig});
            }),
            "tensor: shape [1099511627776, 1099511627776] has more elements than fit into 63 bits");
  EXPECT_THROW(element_count({kMaxInt, 2}), InvalidArgument);
  EXPECT_THROW(element_count({std::int64_t{1} << 32, std::int64_t{1} << 31}), InvalidArgument);
}

TEST(Shape, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides({}), Strides{});
  EXPECT_EQ(contiguous_strides({5}), (Strides{1}));
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Strides{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({0, kBig, kBig}).rank(), 3);  // empty, so overflow does not matter
  EXPECT_THROW(contiguous_strides({kBig, kBig}), InvalidArgument);
  EXPECT_THROW(contiguous_strides({3, -2}), InvalidArgument);
}

TEST(Shape, VisitsEveryIndexInRowMajorOrder) {
  std::vector<std::string> seen;
  for_each_index({2, 1, 3}, [&](const Index& index) { seen.push_back(to_string(index)); });
  EXPECT_EQ(seen, (std::vector<std::string>{"[0, 0, 0]", "[0, 0, 1]", "[0, 0, 2]", "[1, 0, 0]",
                                            "[1, 0, 1]", "[1, 0, 2]"}));
  int visits = 0;
  for_each_index({3, 0, 2}, [&](const Index&) { ++visits; });
  EXPECT_EQ(visits, 0);
  for_each_index({}, [&](const Index& index) { visits += index.rank() == 0 ? 1 : 100; });
  EXPECT_EQ(visits, 1);
}

TEST(TensorView, UndefinedWithoutData) {
  const TensorView absent;
  EXPECT_FALSE(absent.defined());
  EXPECT_EQ(absent.size(), 0);
  EXPECT_FALSE(TensorView(MutableTensorView()).defined());
  const float x = 2.5F;
  const TensorView scalar(&x, {});
  EXPECT_TRUE(scalar.defined());
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.size(), 1);
  EXPECT_EQ(scalar.at<float>({}), 2.5F);
}

TEST(TensorView, TakesShapeAndStridesInSeveralForms) {
  const Tensor tensor = counting({2, 3});
  const void* const data = tensor.view().data();
  const TensorView rows(data, DType::kInt64, {2, 3});
  EXPECT_EQ(rows.strides(), (Strides{3, 1}));
  const TensorView columns(
      data, DType::kInt64, 2, [](int dim) { return 3 - dim; }, [](int dim) { return 1 + 2 * dim; });
  EXPECT_EQ(columns.shape(), (Shape{3, 2}));
  EXPECT_EQ(columns.strides(), (Strides{1, 3}));
  EXPECT_EQ(columns.at<std::int64_t>({2, 1}), rows.at<std::int64_t>({1, 2}));
  EXPECT_THROW(TensorView(data, DType::kInt64, {kBig, kBig}), InvalidArgument);
}

TEST(TensorView, SlicesAndTransposesWithoutCopying) {
  const Tensor tensor = counting({2, 3, 4});
  const TensorView slice = tensor.view()[1];
  EXPECT_EQ(slice.shape(), (Shape{3, 4}));
  EXPECT_EQ(slice.at<std::int64_t>({2, 3}), 23);
  EXPECT_EQ(slice[0][2].at<std::int64_t>({}), 14);

  const TensorView turned = tensor.view().transposed(0, 2);
  EXPECT_EQ(turned.shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(turned.strides(), (Strides{1, 4, 12}));
  EXPECT_EQ(turned.data(), tensor.view().data());
  for_each_index(tensor.shape(), [&](const Index& index) {
    EXPECT_EQ(turned.at<std::int64_t>({index[2], index[1], index[0]}),
              tensor.at<std::int64_t>(index));
  });
  EXPECT_EQ(turned.transposed(1, 1).strides(), turned.strides());
  EXPECT_EQ(turned[3].at<std::int64_t>({2, 1}), 23);
}

TEST(TensorView, StridesMayRepeatSkipAndRunBackwards) {
  const std::array<double, 6> numbers = {0, 1, 2, 3, 4, 5};
  const TensorView repeated(numbers.data() + 1, DType::kFloat64, {2, 3}, {0, 2});
  EXPECT_EQ(elements<double>(Tensor(repeated)), (std::vector<double>{1, 3, 5, 1, 3, 5}));
  const TensorView backwards(numbers.data() + 5, DType::kFloat64, {6}, {-1});
  EXPECT_EQ(elements<double>(Tensor(backwards)), (std::vector<double>{5, 4, 3, 2, 1, 0}));
  const TensorView halves(numbers.data(), DType::kFloat64, {2, 3}, {3, 1});
  EXPECT_EQ(halves[1].value({2}), 5.0);
}

TEST(TensorView, WritesThroughMutableViews) {
  std::array<bool, 4> flags = {};
  const MutableTensorView view(flags.data(), {2, 2});
  view.transposed(0, 1).at<bool>({0, 1}) = true;
  EXPECT_EQ(flags, (std::array<bool, 4>{false, false, true, false}));
  EXPECT_EQ(view.value({1, 0}), 1.0);
  EXPECT_EQ(view.value({0, 1}), 0.0);
}

TEST(Tensor, StartsAtZeroAndAligned) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kBool}) {
    const Tensor tensor(dtype, {3, 5});
    EXPECT_TRUE(tensor.defined());
    EXPECT_EQ(tensor.size(), 15);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % 64, 0U);
    for_each_index(tensor.shape(), [&](const Index& at) { EXPECT_EQ(tensor.value(at), 0.0); });
  }
  const Tensor empty(DType::kFloat32, {0, 4});
  EXPECT_TRUE(empty.defined());
  EXPECT_TRUE(empty.span<float>().empty());
}

TEST(Tensor, RejectsInvalidShapes) {
  EXPECT_THROW(Tensor(DType::kBool, {-1}), InvalidArgument);
  EXPECT_THROW(Tensor(DType::kBool, {kBig, kBig}), InvalidArgument);
  EXPECT_EQ(message_of([] {
              Tensor(DType::kFloat64, {kBig, 1 << 22});
            }),
            "tensor: shape [1099511627776, 4194304] of float64 is too large");
}

TEST(Tensor, UndefinedTensorsHaveNoElements) {
  const Tensor absent;
  EXPECT_FALSE(absent.defined());
  EXPECT_EQ(absent.size(), 0);
  EXPECT_TRUE(absent.span<double>().empty());
  EXPECT_FALSE(absent.view().defined());
  EXPECT_FALSE(Tensor(absent).defined());
  EXPECT_FALSE(Tensor(TensorView()).defined());
  EXPECT_FALSE(convert(TensorView(), DType::kFloat32).defined());
}

TEST(Tensor, MatrixReadsRows) {
  const Tensor tensor = Tensor::matrix({{1, 2, 3}, {4, 5, 6.5}});
  EXPECT_EQ(tensor.dtype(), DType::kFloat64);
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  EXPECT_EQ(tensor.at<double>({1, 2}), 6.5);
  EXPECT_EQ(Tensor::matrix({}).shape(), (Shape{0, 0}));
  EXPECT_EQ(Tensor::matrix({{}, {}}).shape(), (Shape{2, 0}));
  EXPECT_EQ(message_of([] {
              Tensor::matrix({{1, 2}, {3}});
            }),
            "matrix: expected rows of 2 numbers, got one of 1");
}

TEST(Tensor, FromRequiresTheExactNumberOfValues) {
  const Tensor tensor = Tensor::from<float>({2, 2}, {1.0F, 2.0F, 3.0F, 4.0F});
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.at<float>({1, 0}), 3.0F);
  const std::array<bool, 2> flags = {false, true};
  EXPECT_EQ(elements<bool>(Tensor::from({2}, std::span<const bool>(flags))),
            (std::vector<bool>{false, true}));
  EXPECT_EQ(message_of([] {
              Tensor::from<float>({2, 2}, {1.0F, 2.0F, 3.0F});
            }),
            "tensor: shape [2, 2] holds 4 elements, got 3");
  EXPECT_THROW(Tensor::from<float>({0}, {1.0F}), InvalidArgument);
}

TEST(Tensor, CopiesAreDeep) {
  Tensor original = counting({2, 2});
  Tensor copy = original;
  copy.at<std::int64_t>({0, 0}) = 99;
  EXPECT_EQ(original.at<std::int64_t>({0, 0}), 0);
  original = copy;
  EXPECT_EQ(original.at<std::int64_t>({0, 0}), 99);
  EXPECT_NE(original.view().data(), copy.view().data());
  const Tensor& self = original;
  original = self;
  EXPECT_EQ(original.at<std::int64_t>({0, 0}), 99);
  original = Tensor();
  EXPECT_FALSE(original.defined());
}

TEST(Tensor, MovedFromTensorsAreUndefined) {
  Tensor original = counting({2, 3});
  const void* const data = original.view().data();
  Tensor moved = std::move(original);
  EXPECT_EQ(moved.view().data(), data);
  EXPECT_FALSE(original.defined());  // NOLINT: the moved-from state is tested
  EXPECT_EQ(original.size(), 0);
  EXPECT_FALSE(Tensor(original).defined());
  original = std::move(moved);
  EXPECT_EQ(original.at<std::int64_t>({1, 2}), 5);
  EXPECT_FALSE(moved.defined());  // NOLINT
  Tensor& self = original;
  original = std::move(self);
  EXPECT_EQ(original.at<std::int64_t>({1, 2}), 5);
}

TEST(Tensor, ReshapesWithoutCopying) {
  Tensor tensor = counting({2, 3});
  const void* const data = tensor.view().data();
  EXPECT_EQ(message_of([&] {
              std::move(tensor).reshaped({4, 2});
            }),
            "tensor: shape [2, 3] holds 6 elements, got 8");
  EXPECT_TRUE(tensor.defined());  // a failed call does not consume the tensor
  const Tensor reshaped = std::move(tensor).reshaped({3, 1, 2});
  EXPECT_EQ(reshaped.shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(reshaped.view().data(), data);
  EXPECT_EQ(reshaped.at<std::int64_t>({2, 0, 1}), 5);
  EXPECT_EQ(reshaped.view().strides(), (Strides{2, 2, 1}));
}

TEST(Tensor, ReshapesToItsOwnShape) {
  Tensor tensor = counting({2, 3});
  const Tensor same = std::move(tensor).reshaped(tensor.shape());
  EXPECT_EQ(same.shape(), (Shape{2, 3}));
  EXPECT_EQ(same.at<std::int64_t>({1, 2}), 5);
}

TEST(Convert, CopiesStridedViewsRowByRow) {
  const Tensor turned(counting({2, 3}).view().transposed(0, 1));
  EXPECT_EQ(turned.shape(), (Shape{3, 2}));
  EXPECT_EQ(elements<std::int64_t>(turned), (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Convert, KeepsEveryInt64) {
  const std::vector<std::int64_t> values = {kMaxInt, -kMaxInt - 1, (std::int64_t{1} << 53) + 1};
  const Tensor tensor = Tensor::from<std::int64_t>({3}, values);
  EXPECT_EQ(elements<std::int64_t>(Tensor(tensor.view())), values);
  EXPECT_EQ(tensor.value({2}), 0x1p53);  // rounded to even as a double
}

TEST(Convert, BetweenTypes) {
  const Tensor doubles = Tensor::from<double>({4}, {0.0, -1.75, 0.1, 3.0});
  EXPECT_EQ(elements<float>(convert(doubles, DType::kFloat32)),
            (std::vector<float>{0.0F, -1.75F, 0.1F, 3.0F}));
  EXPECT_EQ(elements<std::int64_t>(convert(doubles, DType::kInt64)),
            (std::vector<std::int64_t>{0, -1, 0, 3}));
  EXPECT_EQ(elements<bool>(convert(doubles, DType::kBool)),
            (std::vector<bool>{false, true, true, true}));
  const Tensor flags = convert(doubles, DType::kBool);
  EXPECT_EQ(elements<double>(convert(flags, DType::kFloat64)), (std::vector<double>{0, 1, 1, 1}));
  const Tensor floats = Tensor::from<float>({1}, {0.1F});
  EXPECT_EQ(convert(floats, DType::kFloat64).value({0}), static_cast<double>(0.1F));
}

TEST(Convert, BetweenTypesFromAnyStrides) {
  const Tensor numbers = convert(counting({2, 3}), DType::kFloat32);
  EXPECT_EQ(elements<double>(convert(numbers.view().transposed(0, 1), DType::kFloat64)),
            (std::vector<double>{0, 3, 1, 4, 2, 5}));
  const std::vector<float> row = {1.0F, 2.0F, 3.0F};
  const auto seen = [&](std::int64_t from, std::int64_t count, std::int64_t stride) {
    const TensorView view(&row[static_cast<std::size_t>(from)], DType::kFloat32, {count}, {stride});
    return elements<std::int64_t>(convert(view, DType::kInt64));
  };
  EXPECT_EQ(seen(2, 3, -1), (std::vector<std::int64_t>{3, 2, 1}));
  EXPECT_EQ(seen(1, 4, 0), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(seen(0, 2, 2), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(seen(1, 1, 99), (std::vector<std::int64_t>{2}));
}

TEST(Convert, OneElementAndNone) {
  const Tensor scalar = convert(Tensor::from<double>({}, {2.5}), DType::kFloat32);
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(elements<float>(scalar), (std::vector<float>{2.5F}));
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 3}, Shape{2, 0, 3}}) {
    const Tensor none = convert(Tensor(DType::kFloat64, shape), DType::kBFloat16);
    EXPECT_EQ(none.shape(), shape);
    EXPECT_EQ(none.dtype(), DType::kBFloat16);
  }
}

TEST(Convert, KeepsNonfiniteFloats) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor floats = convert(Tensor::from<double>({3}, {nan, -inf, -0.0}), DType::kFloat32);
  EXPECT_TRUE(std::isnan(floats.value({0})));
  EXPECT_EQ(floats.value({1}), -inf);
  EXPECT_TRUE(std::signbit(floats.value({2})));
}

TEST(Convert, RejectsValuesBeyondInt64) {
  const auto message = [](double value) {
    return message_of([&] { convert(Tensor::from<double>({1}, {value}), DType::kInt64); });
  };
  EXPECT_EQ(message(std::numeric_limits<double>::quiet_NaN()),
            "convert: expected a number that int64 holds, got nan");
  EXPECT_EQ(message(-std::numeric_limits<double>::infinity()),
            "convert: expected a number that int64 holds, got -inf");
  EXPECT_EQ(message(0x1p63),
            "convert: expected a number that int64 holds, got 9.223372036854776e+18");
  EXPECT_EQ(message(-0x1p63), "no error");
}

TEST(Convert, RejectsElementsWithoutData) {
  const float* const none = nullptr;
  EXPECT_EQ(message_of([&] {
              convert(TensorView(none, {2, 3}), DType::kFloat64);
            }),
            "convert: expected data for shape [2, 3], got a null pointer");
  EXPECT_EQ(convert(TensorView(none, {2, 0}), DType::kFloat64).shape(), (Shape{2, 0}));
}

}  // namespace
}  // namespace fovea
