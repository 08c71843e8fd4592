// SPDX-License-Identifier: Apache-2.0
//
// Accepts requests only of pages of this server, opened with the URL that the program printed.
// Protects against other sites in the same browser (DNS rebinding, cross-site requests) and other
// users of the same machine.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "view/http/http.h"

namespace fovea::view {

/// Returns 128 bits from the operating system as 32 hexadecimal digits. Throws std::runtime_error
/// if there are none.
std::string make_token();

/// Compares in a time that depends only on the lengths.
bool same_secret(std::string_view expected, std::string_view got);

/// Throws HttpError 421 unless Host is localhost, 127.0.0.1 or [::1] with any port, which a site
/// whose name was rebound to this machine cannot send.
void require_own_host(const HttpRequest& request);
/// Throws HttpError 403 if Origin is not this server or, with `api`, if the browser says that
/// another site asks.
void require_own_origin(const HttpRequest& request, bool api);
/// Throws HttpError 401 unless the request has the token.
void require_token(const HttpRequest& request, std::string_view token);

/// Returns the error for an origin of --embed, "" if it is "http://" or "https://" with a host and
/// an optional port, of which "*" is any.
std::string mistake_in_origin(std::string_view origin);

/// Returns the 'sha256-...' sources of the scripts in a page that run.
std::vector<std::string> script_sources(std::string_view page);

/// Returns the fields of every response: the content security policy, which allows only this
/// server's files and the scripts in `script_sources`, and framing by the origins in `embed` alone.
std::vector<std::pair<std::string, std::string>> security_fields(
    const std::vector<std::string>& script_sources, const std::vector<std::string>& embed);

}  // namespace fovea::view
