// SPDX-License-Identifier: Apache-2.0
//
// The embedded page (assets.h).

#include "view/api/assets.h"

#include <cstddef>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "view/http/sha256.h"

namespace fovea::view {

// Embedded by the build from src/view/page/.
extern const std::string_view kViewShell;
extern const std::string_view kViewScript;
extern const std::string_view kViewStyle;

namespace {

std::string hashed_name(std::string_view content, std::string_view ending) {
  constexpr std::size_t kBytes = 8;
  const Sha256 hash = sha256(content);
  return fmt::format("view-{:02x}.{}", fmt::join(std::span(hash).first(kBytes), ""), ending);
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), by);
    at += by.size();
  }
}

}  // namespace

Assets::Assets() : script_(hashed_name(kViewScript, "js")), style_(hashed_name(kViewStyle, "css")) {
  std::string page(kViewShell);
  replace_all(page, "{script}", "/assets/" + script_);
  replace_all(page, "{style}", "/assets/" + style_);
  page_ = page;
}

HttpResponse Assets::page() const { return {.type = "text/html; charset=utf-8", .body = page_}; }

HttpResponse Assets::find(std::string_view name) const {
  HttpResponse response;
  if (name == script_) {
    response.type = "text/javascript; charset=utf-8";
    response.body = HttpBody::constant(kViewScript);
  } else if (name == style_) {
    response.type = "text/css; charset=utf-8";
    response.body = HttpBody::constant(kViewStyle);
  } else {
    throw HttpError(404, "not_found", "no such asset");
  }
  response.fields = {{"Cache-Control", "private, max-age=31536000, immutable"}};
  return response;
}

}  // namespace fovea::view
