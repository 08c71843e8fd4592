// SPDX-License-Identifier: Apache-2.0
//
// Renders a trace as slides: one self-contained file that is both HTML5 and well-formed XML. The
// sections are those of the page. Without the script of slides/, and on paper, the slides are one
// below the other.

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fovea/scene.h"

#include "scene/html/mathml.h"
#include "scene/html/page.h"
#include "scene/html/sections.h"
#include "scene/html/story.h"
#include "scene/html/table.h"
#include "scene/tell/formula.h"
#include "scene/tell/story.h"
#include "scene/trace/trace_model.h"
#include "text/html_escape.h"

namespace fovea::scene {

// page/page.css and slides/slides.css, and slides/slides.js, embedded by the build.
extern const std::string_view kSlidesStyle;
extern const std::string_view kSlidesScript;

namespace html {
namespace {

/// Maximum number of matrices on a slide, unless one item of a batch already has more.
constexpr std::int64_t kMaxSlideMaps = 4;
/// Maximum number of words on the first slide.
constexpr std::size_t kMaxSlideWords = 60;

/// Returns how the matrices are shown: without a script, and of one sentence if there are many.
MapOptions map_options(const TraceModel& model) {
  const Scene& scene = model.scene();
  const bool some = model.batch() * scene.heads > kMaxSlideMaps;
  return {.item = !some ? -1 : scene.focus ? scene.focus->item : 0, .still = true};
}

class Slides {
 public:
  Slides(const Trace& trace, const PageOptions& options)
      : model_(trace),
        texts_(options.language),
        maps_(map_options(model_)),
        sections_(model_, texts_, maps_) {}

  std::string make() {
    out_ = page_head(scene().title, texts_, kSlidesStyle);
    addf(
        "<body>\n<main id=\"deck\" data-previous=\"{}\" data-next=\"{}\" data-position=\"{}\" "
        "data-theme=\"{}\" data-walk=\"{}\">\n",
        texts_("slides.previous"), texts_("slides.next"), texts_("slides.position"),
        texts_("bar.theme"), texts_("bar.walk_through"));
    add_title();
    for (const PageSection& section : sections_.inputs()) add_section(section);
    for (const PageSection& section : story_sections(model_, texts_)) add_section(section);
    for (const PageSection& section : sections_.results()) add_section(section);
    add_questions();
    add_everything();
    addf("</main>\n<script>//<![CDATA[\n{}//]]></script>\n</body>\n</html>\n", kSlidesScript);
    return std::move(out_);
  }

 private:
  template <class... Args>
  void addf(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  const Scene& scene() const { return model_.scene(); }

  /// Opens a slide, whose number is its id, so that "#3" is its address.
  void open(std::string_view steps, std::string_view kind = "") {
    addf("<section class=\"slide{}\" id=\"{}\" data-step=\"{}\">\n", kind, ++number_, steps);
  }

  void add_title() {
    open("", " front");
    addf("<h1>{}</h1>\n<p class=\"kind\">{}</p>\n", isolate(scene().title),
         escape(summarize(scene(), texts_)));
    for (const auto& words : scene().words.tokens) {
      addf("<ol class=\"chips\" aria-label=\"{}\">", texts_("page.words"));
      for (std::size_t i = 0; i < std::min(words.size(), kMaxSlideWords); ++i) {
        addf("<li>{}</li>", isolate(words[i]));
      }
      addf("{}</ol>\n", words.size() > kMaxSlideWords ? "<li>\u2026</li>" : "");
    }
    addf("{}<p class=\"small keys\">{}</p>\n</section>\n", sections_.notes({"scene"}),
         texts_("slides.keys"));
  }

  void add_section(const PageSection& section) {
    open(fmt::format("{}", fmt::join(section.steps, " ")));
    addf("<h1>{}</h1>\n<div class=\"content\">\n<div class=\"about\">\n<div class=\"formulas\">",
         section.title);
    for (const std::string& formula : section.formulas) addf("<p>{}</p>", formula);
    const std::string notes = sections_.notes(section.steps);
    addf(
        "</div>\n<p class=\"reading\">{}</p>\n{}{}</div>\n<div class=\"shown\">\n{}</div>\n"
        "</div>\n</section>\n",
        section.reading,
        notes.empty() ? "" : fmt::format("<div class=\"notes\">\n{}</div>\n", notes),
        section.origin, section.body);
  }

  void add_questions() {
    if (scene().questions.empty()) return;
    open("");
    addf(
        "<h1>{}</h1>\n<div class=\"content\">\n<div "
        "class=\"about\">\n{}</div>\n</div>\n</section>\n",
        texts_("question.several"), sections_.questions());
  }

  /// Adds the last slide: the weights, their remarks, and the formula of all steps.
  void add_everything() {
    const Step* weights = model_.find("weights");
    PageSection section;
    section.title = texts_("slides.all");
    section.reading = texts_("slides.all_reading");
    if (const auto attention = attention_formula(scene(), texts_)) {
      section.formulas = {mathml(*attention)};
    } else {
      for (const char* name : {"weights", "context"}) {
        section.formulas.push_back(step_mathml(name, scene(), texts_));
      }
    }
    section.origin = sections_.remarks();
    if (weights != nullptr) section.body = heat_maps(model_, texts_, *weights, nullptr, maps_);
    add_section(section);
  }

  TraceModel model_;
  Texts texts_;
  MapOptions maps_;
  StepSections sections_;
  std::string out_;
  int number_ = 0;
};

}  // namespace
}  // namespace html

std::string to_slides(const Trace& trace, const PageOptions& options) {
  return html::Slides(trace, options).make();
}

}  // namespace fovea::scene
