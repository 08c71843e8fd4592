// SPDX-License-Identifier: Apache-2.0
//
// Replies to requests: responses of results and of exceptions, and the requests that wait for one.

#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "view/http/http.h"

namespace fovea::view {

/// Returns the response for an exception, which is the current one.
HttpResponse current_error();

HttpResponse json_response(std::string text);
HttpResponse binary_response(HttpBody bytes);

/// Returns a reply of the explorer (Reply<Result>) that makes a response of its result.
template <class Make>
auto answering(HttpReply reply, Make make) {
  return [reply = std::move(reply),
          make = std::move(make)]<class Result>(std::variant<Result, std::exception_ptr> answer) {
    HttpResponse response;
    try {
      if (const auto* error = std::get_if<std::exception_ptr>(&answer)) {
        std::rethrow_exception(*error);
      }
      response = make(std::get<Result>(std::move(answer)));
    } catch (...) {
      response = current_error();
    }
    reply(std::move(response));
  };
}

/// The requests that have no response yet. Used by one thread; the replies come from any.
class Waiting {
 public:
  /// Returns a reply of which only the first call counts.
  HttpReply add(HttpReply reply);
  /// Replies to all of them.
  void end(const HttpError& error);

 private:
  struct Pending {
    explicit Pending(HttpReply given) : reply(std::move(given)) {}
    void answer(HttpResponse response);

    HttpReply reply;
    std::atomic<bool> done = false;
  };
  std::vector<std::weak_ptr<Pending>> pending_;
};

}  // namespace fovea::view
