// SPDX-License-Identifier: Apache-2.0
//
// NumPy's number formatters (number_format.h). Digits come from std::to_chars, which is exact and
// locale-independent. Without a precision, std::to_chars gives NumPy's "unique" digits; with a
// precision, it gives correctly rounded digits.

#include "core/number_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

#include "core/fail.h"

namespace fovea {
namespace {

// The parts of "-12.5e+07": "-12", "5" and "+07".
struct Digits {
  std::string integer;
  std::string fraction;
  std::string exponent;
};

// The longest text is that of -DBL_MAX with kMaxPrecision digits: 1 + 309 + 1 + 1074.
constexpr std::size_t kLongestText = 1536;

template <class... Args>
Digits digits_of(Args... args) {
  std::array<char, kLongestText> buffer;
  const char* const first = buffer.data();
  const char* const last = std::to_chars(buffer.data(), buffer.data() + buffer.size(), args...).ptr;
  const char* const mark = std::find(first, last, 'e');
  const char* const point = std::find(first, mark, '.');
  return {.integer = {first, point},
          .fraction = {std::min(point + 1, mark), mark},
          .exponent = {std::min(mark + 1, last), last}};
}

// Returns the digits of `value`, correctly rounded to `count` digits after the point.
Digits rounded_digits(double value, std::chars_format form, int count) {
  return digits_of(value, form, count);
}

// Returns the decimal number with the fewest digits that rounds to `value`. `value` must be
// representable in Half.
template <class Half>
double shortest_decimal(double value) {
  double decimal = value;
  for (int digits = 0; digits < 5; ++digits) {  // five digits identify any 16-bit value
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                   std::chars_format::scientific, digits)
                         .ptr;
    std::from_chars(text.data(), end, decimal);
    if (Half(decimal).bits == Half(value).bits) break;
  }
  return decimal;
}

// Returns the fewest digits that identify `value` uniquely within its type.
Digits shortest_digits(double value, DType dtype, std::chars_format form) {
  switch (dtype) {
    case DType::kFloat32:
      return digits_of(static_cast<float>(value), form);
    case DType::kFloat16:
      return digits_of(shortest_decimal<Float16>(value), form);
    case DType::kBFloat16:
      return digits_of(shortest_decimal<BFloat16>(value), form);
    default:
      return digits_of(value, form);
  }
}

int length(const std::string& text) { return static_cast<int>(text.size()); }

// Returns as many digits after the point as needed, but at most `precision` (no limit if negative)
// and at least `min_digits`.
Digits needed_digits(double value, DType dtype, std::chars_format form, int precision,
                     int min_digits) {
  Digits digits = shortest_digits(value, dtype, form);
  const int count = length(digits.fraction);
  if (precision >= 0 && count > precision) {
    digits = rounded_digits(value, form, precision);
    digits.fraction.resize(digits.fraction.find_last_not_of('0') + 1);  // npos + 1 == 0
  } else if (count < min_digits) {
    // Like NumPy, pad with digits of the exact binary value rather than with zeros: the float32
    // value 0.1 is printed as 1.00000001e-01 next to a number that needs eight digits.
    digits = rounded_digits(value, form, min_digits);
  }
  if (length(digits.fraction) < min_digits) {
    digits.fraction.resize(static_cast<std::size_t>(min_digits), '0');
  }
  return digits;
}

double rounded_to(DType dtype, double x) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<double>(static_cast<float>(x));
    case DType::kFloat16:
      return static_cast<double>(static_cast<float>(Float16(x)));
    case DType::kBFloat16:
      return static_cast<double>(static_cast<float>(BFloat16(x)));
    default:
      return x;
  }
}

// NumPy compares in the tensor's own type: 1e-4 in float32 is slightly smaller than in float64.
// NumPy has no bfloat16, so bfloat16 uses the thresholds of float32.
bool needs_exponent(double largest, double smallest, bool suppress, DType dtype) {
  const double large = dtype == DType::kFloat64 ? 1e8 : dtype == DType::kFloat16 ? 1e3 : 1e6;
  if (largest >= large) return true;
  return !suppress &&
         (smallest < rounded_to(dtype, 1e-4) || rounded_to(dtype, largest / smallest) > 1000.0);
}

// The properties of a float tensor that determine its format.
struct FloatSurvey {
  double largest = 0.0;  // maximum of |x| over finite, non-zero x; 0 if there are none
  double smallest = std::numeric_limits<double>::infinity();
  bool any_finite = false;
  bool any_not_finite = false;
  bool any_minus_infinity = false;

  void add(double x) {
    if (!std::isfinite(x)) {
      any_not_finite = true;
      any_minus_infinity = any_minus_infinity || (std::isinf(x) && x < 0.0);
      return;
    }
    any_finite = true;
    if (x == 0.0) return;
    largest = std::max(largest, std::fabs(x));
    smallest = std::min(smallest, std::fabs(x));
  }
};

}  // namespace

NumberFormat::NumberFormat(const TensorView& values, const ArrayFormat& options)
    : dtype_(values.dtype()),
      mode_(options.mode),
      precision_(options.mode == FloatMode::kUnique ? -1 : options.precision),
      scalar_(values.rank() == 0) {
  if (!values.defined()) throw InvalidArgument("format: expected a tensor, got none");
  if (options.precision < 0 || options.precision > kMaxPrecision) {
    fail("format: expected a precision in 0 .. {}, got {}", kMaxPrecision, options.precision);
  }
  if (values.size() == 0) return;
  switch (dtype_) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
      fit_floats(values, options.suppress);
      break;
    case DType::kInt64:
      fit_integers(values);
      break;
    case DType::kBool:
      width_ = scalar_ ? length(padded_bool(values.at<bool>(Index()))) : length(padded_bool(true));
      break;
  }
}

void NumberFormat::fit_floats(const TensorView& values, bool suppress) {
  FloatSurvey survey;
  for_each_index(values.shape(), [&](const Index& index) { survey.add(values.value(index)); });
  if (survey.largest > 0.0) {
    scientific_ = needs_exponent(survey.largest, survey.smallest, suppress, dtype_);
  }

  // Pass 1 formats every number with its own digit count and records the maximum widths. Pass 2, in
  // padded_float, pads every number to these widths.
  const std::chars_format form =
      scientific_ ? std::chars_format::scientific : std::chars_format::fixed;
  int fraction_digits = 0;
  for_each_index(values.shape(), [&](const Index& index) {
    const double x = values.value(index);
    if (!std::isfinite(x)) return;
    const Digits digits = mode_ == FloatMode::kFixed
                              ? rounded_digits(x, form, precision_)
                              : needed_digits(x, dtype_, form, precision_, 0);
    left_columns_ = std::max(left_columns_, length(digits.integer));
    fraction_digits = std::max(fraction_digits, length(digits.fraction));
    exponent_digits_ = std::max(exponent_digits_, length(digits.exponent) - 1);
  });

  right_columns_ = fraction_digits;
  if (scientific_) {
    right_columns_ += 2 + exponent_digits_;  // "e", its sign, its digits
    precision_ = min_digits_ = fraction_digits;
  } else if (survey.any_finite &&
             (mode_ == FloatMode::kFixed || mode_ == FloatMode::kMaxprecEqual)) {
    precision_ = min_digits_ = fraction_digits;
  }
  if (survey.any_not_finite) {
    const int longest = survey.any_minus_infinity ? 4 : 3;  // "-inf", else "inf" or "nan"
    left_columns_ = std::max(left_columns_, longest - right_columns_ - 1);
  }
  width_ = left_columns_ + 1 + right_columns_;
}

void NumberFormat::fit_integers(const TensorView& values) {
  std::int64_t largest = std::numeric_limits<std::int64_t>::min();
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  for_each_index(values.shape(), [&](const Index& index) {
    const std::int64_t x = values.at<std::int64_t>(index);
    largest = std::max(largest, x);
    smallest = std::min(smallest, x);
  });
  width_ = static_cast<int>(
      std::max(fmt::formatted_size("{}", largest), fmt::formatted_size("{}", smallest)));
}

std::string NumberFormat::padded_float(double value) const {
  if (std::isnan(value)) return fmt::format("{:>{}}", "nan", width_);
  if (std::isinf(value)) return fmt::format("{:>{}}", value < 0.0 ? "-inf" : "inf", width_);

  const std::chars_format form =
      scientific_ ? std::chars_format::scientific : std::chars_format::fixed;
  Digits digits = mode_ == FloatMode::kFixed
                      ? rounded_digits(value, form, precision_)
                      : needed_digits(value, dtype_, form, precision_, min_digits_);
  std::string right = std::move(digits.fraction);
  if (scientific_) {
    right += 'e';
    right += digits.exponent.front();
    right += fmt::format("{:0>{}}", std::string_view(digits.exponent).substr(1), exponent_digits_);
  }
  return fmt::format("{:>{}}.{:<{}}", digits.integer, left_columns_, right, right_columns_);
}

std::string NumberFormat::padded_bool(bool value) const {
  if (!value) return "False";
  return scalar_ ? "True" : " True";
}

std::string NumberFormat::padded(double value) const {
  switch (dtype_) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
      return padded_float(value);
    case DType::kInt64:
      return fmt::format("{:>{}.0f}", value, width_);
    case DType::kBool:
      return padded_bool(value != 0.0);
  }
  return {};
}

std::string NumberFormat::padded(const TensorView& values, const Index& index) const {
  if (dtype_ == DType::kInt64) {
    return fmt::format("{:>{}}", values.at<std::int64_t>(index), width_);
  }
  return padded(values.value(index));
}

std::string NumberFormat::trimmed(double value) const {
  const std::string text = padded(value);
  const std::size_t first = text.find_first_not_of(' ');
  const std::size_t last = text.find_last_not_of(' ');
  return text.substr(first, last - first + 1);
}

}  // namespace fovea
