// SPDX-License-Identifier: Apache-2.0
//
// Routes and their responses (api.h).

#include "view/api/api.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/info.h"

#include "view/api/answers.h"
#include "view/api/arguments.h"
#include "view/api/assets.h"
#include "view/api/describe.h"
#include "view/api/export.h"
#include "view/api/find.h"
#include "view/api/places.h"
#include "view/api/replies.h"
#include "view/api/shown.h"
#include "view/api/worker.h"
#include "view/explorer/frame.h"
#include "view/http/security.h"

namespace fovea::view {
namespace {

/// Returns whether the header field If-None-Match contains the entity tag. The value "*" matches no
/// tag: it requires that the tile exists, which is not yet checked here.
bool has_tag(const std::optional<std::string>& field, const std::string& tag) {
  return field && field->find(tag) != std::string::npos;
}

}  // namespace

struct Api::Parts {
  /// A request that has passed the checks.
  struct Call {
    std::vector<std::string> names;  ///< the variable segments of the path
    Arguments arguments;
    std::optional<std::string> if_none_match;
    std::string body;
    std::stop_token stop;
    HttpReply reply;

    void reply_json(std::string text) const { reply(json_response(std::move(text))); }
  };

  struct Route {
    std::string_view method, pattern;
    void (Parts::*answer)(Call&);
    std::string_view arguments = {};  ///< "query,key"
    bool open = false;                ///< whether it needs no token
  };
  static const std::vector<Route>& routes();

  Parts(std::vector<Input> opened, const ApiOptions& given)
      : inputs(std::move(opened)),
        options(given),
        explorer(std::make_unique<Explorer>(inputs, options.explorer)) {}

  NamedPlace head_of(const Call& call) const {
    return named_head(inputs, call.names[0], call.names[1]);
  }
  NamedPlace layer_of(Call& call) const {
    return named_layer(inputs, call.names[0], call.arguments.text("layer"));
  }

  void page(Call& call) { call.reply(assets.page()); }
  void asset(Call& call) { call.reply(assets.find(call.names[0])); }
  void health(Call& call) {
    call.reply({.type = "text/plain", .body = HttpBody::constant("ok\n")});
  }

  void list(Call& call) {
    std::string entries;
    for (const Input& input : inputs) entries += (entries.empty() ? "" : ",") + describe(input);
    call.reply_json(fmt::format("{{\"version\":{},\"embed\":{},\"memory\":{},\"inputs\":[{}]}}",
                                json_text(build_info().version), options.embed,
                                options.explorer.memory, entries));
  }
  void entry(Call& call) { call.reply_json(describe(inputs[find_input(inputs, call.names[0])])); }
  void reopen(Call& call) {
    const std::size_t index = find_input(inputs, call.names[0]);
    if (inputs[index].changed_file() == nullptr) return entry(call);
    std::vector<Input> fresh = inputs;
    try {
      fresh[index] = options.reopen(inputs[index]);
    } catch (const std::exception& error) {
      throw HttpError(409, "changed", error.what());
    }
    auto other = std::make_unique<Explorer>(fresh, options.explorer);
    inputs = std::move(fresh);
    std::swap(explorer, other);
    call.reply_json(describe(inputs[index]));
    // Replies before the old explorer is destroyed, which holds these requests.
    waiting.end({503, "reopened", "an input was read again; ask once more"});
  }
  void scene(Call& call) {
    const Input& input = current_input(inputs, call.names[0]);
    if (!input.page) {
      throw HttpError(404, "not_found", fmt::format("{} is not a scene", input.id));
    }
    worker.add([page = input.page, reply = call.reply] {
      HttpResponse response;
      try {
        response = {.type = "text/html; charset=utf-8", .body = page()};
      } catch (...) {
        response = current_error();
      }
      reply(std::move(response));
    });
  }

  /// The state of a framed page; without --embed, there is no such path.
  void state(Call& call) {
    require_embed();
    call.reply_json(shown.json());
  }
  void set_state(Call& call) {
    require_embed();
    call.reply_json(shown.replace(call.body, options.token));
  }
  void require_embed() const {
    if (!options.embed) throw HttpError(404, "not_found", "no such page");
  }

  /// Returns the tokens that the arguments layer and side name.
  TokenTexts named_tokens(Call& call) const {
    const Layer& layer = layer_of(call).layer;
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
    const IndexRange range =
        call.arguments.range("range", static_cast<std::int64_t>(tokens->size()), kMost);
    std::string texts;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      texts += (texts.empty() ? "" : ",") + json_text((*tokens)[static_cast<std::size_t>(i)]);
    }
    call.reply_json(fmt::format("{{\"first\":{},\"tokens\":[{}]}}", range.begin, texts));
  }
  void find(Call& call) {
    const TokenTexts tokens = named_tokens(call);
    const std::string text = call.arguments.text("text");
    if (text.empty()) throw malformed("text", "expected at least one character, got none");
    const auto count = static_cast<std::int64_t>(tokens->size());
    FindOptions how;
    how.after = call.arguments.integer("after", 0, std::max<std::int64_t>(count - 1, 0), -1);
    how.fold = call.arguments.choice("fold", {"0", "1"}) == 1;
    worker.add([tokens, text, how, stop = call.stop, reply = call.reply] {
      if (stop.stop_requested()) return;
      const Found found = find_in_tokens(*tokens, text, how);
      reply(json_response(fmt::format("{{\"count\":{},\"positions\":[{}]}}", found.count,
                                      fmt::join(found.positions, ","))));
    });
  }

  void status(Call& call) {
    const NamedPlace at = head_of(call);
    call.reply_json(status_json(explorer->status(at.place), at.layer, at.name));
  }
  void heads(Call& call) {
    const NamedPlace at = layer_of(call);
    explorer->heads(at.place, call.stop,
                    answering(call.reply, [layer = at.layer](const auto& heads) {
                      return json_response(heads_json(heads, layer));
                    }));
  }
  void thumbs(Call& call) {
    const NamedPlace at = layer_of(call);
    const bool mean = call.arguments.choice("reduce", {"max", "mean"}) == 1;
    explorer->thumbnails(at.place, mean ? Pool::kMean : Pool::kMax, call.stop,
                         answering(call.reply, [](const auto& frames) {
                           std::string bytes;
                           for (const FrameBytes& frame : frames) bytes += *frame;
                           return binary_response(std::move(bytes));
                         }));
  }
  void tile(Call& call) {
    const NamedPlace at = head_of(call);
    constexpr std::int64_t kMaxLevel = 62;
    const auto number = [&](std::size_t segment, const char* name, std::int64_t most) {
      const std::string& text = call.names[segment];
      const auto value = whole_number(text);
      if (value && *value <= most) return *value;
      throw malformed(name,
                      fmt::format("expected a whole number from 0 to {}, got \"{}\"", most, text));
    };
    const std::string& reduce = call.names[2];
    if (reduce != "max" && reduce != "mean") throw malformed("reduce", "expected max or mean");
    const TilePlace place = {.reduce = reduce == "max" ? Pool::kMax : Pool::kMean,
                             .level = static_cast<int>(number(3, "level", kMaxLevel)),
                             .x = number(4, "x", std::int64_t{1} << 40),
                             .y = number(5, "y", std::int64_t{1} << 40)};
    const BuildInfo& build = build_info();
    const std::string tag = fmt::format(
        "\"{}-{}-{}-{}-{}-{}-{}-{}-{}\"", at.input.fingerprint, at.input.files.front().state.time,
        build.version, build.target, at.name, reduce, place.level, place.x, place.y);
    const std::vector<std::pair<std::string, std::string>> final_fields = {
        {"ETag", tag}, {"Cache-Control", "private, max-age=31536000, immutable"}};
    if (has_tag(call.if_none_match, tag)) {
      return call.reply({.status = 304, .fields = final_fields});
    }
    explorer->tile(at.place, place, call.stop,
                   answering(call.reply, [final_fields](const FrameBytes& frame) {
                     HttpResponse response = binary_response(frame);
                     if (frame_is_final(*frame)) response.fields = final_fields;
                     return response;
                   }));
  }
  void cell(Call& call) {
    const NamedPlace at = head_of(call);
    const std::int64_t query = call.arguments.integer("query", 0, at.layer.queries() - 1);
    const std::int64_t key = call.arguments.integer("key", 0, at.layer.keys() - 1);
    explorer->cell(at.place, query, key, call.stop,
                   answering(call.reply, [layer = at.layer, query, key](const auto& cell) {
                     return json_response(cell_json(cell, layer, query, key));
                   }));
  }
  void row(Call& call) {
    const NamedPlace at = head_of(call);
    const std::int64_t query = call.arguments.integer("query", 0, at.layer.queries() - 1);
    explorer->row(at.place, query, top_of(call), call.stop,
                  answering(call.reply, [layer = at.layer, query](const auto& row) {
                    return json_response(row_json(row, layer, query));
                  }));
  }
  void column(Call& call) {
    const NamedPlace at = head_of(call);
    const std::int64_t key = call.arguments.integer("key", 0, at.layer.keys() - 1);
    explorer->column(at.place, key, top_of(call), call.stop,
                     answering(call.reply, [layer = at.layer, key](const auto& column) {
                       return json_response(column_json(column, layer, key));
                     }));
  }
  static std::int64_t top_of(Call& call) {
    constexpr std::int64_t kUsualTop = 8;
    return call.arguments.integer("top", 0, kMaxTopKeys, kUsualTop);
  }
  void weights(Call& call) {
    constexpr std::size_t kMaxLines = 256;
    constexpr std::int64_t kMaxWidth = 131072;
    const NamedPlace at = head_of(call);
    std::int64_t lines = at.layer.queries(), width = at.layer.keys();
    LineRequest request;
    request.of_keys = call.arguments.find("query").has_value();
    if (request.of_keys == call.arguments.find("key").has_value()) {
      throw malformed("query", "expected either query or key");
    }
    if (!request.of_keys) std::swap(lines, width);
    request.lines =
        call.arguments.integers(request.of_keys ? "query" : "key", lines - 1, kMaxLines);
    request.range = call.arguments.range("range", width, kMaxWidth);
    explorer->lines(at.place, std::move(request), call.stop,
                    answering(call.reply, [](const std::vector<float>& weights) {
                      std::string bytes(weights.size() * sizeof(float), '\0');
                      std::memcpy(bytes.data(), weights.data(), bytes.size());
                      return binary_response(std::move(bytes));
                    }));
  }
  void export_file(Call& call) {
    const NamedPlace at = head_of(call);
    const ExportRequest request = parse_export(call.arguments, at.layer, at.place.head);
    const ExportOrigin origin = {at.input.model, at.input.source, at.layer,
                                 fmt::format("{}-{}", at.input.id, at.name)};
    explorer->map(
        at.place, request.map, call.stop,
        [this, request, origin, stop = call.stop, reply = call.reply](Answer<AttentionMap> answer) {
          // Compressing may take seconds.
          const auto kept = std::make_shared<Answer<AttentionMap>>(std::move(answer));
          worker.add([request, origin, stop, reply, kept] {
            if (stop.stop_requested()) return;
            answering(reply, [&](const AttentionMap& map) {
              return export_map(origin, request, map.map);
            })(std::move(*kept));
          });
        });
  }
  void start_pass(Call& call) {
    const NamedPlace at = head_of(call);
    explorer->start_pass(at.place, parse_pass(call.body, at.layer.queries()));
    reply_pass(call, at);
  }
  void stop_pass(Call& call) {
    const NamedPlace at = head_of(call);
    explorer->stop_pass(at.place);
    reply_pass(call, at);
  }
  void reply_pass(const Call& call, const NamedPlace& at) {
    HttpResponse response =
        json_response(fmt::format("{{\"pass\":{}}}", pass_json(explorer->status(at.place).pass)));
    response.status = 202;
    call.reply(std::move(response));
  }
  void counters(Call& call) {
    call.reply_json(
        counters_json(explorer->counters(), options.connections ? options.connections() : 0));
  }

  std::vector<Input> inputs;
  ApiOptions options;
  ShownAddress shown;
  Assets assets;
  Waiting waiting;
  Worker worker;  // outlives the explorer, which adds work
  std::unique_ptr<Explorer> explorer;
};

const std::vector<Api::Parts::Route>& Api::Parts::routes() {
  static const std::vector<Route> routes = {
      {"GET", "/", &Parts::page, "", true},
      {"GET", "/scene/ID", &Parts::page, "", true},
      {"GET", "/heads/ID", &Parts::page, "", true},
      {"GET", "/map/ID/HEAD", &Parts::page, "", true},
      {"GET", "/text/ID/HEAD", &Parts::page, "", true},
      {"GET", "/compare/ID/HEAD/ID/HEAD", &Parts::page, "", true},
      {"GET", "/assets/NAME", &Parts::asset, "", true},
      {"GET", "/healthz", &Parts::health, "", true},
      {"GET", "/api/v1/inputs", &Parts::list},
      {"GET", "/api/v1/inputs/ID", &Parts::entry},
      {"POST", "/api/v1/inputs/ID/reopen", &Parts::reopen},
      {"GET", "/api/v1/inputs/ID/tokens", &Parts::tokens, "layer,side,range"},
      {"GET", "/api/v1/inputs/ID/find", &Parts::find, "layer,side,text,after,fold"},
      {"GET", "/api/v1/inputs/ID/heads", &Parts::heads, "layer"},
      {"GET", "/api/v1/inputs/ID/thumbs", &Parts::thumbs, "layer,reduce"},
      {"GET", "/api/v1/inputs/ID/HEAD", &Parts::status},
      {"GET", "/api/v1/inputs/ID/HEAD/tile/REDUCE/Z/X/Y", &Parts::tile},
      {"GET", "/api/v1/inputs/ID/HEAD/cell", &Parts::cell, "query,key"},
      {"GET", "/api/v1/inputs/ID/HEAD/row", &Parts::row, "query,top"},
      {"GET", "/api/v1/inputs/ID/HEAD/column", &Parts::column, "key,top"},
      {"GET", "/api/v1/inputs/ID/HEAD/weights", &Parts::weights, "query,key,range"},
      {"GET", "/api/v1/inputs/ID/HEAD/export", &Parts::export_file, kExportArguments},
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
  const HttpReply once = parts_->waiting.add(std::move(reply));
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
      auto names = match_path(route.pattern, target->path);
      if (!names) continue;
      if (route.method != request.method) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
        continue;
      }
      if (!route.open) require_token(request, parts_->options.token);
      Parts::Call call = {std::move(*names),
                          Arguments(target->query, route.arguments),
                          std::move(request.if_none_match),
                          std::move(request.body),
                          std::move(stop),
                          once};
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
