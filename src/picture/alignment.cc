// SPDX-License-Identifier: Apache-2.0
//
// Renders the alignment of a translation (alignment.h).

#include "picture/alignment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "text/html_escape.h"
#include "text/text_width.h"

namespace fovea::train {
namespace {

constexpr std::string_view kEndMark = "⏎";

/// Returns one label per token: the characters of the text as displayed, then the end mark.
std::vector<std::string> marks(const std::string& text, std::int64_t count) {
  std::vector<std::string> result;
  for (const std::string_view c : code_points(text)) {
    result.push_back(c == " " ? std::string("␣") : visible(c));
  }
  result.emplace_back(kEndMark);
  result.resize(static_cast<std::size_t>(count));
  return result;
}

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ink:30,64,175;--line:#9993}
@media(prefers-color-scheme:dark){:root{--ink:147,197,253}}
body{font:16px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.3rem}main{display:flex;flex-wrap:wrap;gap:1.5rem 2rem}
figure{margin:0;overflow-x:auto}figcaption{margin-bottom:.4rem}
table{border-collapse:collapse;font:14px/1 ui-monospace,monospace}
th{font-weight:normal;padding:.2rem .1rem;min-width:1.1rem}
td{width:1.1rem;height:1.3rem;border:1px solid var(--line);padding:0}
)";

// Captions and characters are escaped, so they contain neither.
constexpr std::string_view kFigureBegin = "<figure id=\"picture-";
constexpr std::string_view kFigureEnd = "</figure>\n";

}  // namespace

std::string picture_as_text(const Picture& picture) {
  static constexpr std::array<std::string_view, 5> kShades = {" ", "░", "▒", "▓", "█"};
  const std::int64_t rows = picture.weights.extent(0), columns = picture.weights.extent(1);
  const std::vector<std::string> source = marks(picture.source, columns);
  const std::vector<std::string> target = marks(picture.target, rows);
  std::string text = "   ";
  for (const std::string& mark : source) text += mark;
  text += '\n';
  for (std::int64_t t = 0; t < rows; ++t) {
    text += pad_right(target[static_cast<std::size_t>(t)], 2) + "|";
    for (std::int64_t s = 0; s < columns; ++s) {
      const double weight = picture.weights.value({t, s});
      // Weights below 0.1 are blank, and weights of at least 0.5 are solid.
      const std::size_t shade = weight < 0.1    ? 0
                                : weight < 0.2  ? 1
                                : weight < 0.35 ? 2
                                : weight < 0.5  ? 3
                                                : 4;
      const int width = std::max(1, display_width(source[static_cast<std::size_t>(s)]));
      for (int i = 0; i < width; ++i) text += kShades[shade];
    }
    text += "|\n";
  }
  return text;
}

Figure picture_as_figure(const Picture& picture) {
  const auto escaped = [](std::string_view text) { return scene::html::escape(text); };
  const std::int64_t rows = picture.weights.extent(0), columns = picture.weights.extent(1);
  const std::vector<std::string> source = marks(picture.source, columns);
  const std::vector<std::string> target = marks(picture.target, rows);
  std::string html = fmt::format("{}{}\"><figcaption>{}</figcaption>\n<table><tr><th></th>",
                                 kFigureBegin, picture.number, escaped(picture.caption));
  for (const std::string& mark : source) html += fmt::format("<th>{}</th>", escaped(mark));
  html += "</tr>\n";
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::string& wrote = target[static_cast<std::size_t>(t)];
    html += fmt::format("<tr><th>{}</th>", escaped(wrote));
    for (std::int64_t s = 0; s < columns; ++s) {
      const double weight = picture.weights.value({t, s});
      html += fmt::format(
          "<td title=\"{} looks at {}: {:.3f}\" style=\"background:rgba(var(--ink),"
          "{:.2f})\"></td>",
          escaped(wrote), escaped(source[static_cast<std::size_t>(s)]), weight, weight);
    }
    html += "</tr>\n";
  }
  html += "</table>";
  html += kFigureEnd;
  return {picture.number, std::move(html)};
}

std::string figures_as_html(const std::string& title, const std::vector<Figure>& figures) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>{1}</style></head>\n<body>\n<h1>{0}</h1>\n<main>\n",
      scene::html::escape(title), kStyle);
  for (const Figure& figure : figures) page += figure.html;
  return page + "</main>\n</body>\n</html>\n";
}

std::vector<Figure> figures_of_html(std::string_view page) {
  std::vector<Figure> figures;
  for (std::size_t begin = page.find(kFigureBegin); begin != std::string_view::npos;
       begin = page.find(kFigureBegin)) {
    page.remove_prefix(begin);
    const std::size_t end = page.find(kFigureEnd);
    if (end == std::string_view::npos) break;
    Figure figure{-1, std::string(page.substr(0, end + kFigureEnd.size()))};
    const char* const number = figure.html.data() + kFigureBegin.size();
    std::from_chars(number, figure.html.data() + figure.html.size(), figure.number);
    figures.push_back(std::move(figure));
    page.remove_prefix(end);
  }
  return figures;
}

}  // namespace fovea::train
