// SPDX-License-Identifier: Apache-2.0
//
// Fuzzer for requests to the viewer. An input is a target and, after a line break, a body. The only
// exceptions allowed are HttpError and, for a body, InvalidArgument.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "fovea/error.h"

#include "view/api/arguments.h"
#include "view/api/find.h"
#include "view/http/security.h"

namespace {

using namespace fovea::view;

/// Runs a part of the work, whose refusal must be JSON.
template <class Part>
void refused_or_done(const Part& part) {
  try {
    part();
  } catch (const HttpError& error) {
    const HttpResponse response = error_response(error);
    if (!nlohmann::json::accept(response.body.bytes)) std::abort();
  }
}

void read_arguments(std::string_view query) {
  const Arguments arguments(query, "text,after,query,range,side");
  const std::vector<std::string> tokens = {"a", "", " b", "a", "\xc3\xa9"};
  refused_or_done([&] {
    const std::string text = arguments.text("text");
    if (!text.empty()) find_in_tokens(tokens, text, {.fold = true});
  });
  refused_or_done([&] {
    const std::int64_t number = arguments.integer("after", 0, 9);
    if (number < 0 || number > 9) std::abort();
  });
  refused_or_done([&] {
    for (const std::int64_t number : arguments.integers("query", 9, 4)) {
      if (number < 0 || number > 9) std::abort();
    }
  });
  refused_or_done([&] {
    const fovea::IndexRange range = arguments.range("range", 9);
    if (range.begin < 0 || range.begin >= range.end || range.end > 9) std::abort();
  });
  refused_or_done([&] { arguments.choice("side", {"query", "key"}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = input.find('\n');
  const std::string_view text = input.substr(0, line);
  refused_or_done([&] {
    const Target target = parse_target(text);
    for (const std::string& segment : target.path) {
      if (segment.empty() || segment == ".." || segment.find('/') != segment.npos) std::abort();
    }
    read_arguments(target.query);
  });
  HttpRequest request;
  request.host = std::string(text);
  request.origin = "http://" + *request.host;
  refused_or_done([&] {
    require_own_host(request);
    require_own_origin(request, true);
    if (text.size() >= sizeof("localhost:65535")) std::abort();
  });
  if (mistake_in_origin(text).empty() && text.find_first_of(" ;,'\"") != text.npos) std::abort();
  if (line == input.npos) return 0;
  refused_or_done([&] {
    try {
      parse_pass(input.substr(line + 1), 100);
    } catch (const fovea::InvalidArgument&) {
    }
  });
  return 0;
}
