// SPDX-License-Identifier: Apache-2.0
//
// fovea/array_format.h and core/number_format.h against texts that NumPy printed
// (tests/data/numpy_arrays.txt), and edge cases of their contracts.

#include "fovea/array_format.h"

#include <clocale>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"

#include "core/number_format.h"
#include "support/message_of.h"
#include "support/parse.h"

namespace fovea {
namespace {

using test::message_of;
using test::parse;

constexpr double kInf = std::numeric_limits<double>::infinity();

// One array of the file and the text that NumPy prints for it.
struct Case {
  std::string name;
  std::string dtype;
  Shape shape;
  ArrayFormat options;
  std::vector<std::string> values;
  std::string text;
};

template <class T>
Tensor filled(const Case& c) {
  Tensor tensor(dtype_of<T>(), c.shape);
  std::vector<T> values;
  for (const std::string& word : c.values) {
    if constexpr (std::is_same_v<T, bool>) {
      values.push_back(word == "1");
    } else {
      values.push_back(parse<T>(word));
    }
  }
  std::size_t next = 0;
  for (T& x : tensor.span<T>()) x = values.at(next++ % values.size());
  return tensor;
}

Tensor tensor_of(const Case& c) {
  if (c.dtype == "float32") return filled<float>(c);
  if (c.dtype == "float64") return filled<double>(c);
  if (c.dtype == "int64") return filled<std::int64_t>(c);
  EXPECT_EQ(c.dtype, "bool");
  return filled<bool>(c);
}

void set_option(ArrayFormat& options, const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string value = word.substr(equals + 1);
  if (name == "mode") {
    const std::map<std::string, FloatMode> modes = {{"fixed", FloatMode::kFixed},
                                                    {"unique", FloatMode::kUnique},
                                                    {"maxprec", FloatMode::kMaxprec},
                                                    {"maxprec_equal", FloatMode::kMaxprecEqual}};
    options.mode = modes.at(value);
  } else if (name == "precision") {
    options.precision = parse<int>(value);
  } else if (name == "threshold") {
    options.threshold = parse<std::int64_t>(value);
  } else if (name == "edge_items") {
    options.edge_items = parse<int>(value);
  } else if (name == "line_width") {
    options.line_width = parse<int>(value);
  } else {
    ASSERT_EQ(name, "suppress");
    options.suppress = value == "1";
  }
}

std::vector<Case> read_cases() {
  const std::string path = std::string(FOVEA_TEST_DATA) + "/numpy_arrays.txt";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::vector<Case> cases;
  Case current;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '|') {
      if (!current.text.empty()) current.text += '\n';
      current.text += line.substr(1);
      continue;
    }
    std::istringstream words(line);
    std::string key;
    words >> key;
    std::string word;
    if (key == "case") {
      current = {};
      words >> current.name;
    } else if (key == "dtype") {
      words >> current.dtype;
    } else if (key == "shape") {
      while (words >> word) current.shape.push_back(parse<std::int64_t>(word));
    } else if (key == "options") {
      while (words >> word) set_option(current.options, word);
    } else if (key == "values") {
      while (words >> word) current.values.push_back(word);
    } else {
      EXPECT_EQ(key, "end");
      cases.push_back(current);
    }
  }
  return cases;
}

TEST(ArrayFormat, EqualsNumpy) {
  const std::vector<Case> cases = read_cases();
  int failures = 0;
  for (const Case& c : cases) {
    const std::string text = format_array(tensor_of(c), c.options);
    EXPECT_EQ(text, c.text) << c.name << " " << c.dtype;
    if (text != c.text && ++failures == 10) break;
  }
  EXPECT_GE(cases.size(), 300U);
  std::cout << "checked " << cases.size() << " arrays\n";
}

TEST(ArrayFormat, EveryNumberFillsItsColumns) {
  int checked = 0;
  for (const Case& c : read_cases()) {
    const Tensor tensor = tensor_of(c);
    const NumberFormat numbers(tensor, c.options);
    for_each_index(tensor.shape(), [&](const Index& index) {
      const std::string text = numbers.padded(tensor, index);
      ASSERT_EQ(text.size(), static_cast<std::size_t>(numbers.width())) << c.name << text;
      // The largest int64 values are not exact as double.
      if (c.name.find("ends") == std::string::npos && c.name.find("exact") == std::string::npos) {
        ASSERT_EQ(numbers.padded(tensor.value(index)), text) << c.name;
      }
      ++checked;
    });
  }
  EXPECT_GE(checked, 10000);
}

TEST(ArrayFormat, StridedViewsPrintLikeTheirCopies) {
  const Tensor matrix = Tensor::matrix({{1, 2.5, -3}, {40, 5, 6}});
  const TensorView turned = matrix.view().transposed(0, 1);
  EXPECT_EQ(format_array(turned), "[[ 1.  40. ]\n [ 2.5  5. ]\n [-3.   6. ]]");
  EXPECT_EQ(format_array(turned), format_array(Tensor(turned)));
  const ArrayFormat summary{.threshold = 3, .edge_items = 1};
  EXPECT_EQ(format_array(turned, summary), "[[ 1. 40.]\n ...\n [-3.  6.]]");
}

TEST(ArrayFormat, IgnoresTheLocale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::string c_locale = std::setlocale(LC_ALL, nullptr);
  const std::locale cpp_locale = std::locale::global(std::locale(std::locale(), new Comma));
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // affects C functions, if installed
  const std::string floats = format_array(Tensor::matrix({{1234.5, 0.25}}), {.suppress = true});
  const std::string integers = format_array(Tensor::from<std::int64_t>({1}, {1234567}));
  std::locale::global(cpp_locale);
  std::setlocale(LC_ALL, c_locale.c_str());
  EXPECT_EQ(floats, "[[1234.5     0.25]]");
  EXPECT_EQ(integers, "[1234567]");
}

TEST(ArrayFormat, RejectsInvalidOptions) {
  const Tensor tensor = Tensor::matrix({{1.0}});
  const auto message = [&](const ArrayFormat& options) {
    return message_of([&] { format_array(tensor, options); });
  };
  EXPECT_EQ(message({.precision = -1}), "format: expected a precision in 0 .. 1074, got -1");
  EXPECT_EQ(message({.precision = 1075}), "format: expected a precision in 0 .. 1074, got 1075");
  EXPECT_EQ(message({.threshold = -2}), "format_array: expected a threshold of 0 or more, got -2");
  EXPECT_EQ(message({.edge_items = -3}), "format_array: expected edge_items of 0 or more, got -3");
  EXPECT_EQ(message({.line_width = -4}),
            "format_array: expected a line_width of 0 or more, got -4");
  EXPECT_EQ(message_of([] { format_array(TensorView()); }), "format: expected a tensor, got none");
  const float* const none = nullptr;
  EXPECT_EQ(message_of([&] { format_array(TensorView(none, {2})); }),
            "format_array: expected data for shape [2], got a null pointer");
}

TEST(ArrayFormat, TheLongestTextFits) {
  const double largest = std::numeric_limits<double>::max();
  const Tensor tensor = Tensor::matrix({{-1.0, 5e-324}});
  const ArrayFormat options{
      .precision = kMaxPrecision, .suppress = true, .mode = FloatMode::kFixed};
  const std::string text = format_array(tensor, options);
  EXPECT_EQ(text.substr(0, 6), "[[-1.0");
  EXPECT_EQ(text.substr(text.size() - 5), "625]]");  // the last digits of 2^-1074
  EXPECT_EQ(NumberFormat(tensor, options).padded(-largest).size(), 1U + 309U + 1U + kMaxPrecision);
}

TEST(NumberFormat, FixedModeSuitsTables) {
  const Tensor tensor = Tensor::matrix({{0.95438, 1.495}, {-0.00004, 12.0}});
  const NumberFormat numbers(tensor, {.precision = 4, .suppress = true, .mode = FloatMode::kFixed});
  EXPECT_EQ(numbers.width(), 7);
  EXPECT_FALSE(numbers.scientific());
  EXPECT_EQ(numbers.padded(0.95438), " 0.9544");
  EXPECT_EQ(numbers.padded(1.495), " 1.4950");
  EXPECT_EQ(numbers.padded(-0.00004), "-0.0000");
  EXPECT_EQ(numbers.trimmed(1.495), "1.4950");
  EXPECT_EQ(numbers.trimmed(12.0), "12.0000");
  EXPECT_EQ(numbers.padded(-kInf), "   -inf");
  EXPECT_EQ(numbers.padded(-1234.5), "-1234.5000");  // not an element, so it may be wider
}

TEST(NumberFormat, ScientificForm) {
  const Tensor tensor = Tensor::matrix({{1e-30, -2.5e100}});
  const NumberFormat numbers(tensor, {});
  EXPECT_TRUE(numbers.scientific());
  EXPECT_EQ(numbers.padded(1e-30), " 1.0e-030");
  EXPECT_EQ(numbers.trimmed(1e-30), "1.0e-030");
  EXPECT_EQ(numbers.padded(-2.5e100), "-2.5e+100");
  EXPECT_EQ(numbers.padded(std::numeric_limits<double>::quiet_NaN()), "      nan");
}

TEST(NumberFormat, TrimmedDropsSpacesOnBothSides) {
  const NumberFormat floats(Tensor::matrix({{1.0, -10.25}}), {});
  EXPECT_EQ(floats.padded(1.0), "  1.  ");
  EXPECT_EQ(floats.trimmed(1.0), "1.");
  const NumberFormat integers(Tensor::from<std::int64_t>({2}, {7, -100}), {});
  EXPECT_EQ(integers.padded(7.0), "   7");
  EXPECT_EQ(integers.trimmed(7.0), "7");
  EXPECT_EQ(integers.trimmed(-100.0), "-100");
}

TEST(NumberFormat, EmptyTensorsHaveNoColumns) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kBool}) {
    EXPECT_EQ(NumberFormat(Tensor(dtype, {3, 0}), {}).width(), 0) << dtype_name(dtype);
  }
}

TEST(NumberFormat, IntegersBeyondDoublesAreExactByIndex) {
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;
  const Tensor tensor = Tensor::from<std::int64_t>({1}, {odd});
  EXPECT_EQ(NumberFormat(tensor, {}).padded(tensor, {0}), "9007199254740993");
}

}  // namespace
}  // namespace fovea
