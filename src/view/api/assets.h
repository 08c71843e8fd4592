// SPDX-License-Identifier: Apache-2.0
//
// The page, its script and its style, embedded by the build. A request never names a file.

#pragma once

#include <string>
#include <string_view>

#include "view/http/http.h"

namespace fovea::view {

class Assets {
 public:
  /// Names the script and the style by their content, and puts the names into the page.
  Assets();

  /// Returns the one page that all addresses show.
  HttpResponse page() const;
  /// Returns an asset, "view-0123456789abcdef.js", to be kept for ever. Throws HttpError 404.
  HttpResponse find(std::string_view name) const;

 private:
  std::string script_, style_;  // names
  HttpBody page_;
};

}  // namespace fovea::view
