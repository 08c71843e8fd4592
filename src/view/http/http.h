// SPDX-License-Identifier: Apache-2.0
//
// Requests, responses and errors of the viewer, without the server that carries them.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::view {

/// The parts of a request that are used. Fields that are missing, or given more than once, are
/// nullopt.
struct HttpRequest {
  std::string method;
  std::string target;  ///< as received: "/map/a-1/3.2?x=1"
  std::optional<std::string> host = {}, origin = {}, fetch_site = {}, token = {};
  std::optional<std::string> if_none_match = {};
  std::string body = {};
};

/// Bytes to send, and the owner of their memory; null if they live as long as the program.
struct HttpBody {
  HttpBody() = default;
  HttpBody(std::string text)  // NOLINT: implicit on purpose
      : HttpBody(std::make_shared<const std::string>(std::move(text))) {}
  HttpBody(std::shared_ptr<const std::string> text)  // NOLINT: implicit on purpose
      : owner(text), bytes(*text) {}
  /// Returns bytes that live as long as the program.
  static HttpBody constant(std::string_view bytes) {
    HttpBody body;
    body.bytes = bytes;
    return body;
  }

  std::shared_ptr<const void> owner;
  std::string_view bytes;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  HttpBody body = {};
  /// Fields beside those that every response has. Without "Cache-Control", it is "no-store".
  std::vector<std::pair<std::string, std::string>> fields = {};
};

/// Called once, from any thread.
using HttpReply = std::function<void(HttpResponse)>;
/// Called from the thread of the sockets, which it must not block. `stop` is requested when the
/// client has closed its connection; the reply may then be omitted.
using HttpHandler = std::function<void(HttpRequest, std::stop_token stop, HttpReply)>;

/// A request that is refused.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, std::string code, const std::string& message, std::string argument = {})
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        argument_(std::move(argument)) {}

  int status() const { return status_; }
  const std::string& code() const { return code_; }          ///< for programs: "malformed"
  const std::string& argument() const { return argument_; }  ///< "query"; may be empty

 private:
  int status_;
  std::string code_, argument_;
};

/// Returns the response for an error: {"error": {"code", "message", "argument"}}.
HttpResponse error_response(const HttpError& error);

/// Returns text in quotes. Bytes that are not UTF-8, and invisible code points, are escaped.
std::string json_text(std::string_view text);
/// Returns a number that reads back to the same bits; "-inf", "inf" and "nan" are strings.
std::string json_number(double number);

}  // namespace fovea::view
