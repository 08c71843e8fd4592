// SPDX-License-Identifier: Apache-2.0
//
// NumPy's number formats (core/number_format.h), with a different rule for scientific notation
// (number_text.h).

#include "scene/trace/number_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace fovea::scene {
namespace {

constexpr double kLargestWhole = 1e9;  // larger integers are more readable in scientific notation

std::string not_finite(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

template <class T>
NumberFormat finite_format(const std::vector<double>& finite, int precision, SmallNumbers small) {
  std::vector<T> values;
  for (const double value : finite) values.push_back(static_cast<T>(value));
  ArrayFormat options;
  options.precision = precision;
  options.mode = FloatMode::kMaxprecEqual;
  // NumPy switches to scientific notation if the largest value is 1000 times the smallest, so a
  // single small value changes the whole array. 0.0021 in a column of decimals is more readable.
  const double least_shown = 0.5 * std::pow(10.0, -precision);
  const auto lost = std::count_if(finite.begin(), finite.end(), [&](double value) {
    return value != 0.0 && std::abs(value) < least_shown;
  });
  const auto zeros = std::count(finite.begin(), finite.end(), 0.0);
  options.suppress = small == SmallNumbers::kBound ||
                     2 * lost < static_cast<std::ptrdiff_t>(finite.size()) - zeros;
  const Tensor tensor = Tensor::from<T>({static_cast<std::int64_t>(values.size())}, values);
  return NumberFormat(tensor, options);
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

NumberText::NumberText(const TensorView& values, int precision, SmallNumbers small) {
  if (small == SmallNumbers::kBound) {
    const double least = std::pow(10.0, -precision);
    least_ = fmt::format("{:.{}f}", least, precision);
    half_least_ = 0.5 * least;
  }
  std::vector<double> finite;
  bool whole = true;
  for_each_index(values.shape(), [&](const Index& index) {
    const double value = values.value(index);
    if (!std::isfinite(value)) {
      width_ = std::max(width_, static_cast<int>(not_finite(value).size()));
      return;
    }
    finite.push_back(value);
    whole = whole && value == std::floor(value) && std::abs(value) < kLargestWhole;
  });
  if (!whole) {
    format_.emplace(values.dtype() == DType::kFloat32
                        ? finite_format<float>(finite, precision, small)
                        : finite_format<double>(finite, precision, small));
  }
  for (const double value : finite) {
    const auto columns = static_cast<int>(trimmed(value).size());
    width_ = std::max(width_, columns);
  }
}

std::string NumberText::padded(double value) const {
  return fmt::format("{:>{}}", trimmed(value), width_);
}

bool NumberText::is_bound(double value) const { return std::abs(value) < half_least_; }

std::string NumberText::trimmed(double value) const {
  if (!std::isfinite(value)) return not_finite(value);
  if (is_bound(value)) return value == 0.0 ? "0" : (value > 0.0 ? "<" : ">-") + least_;
  if (!format_) return fmt::format("{:.0f}", value == 0.0 ? 0.0 : value);  // no "-0"
  // NumPy marks floats with a trailing point ("2.", "5.e-01"), which is noise here.
  std::string text(trim(format_->padded(value)));
  const auto point = text.find('.');
  if (point + 1 == text.size() || (point < text.size() && text[point + 1] == 'e')) {
    text.erase(point, 1);
  }
  return text;
}

}  // namespace fovea::scene
