// SPDX-License-Identifier: Apache-2.0
//
// Routes and responses (api.h).

#include "view/api.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"
#include "fovea/info.h"

#include "view/arguments.h"
#include "view/assets.h"
#include "view/describe.h"
#include "view/find.h"
#include "view/security.h"

namespace fovea::view {
namespace {

/// Returns the response for an exception, which is the current one.
HttpResponse current_error() {
  try {
    throw;
  } catch (const HttpError& error) {
    return error_response(error);
  } catch (const InvalidArgument& error) {
    return error_response({400, "malformed", error.what(), std::string(error.argument())});
  } catch (const std::bad_alloc&) {
    return error_response({503, "memory", "out of memory"});
  } catch (const Stopped&) {
    return error_response({503, "stopped", "stopped"});
  } catch (const std::exception& error) {
    return error_response({500, "failed", error.what()});
  }
}

HttpResponse json(std::string text) { return {.body = std::move(text)}; }

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> parts;
  path.remove_prefix(1);
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

/// Matches a path with a pattern, in which words in capitals stand for any segment, and HEAD for
/// one with a dot. Returns the segments they stand for.
std::optional<std::vector<std::string>> match(std::string_view pattern,
                                              const std::vector<std::string>& path) {
  const std::vector<std::string_view> parts = split_path(pattern);
  if (parts.size() != path.size()) return {};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool variable = parts[i].front() >= 'A' && parts[i].front() <= 'Z';
    if (!variable && parts[i] != path[i]) return {};
    if (parts[i] == "HEAD" && path[i].find('.') == std::string::npos) return {};
    if (variable) names.push_back(path[i]);
  }
  return names;
}

}  // namespace

struct Api::Parts {
  /// A request that has passed the checks.
  struct Call {
    std::vector<std::string> names;  ///< the variable segments of the path
    Arguments arguments;
    std::string body;
    std::stop_token stop;
    HttpReply reply;
  };

  Parts(std::vector<Input> opened, const ApiOptions& given)
      : inputs(std::move(opened)), options(given) {}

  struct Route {
    std::string_view method, pattern;
    void (Parts::*answer)(Call&);
    bool open = false;  ///< whether it needs no token
  };
  static const std::vector<Route>& routes();

  /// Returns the input with this name; also a changed one.
  Input& find_input(const std::string& id) {
    for (Input& input : inputs) {
      if (input.id == id) return input;
    }
    throw HttpError(404, "not_found", fmt::format("no input \"{}\" is open", id));
  }
  /// Throws HttpError 409 if the file has changed.
  Input& current_input(const std::string& id) {
    Input& input = find_input(id);
    if (input.changed()) {
      throw HttpError(409, "changed", fmt::format("{} has changed; read it again", input.path));
    }
    return input;
  }
  static const Layer& find_layer(const Input& input, const std::string& label) {
    for (const Layer& layer : input.layers) {
      if (layer.label == label) return layer;
    }
    throw HttpError(404, "not_found", fmt::format("{} has no layer \"{}\"", input.id, label));
  }

  void page(Call& call) {
    call.arguments.finish();
    call.reply(assets.page());
  }
  void asset(Call& call) { call.reply(assets.find(call.names[0])); }
  void health(Call& call) {
    call.reply({.type = "text/plain", .body = HttpBody::constant("ok\n")});
  }

  void list(Call& call) {
    call.arguments.finish();
    std::string entries;
    for (const Input& input : inputs) entries += (entries.empty() ? "" : ",") + describe(input);
    call.reply(json(fmt::format("{{\"version\":{},\"embed\":{},\"memory\":{},\"inputs\":[{}]}}",
                                json_text(build_info().version), options.embed,
                                options.explorer.memory, entries)));
  }
  void entry(Call& call) {
    call.arguments.finish();
    call.reply(json(describe(find_input(call.names[0]))));
  }
  void reopen(Call& call) {
    call.arguments.finish();
    Input& input = find_input(call.names[0]);
    if (input.changed()) {
      try {
        input = options.reopen(input);
      } catch (const std::exception& error) {
        throw HttpError(409, "changed", error.what());
      }
    }
    call.reply(json(describe(input)));
  }
  void scene(Call& call) {
    call.arguments.finish();
    const Input& input = current_input(call.names[0]);
    if (input.kind != InputKind::kScene) {
      throw HttpError(404, "not_found", fmt::format("{} is not a scene", input.id));
    }
    call.reply({.type = "text/html; charset=utf-8", .body = input.page});
  }

  /// Returns the tokens that the arguments layer and side name.
  TokenTexts named_tokens(Call& call) {
    const Input& input = current_input(call.names[0]);
    const Layer& layer = find_layer(input, call.arguments.text("layer"));
    const bool keys = call.arguments.choice("side", {"query", "key"}) == 1;
    TokenTexts tokens = keys ? layer.key_tokens : layer.query_tokens;
    if (tokens) return tokens;
    throw HttpError(
        404, "no_tokens",
        fmt::format("the {} of layer {} have no tokens", keys ? "keys" : "queries", layer.label));
  }
  void tokens(Call& call) {
    constexpr std::int64_t kMost = 4096;
    const TokenTexts tokens = named_tokens(call);
    const auto count = static_cast<std::int64_t>(tokens->size());
    const IndexRange range = call.arguments.range("range", count);
    call.arguments.finish();
    if (range.size() > kMost) {
      throw malformed("range",
                      fmt::format("expected at most {} tokens, got {}", kMost, range.size()));
    }
    std::string texts;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      texts += (texts.empty() ? "" : ",") + json_text((*tokens)[static_cast<std::size_t>(i)]);
    }
    call.reply(json(fmt::format("{{\"first\":{},\"tokens\":[{}]}}", range.begin, texts)));
  }
  void find(Call& call) {
    const TokenTexts tokens = named_tokens(call);
    const std::string text = call.arguments.text("text");
    if (text.empty()) throw malformed("text", "expected at least one character, got none");
    const auto count = static_cast<std::int64_t>(tokens->size());
    FindOptions how;
    how.after = call.arguments.integer("after", 0, std::max<std::int64_t>(count - 1, 0), -1);
    how.fold = call.arguments.choice("fold", {"0", "1"}) == 1;
    call.arguments.finish();
    const Found found = find_in_tokens(*tokens, text, how);
    call.reply(json(fmt::format("{{\"count\":{},\"positions\":[{}]}}", found.count,
                                fmt::join(found.positions, ","))));
  }

  std::vector<Input> inputs;
  ApiOptions options;
  Assets assets;
};

const std::vector<Api::Parts::Route>& Api::Parts::routes() {
  static const std::vector<Route> routes = {{"GET", "/", &Parts::page, true},
                                            {"GET", "/scene/ID", &Parts::page, true},
                                            {"GET", "/heads/ID", &Parts::page, true},
                                            {"GET", "/map/ID/HEAD", &Parts::page, true},
                                            {"GET", "/text/ID/HEAD", &Parts::page, true},
                                            {"GET", "/compare/ID/HEAD/ID/HEAD", &Parts::page, true},
                                            {"GET", "/assets/NAME", &Parts::asset, true},
                                            {"GET", "/healthz", &Parts::health, true},
                                            {"GET", "/api/v1/inputs", &Parts::list},
                                            {"GET", "/api/v1/inputs/ID", &Parts::entry},
                                            {"POST", "/api/v1/inputs/ID/reopen", &Parts::reopen},
                                            {"GET", "/api/v1/inputs/ID/tokens", &Parts::tokens},
                                            {"GET", "/api/v1/inputs/ID/find", &Parts::find},
                                            {"GET", "/api/v1/scenes/ID", &Parts::scene}};
  return routes;
}

Api::Api(std::vector<Input> inputs, const ApiOptions& options)
    : parts_(std::make_unique<Parts>(std::move(inputs), options)) {}

Api::~Api() = default;

void Api::handle(HttpRequest request, std::stop_token stop, HttpReply reply) {
  try {
    require_own_host(request);
    std::optional<Target> target;
    std::exception_ptr mistake;
    try {
      target = parse_target(request.target);
    } catch (const HttpError&) {
      mistake = std::current_exception();
    }
    const bool api = !target || (!target->path.empty() && target->path.front() == "api");
    require_own_origin(request, api);
    if (mistake) std::rethrow_exception(mistake);

    std::string allowed;
    for (const Parts::Route& route : Parts::routes()) {
      auto names = match(route.pattern, target->path);
      if (!names) continue;
      if (route.method != request.method) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
        continue;
      }
      if (!route.open) require_token(request, parts_->options.token);
      Parts::Call call = {std::move(*names), Arguments(target->query), std::move(request.body),
                          stop, reply};
      return ((*parts_).*route.answer)(call);
    }
    if (allowed.empty()) throw HttpError(404, "not_found", "no such page");
    HttpResponse response = error_response({405, "method", fmt::format("expected {}", allowed)});
    response.fields.emplace_back("Allow", allowed);
    reply(std::move(response));
  } catch (...) {
    reply(current_error());
  }
}

}  // namespace fovea::view
