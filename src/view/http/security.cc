// SPDX-License-Identifier: Apache-2.0
//
// Checks of requests and fields of responses (security.h).

#include "view/http/security.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "picture/base64.h"
#include "view/http/sha256.h"

namespace fovea::view {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Returns whether `text` is ":" and a port, or nothing.
bool is_port(std::string_view text) {
  constexpr std::size_t kLongest = 5;
  if (text.empty()) return true;
  return text.front() == ':' && text.size() <= 1 + kLongest && is_digits(text.substr(1));
}

}  // namespace

std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getentropy(bytes.data(), bytes.size()) != 0) {
    throw std::runtime_error(
        fmt::format("no random numbers from the system: {}", std::strerror(errno)));
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

bool same_secret(std::string_view expected, std::string_view got) {
  if (expected.size() != got.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference |= static_cast<unsigned char>(expected[i]) ^ static_cast<unsigned char>(got[i]);
  }
  return difference == 0;
}

void require_own_host(const HttpRequest& request) {
  if (request.host) {
    for (const std::string_view own : {"localhost", "127.0.0.1", "[::1]"}) {
      const std::string_view host = *request.host;
      if (host.starts_with(own) && is_port(host.substr(own.size()))) return;
    }
  }
  throw HttpError(421, "host", "Host: expected localhost, 127.0.0.1 or [::1]");
}

void require_own_origin(const HttpRequest& request, bool api) {
  if (request.origin && *request.origin != "http://" + request.host.value_or("")) {
    throw HttpError(403, "origin", "Origin: expected this server");
  }
  if (api && request.fetch_site && *request.fetch_site != "same-origin" &&
      *request.fetch_site != "none") {
    throw HttpError(403, "origin", "Sec-Fetch-Site: expected same-origin");
  }
}

void require_token(const HttpRequest& request, std::string_view token) {
  if (request.token && same_secret(token, *request.token)) return;
  throw HttpError(401, "token", "X-Fovea-Token: expected the token of the URL that was printed");
}

std::string mistake_in_origin(std::string_view origin) {
  std::string_view host = origin;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) host.remove_prefix(scheme.size());
  }
  // Other characters could end the directive of the policy.
  const bool ipv6 = host.starts_with('[');
  const std::size_t end =
      ipv6 ? std::min(host.find_first_not_of("0123456789abcdefABCDEF:", 1), host.size())
           : std::min(host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789.-"),
                      host.size());
  const bool named = host.size() < origin.size() && end > (ipv6 ? 1 : 0);
  std::string_view port = host.substr(end);
  const bool closed = !ipv6 || port.starts_with(']');
  if (ipv6 && closed) port.remove_prefix(1);
  if (named && closed && (is_port(port) || port == ":*")) return {};
  return fmt::format("expected an origin such as http://localhost:8888, got \"{}\"", origin);
}

std::vector<std::string> script_sources(std::string_view page) {
  constexpr std::string_view kBegin = "<script>", kEnd = "</script>";
  std::vector<std::string> sources;
  for (std::size_t at = page.find(kBegin); at != std::string_view::npos;
       at = page.find(kBegin, at)) {
    at += kBegin.size();
    const std::string_view script = page.substr(at, page.find(kEnd, at) - at);
    sources.push_back(fmt::format("'sha256-{}'", base64(sha256(script))));
  }
  return sources;
}

std::vector<std::pair<std::string, std::string>> security_fields(
    const std::vector<std::string>& script_sources, const std::vector<std::string>& embed) {
  std::string scripts;
  for (const std::string& source : script_sources) scripts += " " + source;
  return {
      {"Content-Security-Policy",
       fmt::format("default-src 'none'; script-src 'self'{}; style-src 'self' 'unsafe-inline'; "
                   "img-src 'self' blob: data:; connect-src 'self'; frame-src 'self'; "
                   "base-uri 'none'; form-action 'none'; frame-ancestors {}",
                   scripts, embed.empty() ? "'none'" : fmt::format("{}", fmt::join(embed, " ")))},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"}};
}

}  // namespace fovea::view
