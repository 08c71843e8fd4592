// SPDX-License-Identifier: Apache-2.0
//
// The server (server.h), with Boost.Asio and Boost.Beast. The only file that includes them, because
// they take long to compile.

#include "view/http/server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>  // before asio.hpp, which Boost 1.74 forgets with GCC 12

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <sys/socket.h>

#include "core/fail.h"

namespace fovea::view {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

constexpr std::uint32_t kMaxFields = 8 << 10;
constexpr std::uint64_t kMaxBody = 64 << 10;
constexpr std::size_t kMaxTarget = 4 << 10;
constexpr std::size_t kMaxBuffer = std::size_t{kMaxFields} + kMaxBody;
constexpr std::int64_t kMaxConnections = 64;
constexpr std::chrono::seconds kRequestTime(10), kIdleTime(30), kFarewellTime(1);

/// The data that connections share.
struct Shared {
  HttpHandler handler;
  std::vector<std::pair<std::string, std::string>> fields;
  std::atomic<std::int64_t> connections = 0;
};

/// Returns a copy; the type of Beast's views depends on the version.
template <class View>
std::string text_of(const View& view) {
  return {view.data(), view.size()};
}

/// Returns the value of a field that occurs once.
std::optional<std::string> field(const http::fields& fields, const char* name) {
  const auto [first, last] = fields.equal_range(name);
  if (first == last || std::next(first) != last) return {};
  return text_of(first->value());
}

/// A connection. Every pending operation holds a pointer to it, so it lives until it is closed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {
    ++shared_.connections;
  }
  ~Connection() { --shared_.connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Waits for the first bytes of a request.
  void await_request() {
    parser_.emplace();
    parser_->header_limit(kMaxFields);
    parser_->body_limit(kMaxBody);
    if (buffer_.size() > 0) return read_request();
    stream_.expires_after(kIdleTime);
    stream_.async_read_some(buffer_.prepare(kMaxFields),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              if (error) return self->close();
                              self->buffer_.commit(bytes);
                              self->read_request();
                            });
  }

 private:
  void read_request() {
    stream_.expires_after(kRequestTime);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, std::size_t /*bytes*/) {
                       self->received(error);
                     });
  }

  void received(error_code error) {
    if (error == http::error::header_limit) {
      return refuse({431, "too_large",
                     fmt::format("expected at most {} bytes of header fields", kMaxFields)});
    }
    if (error == http::error::body_limit) {
      return refuse({413, "too_large", fmt::format("expected at most {} bytes of body", kMaxBody)});
    }
    if (error == http::error::buffer_overflow) {
      return refuse({413, "too_large", "expected a smaller request"});
    }
    if (error && (error == http::error::end_of_stream || error.category() != http_category())) {
      return close();
    }
    if (error) return refuse({400, "malformed", "expected a request of HTTP/1.1"});
    auto message = parser_->release();
    keep_alive_ = message.keep_alive();
    if (message.target().size() > kMaxTarget) {
      return refuse({413, "too_large",
                     fmt::format("expected at most {} bytes of request target", kMaxTarget)});
    }
    HttpRequest request;
    request.method = text_of(message.method_string());
    request.target = text_of(message.target());
    head_only_ = request.method == "HEAD";
    request.host = field(message, "Host");
    request.origin = field(message, "Origin");
    // Doubled, it is not a value to trust.
    if (!request.origin && message.count("Origin") > 0) request.origin = "";
    request.fetch_site = field(message, "Sec-Fetch-Site");
    if (!request.fetch_site && message.count("Sec-Fetch-Site") > 0) request.fetch_site = "";
    request.token = field(message, "X-Fovea-Token");
    request.if_none_match = field(message, "If-None-Match");
    request.body = std::move(message.body());
    answer(std::move(request));
  }

  static const boost::system::error_category& http_category() {
    return make_error_code(http::error::bad_target).category();
  }

  void answer(HttpRequest request) {
    waiting_ = true;
    stop_ = std::stop_source();
    stream_.expires_never();
    watch();
    // Replies may come while the handler runs, later, or never.
    shared_.handler(std::move(request), stop_.get_token(),
                    [self = shared_from_this(), stop = stop_](HttpResponse response) {
                      net::post(self->stream_.get_executor(),
                                [self, stop, response = std::move(response)]() mutable {
                                  if (self->stop_ != stop) return;  // of an earlier request
                                  self->send(std::move(response));
                                });
                    });
  }

  /// Notices that the client closes its side while it waits for the response.
  void watch() {
    if (watching_) return;
    watching_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this()](error_code error) {
                                  self->watching_ = false;
                                  if (!error) self->look();
                                });
  }

  void look() {
    if (!waiting_) return;  // the bytes are those of the next request
    char byte = 0;
    const auto size = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    // Further bytes are a request sent ahead of the response, which stay in the socket.
    if (size > 0) return;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return watch();
    close();
  }

  void refuse(const HttpError& error) {
    keep_alive_ = false;
    waiting_ = true;
    send(error_response(error));
  }

  void send(HttpResponse response) {
    if (!waiting_) return;
    waiting_ = false;
    response_ = std::move(response);
    message_.emplace();
    message_->result(static_cast<unsigned>(response_.status));
    message_->version(11);
    for (const auto& [name, value] : shared_.fields) message_->insert(name, value);
    bool cached = false;
    for (const auto& [name, value] : response_.fields) {
      message_->insert(name, value);
      cached = cached || name == "Cache-Control";
    }
    if (!cached) message_->set(http::field::cache_control, "no-store");
    constexpr int kNotModified = 304;
    if (response_.status != kNotModified) {
      message_->set(http::field::content_type, response_.type);
      const std::string_view bytes = response_.body.bytes;
      if (!head_only_) message_->body() = {bytes.data(), bytes.size()};
      message_->content_length(bytes.size());
    }
    message_->keep_alive(keep_alive_);
    serializer_.emplace(*message_);
    send_some();
  }

  /// The time limit is on each part, because a slow connection may take longer for all of it.
  void send_some() {
    stream_.expires_after(kIdleTime);
    http::async_write_some(stream_, *serializer_,
                           [self = shared_from_this()](error_code error, std::size_t /*bytes*/) {
                             if (error) return self->close();
                             if (!self->serializer_->is_done()) return self->send_some();
                             self->sent();
                           });
  }

  void sent() {
    serializer_.reset();
    message_.reset();
    response_ = {};
    if (keep_alive_) return await_request();
    // Closing with unread bytes would discard the response on its way.
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kFarewellTime);
    drain();
  }

  void drain() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kMaxFields),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              self->drained_ += bytes;
                              if (error || self->drained_ > kMaxBuffer) return self->close();
                              self->drain();
                            });
  }

  void close() {
    waiting_ = false;
    stop_.request_stop();
    stream_.close();
  }

  beast::tcp_stream stream_;
  Shared& shared_;
  beast::flat_buffer buffer_{kMaxBuffer};
  std::optional<http::request_parser<http::string_body>> parser_;
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool waiting_ = false;   // for the handler's response
  bool watching_ = false;  // whether an async_wait is pending
  std::size_t drained_ = 0;
  std::stop_source stop_;
  HttpResponse response_;
  std::optional<http::response<http::span_body<const char>>> message_;
  std::optional<http::response_serializer<http::span_body<const char>>> serializer_;
};

/// Returns an acceptor, or nullopt if the machine has no such address. Throws
/// boost::system::system_error.
std::optional<tcp::acceptor> listen_at(net::io_context& context, const tcp::endpoint& endpoint) {
  tcp::acceptor acceptor(context);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (error) return {};
  acceptor.set_option(net::socket_base::reuse_address(true));
  if (endpoint.protocol() == tcp::v6()) acceptor.set_option(net::ip::v6_only(true));
  acceptor.bind(endpoint, error);
  if (error == net::error::address_in_use || error == net::error::access_denied) {
    throw boost::system::system_error(error);
  }
  if (error) return {};
  acceptor.listen();
  return acceptor;
}

std::vector<tcp::acceptor> listen_on_loopback(net::io_context& context, int port) {
  constexpr int kTries = 16;
  for (int tried = 1;; ++tried) {
    std::vector<tcp::acceptor> acceptors;
    const auto place = static_cast<std::uint16_t>(port);
    try {
      if (auto ipv4 = listen_at(context, {net::ip::address_v4::loopback(), place})) {
        acceptors.push_back(std::move(*ipv4));
      }
      const std::uint16_t chosen = acceptors.empty() ? place : acceptors[0].local_endpoint().port();
      if (auto ipv6 = listen_at(context, {net::ip::address_v6::loopback(), chosen})) {
        acceptors.push_back(std::move(*ipv6));
      }
    } catch (const boost::system::system_error& error) {
      // A free port may be taken for the other address.
      if (port == 0 && tried < kTries) continue;
      fail("--port: expected a free port, got {}: {}", port, error.code().message());
    }
    if (acceptors.empty()) fail("--port: expected a loopback address, got a machine without one");
    return acceptors;
  }
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

struct Server::Parts {
  explicit Parts(int port) : acceptors(listen_on_loopback(context, port)) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      if (!is_ignored(signal)) signals.add(signal);
    }
    signals.async_wait([this](error_code error, int /*signal*/) {
      if (!error) context.stop();
    });
  }

  void accept(tcp::acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](error_code error, tcp::socket socket) {
      if (error == net::error::operation_aborted) return;
      if (error) return accept_later(acceptor);  // such as too many open files
      if (shared.connections < kMaxConnections) {
        error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        std::make_shared<Connection>(std::move(socket), shared)->await_request();
      } else {
        turn_away(socket);
      }
      accept(acceptor);
    });
  }

  void accept_later(tcp::acceptor& acceptor) {
    constexpr std::chrono::milliseconds kPause(100);
    const auto pause = std::make_shared<net::steady_timer>(context, kPause);
    pause->async_wait([this, &acceptor, pause](error_code error) {
      if (!error) accept(acceptor);
    });
  }

  /// Reads and ignores.
  void watch_lifeline() {
    lifeline.async_read_some(net::buffer(ignored_bytes), [this](error_code error, std::size_t) {
      if (error == net::error::operation_aborted) return;
      if (error) return context.stop();
      watch_lifeline();
    });
  }

  static void turn_away(tcp::socket& socket) {
    static constexpr std::string_view kBusy =
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
        "Connection: close\r\n\r\n";
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(net::buffer(kBusy.data(), kBusy.size()), ignored);
  }

  Shared shared;  // outlives the connections, which end with the context
  net::io_context context{1};
  std::vector<tcp::acceptor> acceptors;
  net::signal_set signals{context};
  net::posix::stream_descriptor lifeline{context};
  std::array<char, 64> ignored_bytes{};
};

Server::Server(int port) : parts_(std::make_unique<Parts>(port)) {}

Server::~Server() = default;

void Server::end_with(int descriptor) {
  error_code error;
  parts_->lifeline.assign(descriptor, error);
  if (error) return parts_->context.stop();  // a file, whose end has nobody behind it
  parts_->watch_lifeline();
}

int Server::port() const { return parts_->acceptors.front().local_endpoint().port(); }

std::int64_t Server::connections() const { return parts_->shared.connections; }

void Server::run(HttpHandler handler, std::vector<std::pair<std::string, std::string>> fields) {
  parts_->shared.handler = std::move(handler);
  parts_->shared.fields = std::move(fields);
  for (tcp::acceptor& acceptor : parts_->acceptors) parts_->accept(acceptor);
  parts_->context.run();
}

}  // namespace fovea::view
