// SPDX-License-Identifier: Apache-2.0
//
// Formatting of quantities (units.h).

#include "cli/shell/units.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace fovea::cli {

std::string time_text(double seconds) {
  constexpr std::array<std::pair<std::string_view, double>, 3> kUnits = {
      {{"ns", 1e9}, {"us", 1e6}, {"ms", 1e3}}};
  for (const auto& [unit, per_second] : kUnits) {
    const double number = seconds * per_second;
    if (number < 9.995) return fmt::format("{:.2f} {}", number, unit);
    if (number < 99.95) return fmt::format("{:.1f} {}", number, unit);
    if (number < 999.5) return fmt::format("{:.0f} {}", number, unit);
  }
  return fmt::format("{:.2f} s", seconds);
}

std::string counted(std::int64_t number, std::string_view what, std::string_view plural) {
  if (number != 1 && !plural.empty()) return fmt::format("{} {}", number, plural);
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", share * 100.0); }

}  // namespace fovea::cli
