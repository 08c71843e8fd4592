// SPDX-License-Identifier: Apache-2.0
//
// Reading and replacing the shown address (shown.h).

#include "view/api/shown.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "view/api/arguments.h"
#include "view/http/http.h"

namespace fovea::view {
namespace {

constexpr std::size_t kMaxBytes = 2048;

/// Throws HttpError 400 unless the address is a path of this server, with or without a fragment.
void check_address(std::string_view address, std::string_view token) {
  const auto printable = [](char sign) { return sign > ' ' && sign < '\x7f'; };
  // "//host" would be an address elsewhere.
  const bool own = address.starts_with('/') && !address.starts_with("//");
  if (!own || !std::all_of(address.begin(), address.end(), printable)) {
    throw malformed("address", fmt::format("expected an encoded path that begins with /, got {}",
                                           json_text(address.substr(0, 60))));
  }
  if (address.size() > kMaxBytes) {
    throw malformed("address",
                    fmt::format("expected at most {} bytes, got {}", kMaxBytes, address.size()));
  }
  if (address.find(token) != std::string_view::npos) {
    throw malformed("address", "expected none of the token, got one with it");
  }
}

}  // namespace

std::string ShownAddress::json() const {
  return fmt::format("{{\"version\":{},\"address\":{},\"program\":{}}}", version_,
                     json_text(address_), program_);
}

std::string ShownAddress::replace(std::string_view body, std::string_view token) {
  const auto given = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object() || !given.contains("address") || !given["address"].is_string()) {
    throw malformed("address", "expected an object with an address, got another body");
  }
  const auto& address = given["address"].get_ref<const std::string&>();
  check_address(address, token);
  const bool program = given.contains("program") && given["program"] == true;
  if (!program) {
    if (!given.contains("after") || !given["after"].is_number_integer()) {
      throw malformed("after", "expected the version of the address that the page knows");
    }
    if (given["after"] != version_) {
      throw HttpError(409, "newer", "address: expected the latest version as \"after\"", "after");
    }
  }
  ++version_;
  address_ = address;
  program_ = program;
  return fmt::format("{{\"version\":{}}}", version_);
}

}  // namespace fovea::view
