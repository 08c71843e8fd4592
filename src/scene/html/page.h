// SPDX-License-Identifier: Apache-2.0
//
// The page of a trace, and the frame that all pages share.

#pragma once

#include <string>
#include <string_view>

#include "fovea/scene.h"

#include "scene/texts/texts.h"

namespace fovea::scene::html {

/// HTML before and after the contents of a page.
struct PageFrame {
  std::string before;
  std::string after;
};

/// Returns a page from its doctype to the end of its <head>, with the style of the page of a trace
/// unless another one is given.
std::string page_head(std::string_view title, const Texts& texts, std::string_view style = {});

/// As to_html(), with a frame around the contents.
std::string page(const Trace& trace, const PageOptions& options, const PageFrame& frame);

}  // namespace fovea::scene::html
