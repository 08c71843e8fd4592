// SPDX-License-Identifier: Apache-2.0
//
// Pages of a course (course.h).

#include "scene/html/course.h"

#include <fmt/format.h>

#include "scene/html/page.h"
#include "text/html_escape.h"

namespace fovea::scene::html {
namespace {

std::string navigation(const std::string& label, const std::string& links) {
  return fmt::format("{} aria-label=\"{}\">{}</nav>\n", kCourseMark, label, links);
}

std::string link_to(const CourseEntry& lesson, const std::string& relation,
                    const std::string& text) {
  return fmt::format("<a rel=\"{}\" href=\"{}\">{}</a>", relation, escape(lesson.href), text);
}

}  // namespace

std::string lesson_page(const Course& course, std::size_t lesson, const Trace& trace) {
  const Texts texts(course.language);
  const std::vector<CourseEntry>& lessons = course.lessons;
  const std::string place = texts("course.place", {{"n", std::to_string(lesson + 1)},
                                                   {"count", std::to_string(lessons.size())}});
  const std::string index =
      fmt::format("<a href=\"{}\">{}</a>", escape(course.index), texts("course.all"));
  std::string neighbours;
  if (lesson > 0) {
    const CourseEntry& previous = lessons[lesson - 1];
    neighbours +=
        link_to(previous, "prev", texts("course.previous", {{"title", isolate(previous.title)}}));
  }
  if (lesson + 1 < lessons.size()) {
    const CourseEntry& next = lessons[lesson + 1];
    neighbours += link_to(next, "next", texts("course.next", {{"title", isolate(next.title)}}));
  }
  return page(trace, {.language = course.language},
              {navigation(texts("course.title"), index + "<span>" + place + "</span>"),
               navigation(place, neighbours + index)});
}

std::string index_page(const Course& course) {
  const Texts texts(course.language);
  std::string lessons;
  for (const CourseEntry& lesson : course.lessons) {
    lessons += fmt::format("<li><a href=\"{}\">{}</a><p>{}</p></li>\n", escape(lesson.href),
                           isolate(lesson.title), escape(lesson.summary));
  }
  std::string how;
  for (const char* line : {"compute", "ask", "word", "change", "terms"}) {
    how += fmt::format("<li>{}</li>\n", texts(fmt::format("course.how.{}", line)));
  }
  return page_head(texts.plain("course.title"), texts) +
         fmt::format(
             "<body>\n<main class=\"index\">\n<h1>{}</h1>\n<p class=\"reading\">{}</p>\n{}"
             "<h2>{}</h2>\n<ul>\n{}</ul>\n<p>{}</p>\n</main>\n</body>\n</html>\n",
             texts("course.title"), texts("course.reading"),
             navigation(texts("course.all"), "<ol>\n" + lessons + "</ol>"), texts("course.how"),
             how,
             texts("course.next_steps",
                   {{"command",
                     "<code>fovea explain --text \"The cat sat\" --output page.html</code>"}}));
}

}  // namespace fovea::scene::html
