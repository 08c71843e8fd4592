// SPDX-License-Identifier: Apache-2.0
//
// Errors and values as JSON (http.h).

#include "view/http/http.h"

#include <cmath>

#include <fmt/format.h>

#include "json/json_text.h"
#include "text/text_width.h"

namespace fovea::view {

HttpResponse error_response(const HttpError& error) {
  const std::string argument =
      error.argument().empty() ? "" : ",\"argument\":" + harmless_json_string(error.argument());
  HttpResponse response = {.status = error.status(),
                           .body = fmt::format("{{\"error\":{{\"code\":{},\"message\":{}{}}}}}",
                                               harmless_json_string(error.code()),
                                               harmless_json_string(error.what()), argument)};
  constexpr int kTooMany = 429;
  if (error.status() == kTooMany) response.fields.emplace_back("Retry-After", "1");
  return response;
}

std::string json_text(std::string_view text) {
  return is_utf8(text) ? json_string(text) : harmless_json_string(text);
}

std::string json_number(double number) {
  if (std::isnan(number)) return "\"nan\"";
  if (std::isinf(number)) return number > 0.0 ? "\"inf\"" : "\"-inf\"";
  return fmt::format("{}", number);
}

}  // namespace fovea::view
