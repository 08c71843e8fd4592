// SPDX-License-Identifier: Apache-2.0
//
// Opens pages in the user's browser.

#pragma once

#include <string>

namespace fovea::cli {

/// Returns the file:// URL of an absolute path.
std::string file_url(const std::string& path);

/// Starts the browser with `url` and returns at once. Tries the programs in $BROWSER (separated by
/// colons; "%s" stands for the URL), then xdg-open, open and wslview if there is a screen. No shell
/// is involved. Returns whether a program was started.
bool open_in_browser(const std::string& url);

}  // namespace fovea::cli
