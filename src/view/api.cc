// SPDX-License-Identifier: Apache-2.0
//
// Routes and responses (api.h).

#include "view/api.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"
#include "fovea/info.h"

#include "view/answers.h"
#include "view/arguments.h"
#include "view/assets.h"
#include "view/describe.h"
#include "view/export.h"
#include "view/find.h"
#include "view/security.h"
#include "view/shown.h"
#include "view/worker.h"

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
  } catch (const PassPaused& error) {
    return error_response({409, "paused", error.what()});
  } catch (const Stopped&) {
    return error_response({503, "stopped", "stopped"});
  } catch (const std::exception& error) {
    return error_response({500, "failed", error.what()});
  }
}

constexpr const char* kBinary = "application/octet-stream";

/// Returns a reply of the explorer that makes a response of its result.
template <class Result, class Make>
Reply<Result> answering(const HttpReply& reply, Make make) {
  return [reply, make = std::move(make)](Answer<Result> answer) {
    HttpResponse response;
    try {
      if (const auto* error = std::get_if<std::exception_ptr>(&answer)) {
        std::rethrow_exception(*error);
      }
      response = make(std::move(std::get<Result>(answer)));
    } catch (...) {
      response = current_error();
    }
    reply(std::move(response));
  };
}

/// Returns whether the field If-None-Match has the tag.
bool has_tag(const std::optional<std::string>& field, const std::string& tag) {
  return field && (*field == "*" || field->find(tag) != std::string::npos);
}

/// Returns a copy without what only the page needs.
std::vector<Input> to_explore(std::vector<Input> inputs) {
  for (Input& input : inputs) input.page.clear();
  return inputs;
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
  /// A request that has no response yet.
  class Pending {
   public:
    explicit Pending(HttpReply reply) : reply_(std::move(reply)) {}
    /// Only the first call counts.
    void answer(HttpResponse response) {
      if (!done_.exchange(true)) reply_(std::move(response));
    }

   private:
    HttpReply reply_;
    std::atomic<bool> done_ = false;
  };

  /// A request that has passed the checks.
  struct Call {
    std::vector<std::string> names;  ///< the variable segments of the path
    Arguments arguments;
    std::optional<std::string> if_none_match;
    std::string body;
    std::stop_token stop;
    HttpReply reply;
  };

  Parts(std::vector<Input> opened, const ApiOptions& given)
      : inputs(std::move(opened)),
        options(given),
        explorer(std::make_unique<Explorer>(to_explore(inputs), options.explorer)) {}

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

  /// A head that a path names.
  struct Named {
    const Input& input;
    const Layer& layer;
    HeadPlace place;
    const std::string& head;  ///< "13.2"
  };
  Named named_head(Call& call) {
    const Input& input = current_input(call.names[0]);
    const std::string& name = call.names[1];
    const std::size_t dot = name.rfind('.');
    const Layer& layer = find_layer(input, name.substr(0, dot));
    const auto number = whole_number(std::string_view(name).substr(dot + 1));
    for (std::int64_t head = 0; number && head < layer.heads(); ++head) {
      if (layer.attention.model_head(head) != *number) continue;
      return {input, layer, {index_of(input), layer_index(input, layer), head}, name};
    }
    throw HttpError(404, "not_found", fmt::format("{} has no head \"{}\"", input.id, name));
  }
  /// Takes the argument layer; its HeadPlace has no head.
  Named named_layer(Call& call) {
    const Input& input = current_input(call.names[0]);
    const Layer& layer = find_layer(input, call.arguments.text("layer"));
    return {input, layer, {index_of(input), layer_index(input, layer), 0}, layer.label};
  }
  std::size_t index_of(const Input& input) const {
    return static_cast<std::size_t>(&input - inputs.data());
  }
  static std::size_t layer_index(const Input& input, const Layer& layer) {
    return static_cast<std::size_t>(&layer - input.layers.data());
  }

  /// Returns a reply that counts once, and that end_waiting() can give as well.
  HttpReply wait_for(HttpReply reply) {
    std::erase_if(waiting, [](const std::weak_ptr<Pending>& each) { return each.expired(); });
    const auto pending = std::make_shared<Pending>(std::move(reply));
    waiting.push_back(pending);
    return [pending](HttpResponse response) { pending->answer(std::move(response)); };
  }
  void end_waiting(const HttpError& error) {
    for (const std::weak_ptr<Pending>& each : waiting) {
      if (const auto pending = each.lock()) pending->answer(error_response(error));
    }
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
      const std::size_t index = index_of(input);
      std::vector<Input> fresh = inputs;
      try {
        fresh[index] = options.reopen(input);
      } catch (const std::exception& error) {
        throw HttpError(409, "changed", error.what());
      }
      auto other = std::make_unique<Explorer>(to_explore(fresh), options.explorer);
      inputs = std::move(fresh);
      explorer = std::move(other);
      call.reply(json(describe(inputs[index])));
      // The old explorer has forgotten their requests.
      return end_waiting({503, "reopened", "an input was read again; ask once more"});
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

  /// The state of a framed page; without --embed, there is no such path.
  void state(Call& call) {
    call.arguments.finish();
    require_embed();
    call.reply(json(shown.json()));
  }
  void set_state(Call& call) {
    call.arguments.finish();
    require_embed();
    call.reply(json(shown.replace(call.body, options.token)));
  }
  void require_embed() const {
    if (!options.embed) throw HttpError(404, "not_found", "no such page");
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
    worker.add([tokens, text, how, stop = call.stop, reply = call.reply] {
      if (stop.stop_requested()) return;
      const Found found = find_in_tokens(*tokens, text, how);
      reply(json(fmt::format("{{\"count\":{},\"positions\":[{}]}}", found.count,
                             fmt::join(found.positions, ","))));
    });
  }

  void status(Call& call) {
    const Named named = named_head(call);
    call.arguments.finish();
    call.reply(json(status_json(explorer->status(named.place), named.layer, named.head)));
  }
  void heads(Call& call) {
    const Named named = named_layer(call);
    call.arguments.finish();
    explorer->heads(named.place, call.stop,
                    answering<std::vector<HeadNumbers>>(
                        call.reply, [layer = named.layer](const std::vector<HeadNumbers>& heads) {
                          return json(heads_json(heads, layer));
                        }));
  }
  void thumbs(Call& call) {
    const Named named = named_layer(call);
    const bool mean = call.arguments.choice("reduce", {"max", "mean"}) == 1;
    call.arguments.finish();
    explorer->thumbnails(
        named.place, mean ? Pool::kMean : Pool::kMax, call.stop,
        answering<std::vector<FrameBytes>>(call.reply, [](const std::vector<FrameBytes>& frames) {
          std::string bytes;
          for (const FrameBytes& frame : frames) bytes += *frame;
          return HttpResponse{.type = kBinary, .body = std::move(bytes)};
        }));
  }
  void tile(Call& call) {
    const Named named = named_head(call);
    call.arguments.finish();
    constexpr std::int64_t kMaxLevel = 62;
    const auto number = [&](std::size_t at, const char* name, std::int64_t most) {
      const auto value = whole_number(call.names[at]);
      if (value && *value <= most) return *value;
      throw malformed(name, fmt::format("expected a whole number, got \"{}\"", call.names[at]));
    };
    TilePlace place;
    if (call.names[2] != "max" && call.names[2] != "mean") {
      throw malformed("reduce", "expected max or mean");
    }
    place.reduce = call.names[2] == "max" ? Pool::kMax : Pool::kMean;
    place.level = static_cast<int>(number(3, "level", kMaxLevel));
    place.x = number(4, "x", std::int64_t{1} << 40);
    place.y = number(5, "y", std::int64_t{1} << 40);
    const BuildInfo& build = build_info();
    const std::string tag = fmt::format("\"{}-{}-{}-{}-{}-{}-{}-{}-{}\"", named.input.fingerprint,
                                        named.input.file_time, build.version, build.target,
                                        named.head, call.names[2], place.level, place.x, place.y);
    const std::vector<std::pair<std::string, std::string>> fields = {
        {"ETag", tag}, {"Cache-Control", "private, max-age=31536000, immutable"}};
    if (has_tag(call.if_none_match, tag)) {
      return call.reply({.status = 304, .fields = fields});
    }
    const bool mean = place.reduce == Pool::kMean;
    explorer->tile(named.place, place, call.stop,
                   [reply = call.reply, fields, mean](Answer<FrameBytes> answer) {
                     HttpResponse response;
                     try {
                       if (const auto* error = std::get_if<std::exception_ptr>(&answer)) {
                         std::rethrow_exception(*error);
                       }
                       response = {
                           .type = kBinary, .body = std::get<FrameBytes>(answer), .fields = fields};
                     } catch (const InvalidArgument& error) {
                       response = mean && error.argument() == "level"
                                      ? error_response({404, "no_mean", error.what(), "level"})
                                      : current_error();
                     } catch (...) {
                       response = current_error();
                     }
                     reply(std::move(response));
                   });
  }
  void cell(Call& call) {
    const Named named = named_head(call);
    const std::int64_t query = call.arguments.integer("query", 0, named.layer.queries() - 1);
    const std::int64_t key = call.arguments.integer("key", 0, named.layer.keys() - 1);
    call.arguments.finish();
    explorer->cell(named.place, query, key, call.stop,
                   answering<CellAnswer>(call.reply,
                                         [layer = named.layer, query, key](const CellAnswer& cell) {
                                           return json(cell_json(cell, layer, query, key));
                                         }));
  }
  void row(Call& call) {
    const Named named = named_head(call);
    const std::int64_t query = call.arguments.integer("query", 0, named.layer.queries() - 1);
    const std::int64_t top = call.arguments.integer("top", 0, kMaxTopKeys, kUsualTop);
    call.arguments.finish();
    explorer->row(
        named.place, query, top, call.stop,
        answering<RowAnswer>(call.reply, [layer = named.layer, query](const RowAnswer& row) {
          return json(row_json(row, layer, query));
        }));
  }
  void column(Call& call) {
    const Named named = named_head(call);
    const std::int64_t key = call.arguments.integer("key", 0, named.layer.keys() - 1);
    const std::int64_t top = call.arguments.integer("top", 0, kMaxTopKeys, kUsualTop);
    call.arguments.finish();
    explorer->column(
        named.place, key, top, call.stop,
        answering<ColumnAnswer>(call.reply, [layer = named.layer, key](const ColumnAnswer& column) {
          return json(column_json(column, layer, key));
        }));
  }
  void weights(Call& call) {
    constexpr std::size_t kMaxLines = 256;
    constexpr std::int64_t kMaxWidth = 131072;
    const Named named = named_head(call);
    LineRequest request;
    const std::int64_t queries = named.layer.queries(), keys = named.layer.keys();
    request.of_keys = call.arguments.find("query").has_value();
    if (request.of_keys == call.arguments.find("key").has_value()) {
      throw malformed("query", "expected either query or key");
    }
    request.lines = call.arguments.integers(request.of_keys ? "query" : "key",
                                            (request.of_keys ? queries : keys) - 1, kMaxLines);
    request.range = call.arguments.range("range", request.of_keys ? keys : queries);
    call.arguments.finish();
    if (request.range.size() > kMaxWidth) {
      throw malformed("range", fmt::format("expected at most {} weights, got {}", kMaxWidth,
                                           request.range.size()));
    }
    explorer->lines(
        named.place, std::move(request), call.stop,
        answering<std::vector<float>>(call.reply, [](const std::vector<float>& weights) {
          std::string bytes(weights.size() * sizeof(float), '\0');
          std::memcpy(bytes.data(), weights.data(), bytes.size());
          return HttpResponse{.type = kBinary, .body = std::move(bytes)};
        }));
  }
  void export_file(Call& call) {
    const Named named = named_head(call);
    const ExportRequest request = parse_export(call.arguments, named.layer, named.place.head);
    const ExportOrigin origin = {named.input.model, named.input.source, named.layer,
                                 fmt::format("{}-{}", named.input.id, named.head)};
    explorer->map(
        named.place, request.map, call.stop,
        [this, request, origin, stop = call.stop, reply = call.reply](Answer<AttentionMap> answer) {
          // Compressing may take seconds.
          const auto kept = std::make_shared<Answer<AttentionMap>>(std::move(answer));
          worker.add([request, origin, stop, reply, kept] {
            if (stop.stop_requested()) return;
            answering<AttentionMap>(reply, [&](const AttentionMap& map) {
              return export_map(origin, request, map.map);
            })(std::move(*kept));
          });
        });
  }
  void start_pass(Call& call) {
    const Named named = named_head(call);
    call.arguments.finish();
    const IndexRange rows = parse_pass(call.body, named.layer.queries());
    explorer->start_pass(named.place, rows);
    reply_pass(call, named);
  }
  void stop_pass(Call& call) {
    const Named named = named_head(call);
    call.arguments.finish();
    explorer->stop_pass(named.place);
    reply_pass(call, named);
  }
  void reply_pass(Call& call, const Named& named) {
    HttpResponse response =
        json(fmt::format("{{\"pass\":{}}}", pass_json(explorer->status(named.place).pass)));
    response.status = 202;
    call.reply(std::move(response));
  }
  void counters(Call& call) {
    call.arguments.finish();
    call.reply(
        json(counters_json(explorer->counters(), options.connections ? options.connections() : 0)));
  }

  static constexpr std::int64_t kUsualTop = 8;

  std::vector<Input> inputs;
  ApiOptions options;
  ShownAddress shown;
  Assets assets;
  std::vector<std::weak_ptr<Pending>> waiting;
  Worker worker;  // outlives the explorer, which adds work
  std::unique_ptr<Explorer> explorer;
};

const std::vector<Api::Parts::Route>& Api::Parts::routes() {
  static const std::vector<Route> routes = {
      {"GET", "/", &Parts::page, true},
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
      {"GET", "/api/v1/inputs/ID/heads", &Parts::heads},
      {"GET", "/api/v1/inputs/ID/thumbs", &Parts::thumbs},
      {"GET", "/api/v1/inputs/ID/HEAD", &Parts::status},
      {"GET", "/api/v1/inputs/ID/HEAD/tile/REDUCE/Z/X/Y", &Parts::tile},
      {"GET", "/api/v1/inputs/ID/HEAD/cell", &Parts::cell},
      {"GET", "/api/v1/inputs/ID/HEAD/row", &Parts::row},
      {"GET", "/api/v1/inputs/ID/HEAD/column", &Parts::column},
      {"GET", "/api/v1/inputs/ID/HEAD/weights", &Parts::weights},
      {"GET", "/api/v1/inputs/ID/HEAD/export", &Parts::export_file},
      {"POST", "/api/v1/inputs/ID/HEAD/pass", &Parts::start_pass},
      {"DELETE", "/api/v1/inputs/ID/HEAD/pass", &Parts::stop_pass},
      {"GET", "/api/v1/scenes/ID", &Parts::scene},
      {"GET", "/api/v1/counters", &Parts::counters},
      {"GET", "/api/v1/state", &Parts::state},
      {"PUT", "/api/v1/state", &Parts::set_state}};
  return routes;
}

Api::Api(std::vector<Input> inputs, const ApiOptions& options)
    : parts_(std::make_unique<Parts>(std::move(inputs), options)) {}

Api::~Api() = default;

void Api::handle(HttpRequest request, std::stop_token stop, HttpReply reply) {
  const HttpReply once = parts_->wait_for(std::move(reply));
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
      Parts::Call call = {
          std::move(*names),       Arguments(target->query), std::move(request.if_none_match),
          std::move(request.body), std::move(stop),          once};
      return ((*parts_).*route.answer)(call);
    }
    if (allowed.empty()) throw HttpError(404, "not_found", "no such page");
    HttpResponse response = error_response({405, "method", fmt::format("expected {}", allowed)});
    response.fields.emplace_back("Allow", allowed);
    once(std::move(response));
  } catch (...) {
    once(current_error());
  }
}

}  // namespace fovea::view
