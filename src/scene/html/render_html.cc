// SPDX-License-Identifier: Apache-2.0
//
// Renders a trace as one self-contained page that is both HTML5 and well-formed XML and loads no
// other resources. All numbers are visible without a script; the scripts in page/ add interaction.
// The other files in this folder render the parts, and this file assembles them.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/scene.h"

#include "scene/html/data.h"
#include "scene/html/mathml.h"
#include "scene/html/page.h"
#include "scene/html/sections.h"
#include "scene/html/story.h"
#include "scene/html/table.h"
#include "scene/read/step_catalogue.h"
#include "scene/tell/story.h"
#include "scene/trace/trace_model.h"
#include "text/html_escape.h"

namespace fovea::scene {

// page/page.css and the scripts of page/, joined and embedded by the build.
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

namespace {

using html::escape;
using html::isolate;
using html::PageSection;

/// Maximum number of words in a box of the flow.
constexpr std::size_t kWordsInBox = 6;

class Page {
 public:
  Page(const Trace& trace, const PageOptions& options, const html::PageFrame& frame)
      : trace_(trace),
        model_(trace),
        texts_(options.language),
        sections_(model_, texts_),
        frame_(frame) {}

  /// Returns the content of the page's body, without the texts and the script.
  std::string body() {
    addf("<a class=\"skip\" href=\"#steps\">{}</a>\n{}", texts_("page.skip"), frame_.before);
    banner();
    sentence();
    out_ += "<div class=\"page\">\n";
    flow();
    out_ += "<main id=\"steps\">\n";
    // Filled by the script, and therefore hidden without one.
    addf("<section id=\"glance\" hidden=\"hidden\"><h2>{}</h2></section>\n", texts_("page.glance"));
    part("in", sections_.inputs());
    part("story", html::story_sections(model_, texts_));
    std::vector<PageSection> results = sections_.results();
    for (PageSection& section : results) {
      if (section.steps.front() == "weights") section.body += sections_.remarks();
    }
    part("all", results);
    checks();
    scene_itself();
    if (html::is_editable(model_)) optional_formulas();
    addf("</main>\n</div>\n{}<script type=\"application/json\" id=\"data\">{}</script>\n",
         frame_.after, html::page_data(model_, texts_));
    return std::move(out_);
  }

 private:
  void add(std::string_view text) { out_ += text; }
  template <class... Args>
  void addf(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  const Scene& scene() const { return trace_.scene; }

  // ---- Page frame ------------------------------------------------------------------------------

  void banner() {
    addf("<header class=\"banner\">\n<h1>{}</h1>\n<p class=\"kind\">{}</p>\n",
         isolate(scene().title), escape(summarize(scene(), texts_)));
    add(sections_.notes({"scene"}));
    add("</header>\n");
  }

  /// Writes the words, which the script converts to buttons.
  void sentence() {
    add("<div class=\"bar\" id=\"bar\" role=\"navigation\">\n");
    const auto& items = scene().words.tokens;
    for (std::size_t item = 0; item < items.size(); ++item) {
      addf("<ol class=\"chips\" data-item=\"{}\" aria-label=\"{}\">", item,
           items.size() > 1 ? texts_("page.words_of", {{"n", std::to_string(item + 1)}})
                            : texts_("page.words"));
      for (const std::string& word : items[item]) addf("<li>{}</li>", isolate(word));
      add("</ol>\n");
    }
    add("</div>\n");
  }

  // ---- Flow: a box per step, with its shape on the outgoing arrow ------------------------------

  /// Returns the rank of a step. Steps with equal rank are side by side in the flow.
  static int rank(std::string_view name) {
    static const std::vector<std::vector<std::string_view>> ranks = {
        {"tokens", "source_tokens"},
        {"embeddings", "source_embeddings"},
        {"query_weights", "key_weights", "value_weights"},
        {"query", "key", "value"},
        {"hidden"},
        {"scores"},
        {"scaled_scores"},
        {"softcapped_scores"},
        {"biased_scores"},
        {"masked_scores"},
        {"weights"},
        {"context"},
        {"merged_context"},
    };
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      for (const std::string_view known : ranks[i]) {
        if (known == base_name(name)) return static_cast<int>(i);
      }
    }
    return -1;
  }

  void flow() {
    addf("<nav class=\"flow\" id=\"flow\" aria-label=\"{}\">\n<ol>\n", texts_("page.flow"));
    std::vector<const Step*> boxes;
    for (const Step& step : trace_.steps) {
      if (!html::is_focus(step) && rank(step.name) >= 0) boxes.push_back(&step);
    }
    std::stable_sort(boxes.begin(), boxes.end(),
                     [](const Step* a, const Step* b) { return rank(a->name) < rank(b->name); });
    int open = -1;
    for (const Step* box : boxes) {
      const Step& step = *box;
      const int at = rank(step.name);
      if (at != open) {
        if (open >= 0) add("</li>\n");
        add("<li>");
        open = at;
      }
      const bool aside = step.name.find('[') != std::string::npos;  // not used by later steps
      addf(
          "<div class=\"box{}\"><a href=\"#{}\" data-step=\"{}\"><b>{}</b>{}</a><span "
          "class=\"shape\">{}</span></div>",
          aside ? " aside" : "", html::step_id(step.name), step.name, step_title(step.name, texts_),
          box_detail(step), html::shape_text(step.shape));
    }
    if (open >= 0) add("</li>\n");
    add("</ol>\n</nav>\n");
  }

  /// Returns the words of the step, or the normalization of its weights.
  std::string box_detail(const Step& step) const {
    const std::string how = sections_.normalization_of(step);
    if (!how.empty()) return fmt::format("<span class=\"how\">{}</span>", how);
    if (step.words.empty()) return "";
    std::string out = "<span class=\"words\">";
    for (std::size_t i = 0; i < step.words.size() && i < kWordsInBox; ++i) {
      out += (i == 0 ? "" : ", ") + isolate(step.words[i]);
    }
    return out + (step.words.size() > kWordsInBox ? ", \u2026</span>" : "</span>");
  }

  // ---- Sections --------------------------------------------------------------------------------

  void part(std::string_view id, const std::vector<PageSection>& sections) {
    if (sections.empty()) return;
    addf("<h2 id=\"part-{}\">{}</h2>\n", id, texts_(fmt::format("page.{}", id)));
    int open = -1;
    for (const PageSection& section : sections) {
      const int group = group_of(section);
      if (group != open) addf("{}<div class=\"group\">\n", open < 0 ? "" : "</div>\n");
      open = group;
      emit(section);
    }
    add("</div>\n");
  }

  /// Returns the group of a section. Sections of a group are side by side where there is room.
  static int group_of(const PageSection& section) {
    static const std::vector<std::vector<std::string_view>> groups = {
        {"tokens", "source_tokens", "embeddings", "source_embeddings"},
        {"query_weights", "key_weights", "value_weights"},
        {"query", "key", "value"},
        {"story-word", "story-scores"},
        {"story-hidden"},
        {"story-weights", "story-context"},
        {"hidden"},
        {"scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"},
        {"weights"},
        {"context", "merged_context"},
    };
    const bool told = section.id.starts_with("story-");
    const std::string_view name = told ? section.id : base_name(section.steps.front());
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return std::find(group.begin(), group.end(), name) != group.end();
    });
    return static_cast<int>(found - groups.begin());
  }

  void emit(const PageSection& section) {
    std::string steps;
    for (const std::string& step : section.steps) steps += (steps.empty() ? "" : " ") + step;
    addf(
        "<section class=\"step\" id=\"{}\" data-step=\"{}\">\n"
        "<h3><span class=\"number\">{}</span> <span class=\"title\">{}</span></h3>\n",
        section.id, steps, ++number_, section.title);
    add("<div class=\"about\">\n<div class=\"formulas\">");
    for (const std::string& formula : section.formulas) addf("<p>{}</p>", formula);
    add("</div>\n");
    addf("<p class=\"reading\">{}</p>\n", section.reading);
    add(sections_.notes(section.steps));
    addf("{}</div>\n", section.origin);
    add(section.body);
    add(sections_.questions(section.steps));
    add("</section>\n");
  }

  /// Writes the formulas of steps that appear if the reader changes the scale or the mask.
  void optional_formulas() {
    Scene scaled = scene();
    scaled.scale_text = "1";
    add("<template id=\"formulas\">");
    for (const char* name :
         {"scaled_scores", "masked_scores", "focus.scaled_scores", "focus.masked_scores"}) {
      addf("<p data-step=\"{}\">{}</p>", name, html::step_mathml(name, scaled, texts_));
    }
    add("</template>\n");
  }

  // ---- After the steps -------------------------------------------------------------------------

  static std::string error_text(double value) {
    return std::isnan(value) ? "\u2013" : fmt::format("{:.3g}", value);
  }

  void checks() {
    if (trace_.checks.empty()) return;
    const auto held = std::count_if(trace_.checks.begin(), trace_.checks.end(),
                                    [](const Check& check) { return check.passed; });
    addf(
        "<section id=\"checks\">\n<h2>{}</h2>\n<p class=\"reading\">{}</p>\n<div class=\"scroll\">"
        "<table class=\"checks\"><thead><tr>",
        texts_("checks.title"),
        texts_("checks.held",
               {{"held", std::to_string(held)}, {"all", std::to_string(trace_.checks.size())}}));
    for (const char* column : {"checks.step", "checks.error", "checks.allowed", "checks.holds"}) {
      addf("<th scope=\"col\">{}</th>", texts_(column));
    }
    add("</tr></thead><tbody>\n");
    for (const Check& check : trace_.checks) {
      std::string place = check.step;
      for (const std::int64_t i : check.index) place += fmt::format("[{}]", i);
      addf("<tr class=\"{}\"><th scope=\"row\">{}", check.passed ? "held" : "failed",
           escape(place));
      for (const std::string& more : {check.message, check.note}) {
        if (!more.empty()) addf("<span class=\"small\">{}</span>", escape(more));
      }
      addf("</th><td>{}</td><td>{}</td><td>{}</td></tr>\n", error_text(check.max_error),
           error_text(check.tolerance), texts_(check.passed ? "checks.yes" : "checks.no"));
    }
    add("</tbody></table></div>\n</section>\n");
  }

  void scene_itself() {
    addf("<section id=\"scene\">\n<h2>{}</h2>\n", texts_("scene.title"));
    const std::string note = html::data_note(model_, texts_);
    if (!note.empty()) addf("<p class=\"small\">{}</p>\n", note);
    if (scene().json.size() > html::kLongestScene) {
      addf("<p>{}</p>\n", texts_("scene.long", {{"n", std::to_string(scene().json.size() >> 10)}}));
    } else if (!scene().json.empty()) {
      addf("<details><summary>scene.json</summary>\n<pre id=\"scene-json\">{}</pre></details>\n",
           escape(scene().json, html::Lines::kKeep));
    }
    addf("<p class=\"small\">{}</p>\n</section>\n",
         texts_("scene.made", {{"command", "<code>fovea explain --format html</code>"}}));
  }

  const Trace& trace_;
  TraceModel model_;
  Texts texts_;
  html::StepSections sections_;
  const html::PageFrame& frame_;
  std::string out_;
  int number_ = 0;
};

/// Returns the page with this body. Two scenes share the style, the texts and the script.
std::string page_of(const Texts& texts, std::string_view title, std::string_view body) {
  return html::page_head(title, texts) +
         fmt::format(
             "<body>\n{}<script type=\"application/json\" id=\"texts\">{}</script>\n"
             "<script>//<![CDATA[\n{}//]]></script>\n"
             "</body>\n</html>\n",
             body,
             texts.json({"checks.", "course.", "data.", "language", "name.", "page.", "scene.",
                         "slides."}),
             kPageScript);
}

}  // namespace

std::string html::page_head(std::string_view title, const Texts& texts, std::string_view style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"{0}\" "
      "xml:lang=\"{0}\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
      "<title>{1}</title>\n<style>/*<![CDATA[*/\n{2}/*]]>*/</style>\n</head>\n",
      texts.language(), escape(title), style.empty() ? kPageStyle : style);
}

std::string html::page(const Trace& trace, const PageOptions& options, const PageFrame& frame) {
  return page_of(Texts(options.language), trace.scene.title, Page(trace, options, frame).body());
}

std::string to_html(const Trace& trace, const PageOptions& options) {
  return html::page(trace, options, {});
}

std::string to_html(const Trace& first, const Trace& second, const PageOptions& options) {
  // One below the other on paper and without a script, which makes panes of them.
  std::string panes;
  for (const Trace* trace : {&first, &second}) {
    panes += fmt::format("<div class=\"pane\" data-title=\"{}\">\n{}</div>\n",
                         escape(trace->scene.title), Page(*trace, options, {}).body());
  }
  return page_of(Texts(options.language),
                 fmt::format("{} | {}", first.scene.title, second.scene.title), panes);
}

}  // namespace fovea::scene
