// SPDX-License-Identifier: Apache-2.0
//
// The pages and /api/v1 of the viewer: checks of requests, routes and their responses.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "view/explorer/explorer.h"
#include "view/http/http.h"
#include "view/input/input.h"

namespace fovea::view {

struct ApiOptions {
  std::string token;  ///< what requests to /api/ must have
  bool embed = false;
  ExplorerOptions explorer = {};
  std::function<std::int64_t()> connections = {};  ///< counts those of the server
  /// Opens a changed input again. May throw InvalidArgument and IoError.
  std::function<Input(const Input&)> reopen = {};
};

/// Threads   handle() from one thread; replies come from any.
/// Shutdown  the destructor stops computations; requests that wait for them get no reply.
class Api {
 public:
  /// Throws InvalidArgument as Explorer does.
  Api(std::vector<Input> inputs, const ApiOptions& options);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  /// An HttpHandler. The order of checks is Host, Origin, path, method, token, arguments.
  void handle(HttpRequest request, std::stop_token stop, HttpReply reply);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fovea::view
