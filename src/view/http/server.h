// SPDX-License-Identifier: Apache-2.0
//
// The HTTP/1.1 server of the viewer: one thread, loopback only, with limits on everything that a
// client can make it hold. Knows nothing about attention.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "view/http/http.h"

namespace fovea::view {

/// Limits   8 KiB of header fields (431), 64 KiB of body (413), 4 KiB of request target (413), 10 s
///          for a whole request and 30 s without one (closed), 64 connections (429, closed). A
///          connection holds at most one request at a time.
/// Threads  one, that of run(). Replies may come from any thread.
class Server {
 public:
  /// Binds to 127.0.0.1 and, if there is one, [::1], at `port`; 0: a free one. From then on
  /// SIGINT, SIGTERM and SIGHUP, unless ignored, end run(). Throws InvalidArgument if the port is
  /// in use.
  explicit Server(int port);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Also ends run() when nothing more can be read from a pipe, terminal or socket, which then
  /// belongs to the server.
  void end_with(int descriptor);

  int port() const;
  /// Returns the number of open connections; from any thread.
  std::int64_t connections() const;

  /// Answers requests until a signal. `fields` are sent with every response. Replies may still be
  /// called afterwards, as long as the server exists, and then do nothing.
  void run(HttpHandler handler, std::vector<std::pair<std::string, std::string>> fields);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fovea::view
