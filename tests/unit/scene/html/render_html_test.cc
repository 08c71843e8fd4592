// SPDX-License-Identifier: Apache-2.0
//
// The HTML page of a trace: well-formed XML, self-contained, complete without its script, and safe
// against markup in a scene's words.

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/scene.h"

#include "json/json_text.h"
#include "scene/html/mathml.h"
#include "scene/texts/texts.h"
#include "scene/trace/trace_model.h"
#include "support/files.h"
#include "text/html_escape.h"

namespace fovea::scene {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string page_of(const std::string& text) { return to_html(trace_scene(parse_scene(text))); }

std::string example(const std::string& name) {
  return to_html(trace_scene(load_scene(std::string(FOVEA_SCENES) + "/" + name + ".json")));
}

const std::vector<std::string>& all_examples() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const auto& path : test::example_scenes()) found.push_back(path.stem().string());
    return found;
  }();
  return names;
}

int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

/// Returns the part of the page that contains a scene's words: all but style sheet and script.
std::string content(const std::string& page) {
  std::string out;
  std::size_t at = 0;
  while (at < page.size()) {
    const std::size_t start = std::min(page.find("<![CDATA[", at), page.size());
    out += page.substr(at, start - at);
    const std::size_t end = page.find("]]>", start);
    at = end == std::string::npos ? page.size() : end + 3;
  }
  return out;
}

/// Returns the first XML error of a page, or an empty string. Supports the XML that these pages
/// use: elements, quoted attributes, CDATA, the doctype, and XML's predefined entities.
std::string xml_error(const std::string& page) {
  static const std::vector<std::string> entities = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::vector<std::string> open;
  const auto near = [&](std::size_t at) { return " near: " + page.substr(at, 60); };
  std::size_t at = 0;
  while (at < page.size()) {
    const char c = page[at];
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      return "control character" + near(at);
    }
    if (c == '&') {
      const bool known = std::any_of(entities.begin(), entities.end(), [&](const auto& entity) {
        return page.compare(at, entity.size(), entity) == 0;
      });
      if (!known) return "raw &" + near(at);
    }
    if (page.compare(at, 3, "]]>") == 0) return "]]> outside CDATA" + near(at);
    if (c != '<') {
      ++at;
      continue;
    }
    if (page.compare(at, 9, "<![CDATA[") == 0) {
      at = page.find("]]>", at);
      if (at == std::string::npos) return "CDATA without end";
      at += 3;
      continue;
    }
    if (page.compare(at, 9, "<!DOCTYPE") == 0) {
      at = page.find('>', at) + 1;
      continue;
    }
    // A tag ends at the first > outside quotes.
    std::size_t end = at + 1;
    bool quoted = false;
    for (; end < page.size() && (quoted || page[end] != '>'); ++end) {
      if (page[end] == '"') quoted = !quoted;
      if (page[end] == '<') return "< inside a tag" + near(at);
    }
    if (end == page.size()) return "tag without end" + near(at);
    const bool closing = page[at + 1] == '/';
    const bool empty = page[end - 1] == '/';
    std::size_t name_end = at + (closing ? 2 : 1);
    const std::size_t name_start = name_end;
    while (std::isalnum(static_cast<unsigned char>(page[name_end])) != 0) ++name_end;
    const std::string name = page.substr(name_start, name_end - name_start);
    if (name.empty()) return "tag without name" + near(at);
    if (closing) {
      if (open.empty() || open.back() != name) return "unexpected </" + name + ">" + near(at);
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() ? "" : "not closed: <" + open.back() + ">";
}

json data_of(const std::string& page) {
  const std::string start = R"(<script type="application/json" id="data">)";
  const std::size_t from = page.find(start) + start.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

// ---- The checker itself

TEST(XmlError, DetectsErrors) {
  EXPECT_EQ(xml_error("<a b=\"1 > 0\"><c/>&amp;</a>"), "");
  EXPECT_THAT(xml_error("<a><b></a></b>"), HasSubstr("unexpected </a>"));
  EXPECT_THAT(xml_error("<a>"), HasSubstr("not closed"));
  EXPECT_THAT(xml_error("<a>x & y</a>"), HasSubstr("raw &"));
  EXPECT_THAT(xml_error("<a>1 < 2</a>"), testing::Not(""));
  EXPECT_THAT(xml_error("<a>]]></a>"), HasSubstr("]]>"));
  EXPECT_THAT(xml_error("<a>\x01</a>"), HasSubstr("control"));
}

// ---- Text

TEST(HtmlEscape, MarkupIsText) {
  EXPECT_EQ(html::escape(R"(<a href="x">&'</a>)"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(html::isolate("a<b"), "<bdi>a&lt;b</bdi>");
}

TEST(HtmlEscape, InvisibleCharactersAreShown) {
  EXPECT_EQ(html::visible("\x1b[31m"), "\u241B[31m");
  EXPECT_EQ(html::visible(std::string("a\0b", 3)), "a\u2400b");
  EXPECT_EQ(html::visible("a\nb\tc\x7f"), "a\u240Ab\u2409c\u2421");
  EXPECT_EQ(html::visible("a\r\nb", html::Lines::kKeep), "a\nb");
  EXPECT_EQ(html::visible("\u202Eabc"), "\\u202eabc");
  EXPECT_EQ(html::visible("\u0085\u200B\uFFFE\u2028"), "\\u0085\\u200b\\ufffe\\u2028");
  EXPECT_EQ(html::visible("\u200E\u061C\u00AD\U000E0061\u3164"),
            "\\u200e\\u061c\\u00ad\\ue0061\\u3164");
  EXPECT_EQ(html::visible("a\u200Db\u200Cc"), "a\u200Db\u200Cc");  // writing systems need joiners
  EXPECT_EQ(html::visible("  "), "\u2423\u2423");
  EXPECT_EQ(html::visible(" the"), " the");
  EXPECT_EQ(html::visible("a\xff\xc3"), "a\uFFFD\uFFFD");
  EXPECT_EQ(html::visible("\u05E9\u05DC\u05D5\u05DD \U0001F600"),
            "\u05E9\u05DC\u05D5\u05DD \U0001F600");
}

TEST(HtmlEscape, JsonStringsAreSafeInScripts) {
  const std::string text = script_json_string("</script><!--&]]>\"\\\u2028");
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(json::parse(text), "</script><!--&]]>\"\\\\u2028");
}

// ---- The page

TEST(RenderHtml, EveryExampleIsWellFormedXml) {
  ASSERT_GE(all_examples().size(), 14U);
  for (const std::string& name : all_examples()) EXPECT_EQ(xml_error(example(name)), "") << name;
}

TEST(RenderHtml, PageFetchesNothing) {
  for (const std::string& name : all_examples()) {
    const std::string page = example(name);
    EXPECT_THAT(page, Not(HasSubstr(" src="))) << name;
    EXPECT_THAT(page, Not(HasSubstr("url("))) << name;
    EXPECT_THAT(page, Not(HasSubstr("@import"))) << name;
    EXPECT_THAT(page, Not(HasSubstr("<link"))) << name;
    EXPECT_EQ(count(page, " href=\""), count(page, " href=\"#")) << name;
    // The only URLs are XML namespaces.
    EXPECT_EQ(count(page, "://"), count(page, "\"http://www.w3.org/")) << name;
  }
}

TEST(RenderHtml, ScriptsInWordsAreEscaped) {
  const std::string attack = R"(</script><script>alert(1)</script><img onerror='x'> ]]> --> &lt;)";
  const json scene = {{"title", attack},
                      {"tokens", {attack, "</bdi></table>\"", "\x1b[31m\x01"}},
                      {"embeddings", {{1, 2}, {3, 4}, {5, 6}}},
                      {"notes", {{"scene", attack}, {"scores", "<b>" + attack}}}};
  const std::string page = page_of(scene.dump());
  EXPECT_EQ(xml_error(page), "");
  const std::string shown = content(page);
  EXPECT_EQ(count(shown, "<script"), 3);  // the data, the texts and the page's script
  EXPECT_EQ(count(shown, "</script"), 3);
  EXPECT_THAT(shown, Not(HasSubstr("<img")));
  EXPECT_THAT(shown, Not(HasSubstr("<b>&lt;")));
  EXPECT_THAT(shown, HasSubstr("&lt;/script&gt;&lt;script&gt;alert(1)"));
  EXPECT_THAT(shown, HasSubstr("\u241B[31m\u2401"));
  EXPECT_EQ(data_of(page)["tokens"][0][0], attack);
}

TEST(RenderHtml, TwoScenesAreOnePage) {
  const Trace first = trace_scene(scene_from_sentence("a b c", {}));
  Scene other = scene_from_sentence("d e", {});
  other.title = "\"<other>\" & more";
  const Trace second = trace_scene(other);
  const std::string page = to_html(first, second);
  EXPECT_EQ(xml_error(page), "");
  const std::string escaped = "&quot;&lt;other&gt;&quot; &amp; more";
  EXPECT_THAT(page, HasSubstr("<title>" + first.scene.title + " | " + escaped + "</title>"));
  EXPECT_EQ(count(page, "<div class=\"pane\" data-title=\"" + first.scene.title + "\">"), 1);
  EXPECT_EQ(count(page, "<div class=\"pane\" data-title=\"" + escaped + "\">"), 1);
  // Of what does not depend on the scene, there is one copy.
  EXPECT_EQ(count(page, kPageStyle), 1);
  EXPECT_EQ(count(page, kPageScript), 1);
  EXPECT_EQ(count(page, "id=\"texts\""), 1);
  EXPECT_ANY_THROW(to_html(first, second, {.language = "xx"}));
}

TEST(RenderHtml, EveryStepHasItsSection) {
  for (const std::string& name : all_examples()) {
    const Trace trace = trace_scene(load_scene(std::string(FOVEA_SCENES) + "/" + name + ".json"));
    const std::string page = to_html(trace);
    std::string sections = " ";
    const std::string start = R"(<section class="step" id=")";
    for (std::size_t at = page.find(start); at != std::string::npos;
         at = page.find(start, at + 1)) {
      const std::size_t steps = page.find("data-step=\"", at) + 11;
      sections += page.substr(steps, page.find('"', steps) - steps) + " ";
    }
    for (const Step& step : trace.steps) {
      EXPECT_THAT(sections, HasSubstr(" " + step.name + " ")) << name;
    }
    const int numbered = count(page, start);
    EXPECT_GE(count(page, "<math "), numbered) << name;
    EXPECT_EQ(count(page, "<p class=\"reading\">"), numbered + (trace.checks.empty() ? 0 : 1));
  }
}

TEST(RenderHtml, ShowsTheNotebooksNumbers) {
  const std::string page = example("001_your_journey");
  EXPECT_THAT(page, HasSubstr("<title>Your journey starts with one step</title>"));
  EXPECT_THAT(page, HasSubstr("6 words, 3 numbers each; dot-product scores"));
  EXPECT_THAT(page, HasSubstr("0.55\u00B70.43 + 0.87\u00B70.15 + 0.66\u00B70.89 =</td><td>0.9544"));
  for (const char* number : {">0.1455<", ">0.2379<", ">0.2098<", ">0.4419<", ">0.6515<"}) {
    EXPECT_THAT(page, HasSubstr(number));
  }
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\"><bdi>journey</bdi></th>"));
}

TEST(RenderHtml, MaskedCellsAreCrosses) {
  const std::string page = example("causal_mask");
  const std::string cross = "<td class=\"m\" aria-label=\"masked\">\u00D7</td>";
  // Six words: 15 cells above the diagonal in the masked scores and in the weights. Of the focus,
  // the fourth word: 2 cells in the masked scores, and in the 4 columns of the weights.
  EXPECT_EQ(count(page, cross), 15 * 2 + 2 + 2 * 4);
  EXPECT_THAT(content(page), Not(HasSubstr(">-inf<")));
}

/// Returns the part of a page from the start of a section to the next one.
std::string section_of(const std::string& page, const std::string& id) {
  const std::size_t start = page.find("<section class=\"step\" id=\"" + id + "\"");
  return start == std::string::npos ? ""
                                    : page.substr(start, page.find("</section>", start) - start);
}

TEST(RenderHtml, OneLegendOfTheMask) {
  const std::string legend = "<p class=\"small legend\">\u00D7 masked: ";
  const std::string page = example("causal_mask");
  EXPECT_EQ(count(page, legend), 1);
  EXPECT_EQ(count(section_of(page, "story-scores"), legend), 1);
  const std::string two = R"({"tokens": ["a", "b"], "embeddings": [[1], [2]], )";
  EXPECT_EQ(count(page_of(two + R"("focus": null})"), legend), 0);
  const std::string unfocused = page_of(two + R"("mask": "causal", "focus": null})");
  EXPECT_EQ(count(unfocused, legend), 1);
  EXPECT_EQ(count(section_of(unfocused, "step-masked_scores"), legend), 1);
  const std::string biased = page_of(two + R"("score": {"bias": [["-inf", 0], [0, 0]]}})");
  EXPECT_EQ(count(biased, legend), 1);
  EXPECT_EQ(count(section_of(biased, "story-weights"), legend), 1);
}

TEST(RenderHtml, SoftmaxIsATable) {
  const std::string weights = section_of(example("overflow"), "story-weights");
  EXPECT_THAT(weights, HasSubstr("<th scope=\"col\" data-step=\"focus.scores\">score</th>"
                                 "<th scope=\"col\" data-step=\"focus.exponentials[softmax_"
                                 "unshifted]\">exp(score)</th>"));
  EXPECT_THAT(weights, HasSubstr("<td>840</td><td>inf</td><td>nan</td><td>-60</td>"
                                 "<td>&lt;0.0001</td><td>&lt;0.0001</td>"));
  EXPECT_THAT(weights, HasSubstr("<tr data-total=\"max\"><th scope=\"row\">max</th><td>900</td>"));
  EXPECT_THAT(weights, HasSubstr("<td data-step=\"focus.exponential_sums\">1.0000</td>"
                                 "<td data-step=\"focus.row_sums\">1.0000</td>"));
  EXPECT_THAT(weights, HasSubstr("<tr class=\"remark\"><td colspan=\"8\">exp(900) is more than"));
  EXPECT_EQ(weights.find("\u00D7"), std::string::npos);

  const std::string sink = section_of(example("sinks_and_softcap"), "story-weights");
  EXPECT_THAT(sink, HasSubstr("<tr data-total=\"sink\"><th scope=\"row\">sink</th><td>1.0000</td>"
                              "<td>0.0000</td><td>1.0000</td><td>0.2972</td>"));
  EXPECT_THAT(sink, HasSubstr("The words get 0.7028, the sink gets 0.2972."));
  EXPECT_THAT(sink, HasSubstr("what a row lacks to one, the sink takes."));
}

TEST(RenderHtml, BarsOfNegativeNumbersHaveAnAxis) {
  const auto scores = [](const std::string& embeddings) {
    return section_of(page_of(R"({"tokens": ["a", "b"], "score": {"scale": 1}, "embeddings": )" +
                              embeddings + "}"),
                      "story-scores");
  };
  EXPECT_EQ(count(scores("[[1], [2]]"), "axis\""), 0);
  const std::string signed_bars = scores("[[1], [-2]]");
  EXPECT_EQ(count(signed_bars, "class=\"bar-cell axis\""), 1);
  EXPECT_EQ(count(signed_bars, "class=\"bar-cell n axis\""), 1);
}

TEST(RenderHtml, TheScaleIsRemarkedOn) {
  const std::string page = example("001_your_journey");
  EXPECT_THAT(
      section_of(page, "story-scores"),
      HasSubstr("Not scaled; &quot;score&quot;: {&quot;scale&quot;: "
                "&quot;1/sqrt(head_dim)&quot;} multiplies the scores by 1/sqrt(3) = 0.5774."));
  EXPECT_THAT(page_of(R"({"text": "a b", "embeddings": [[1, 2], [3, 4]], "focus": null})"),
              HasSubstr("<li>Scaled by 1/sqrt(head_dim) = 0.7071; "));
}

TEST(RenderHtml, UnmaskedZeroWeightsAreNumbers) {
  const std::string page = example("overflow");
  EXPECT_THAT(page, Not(HasSubstr("aria-label=\"masked\"")));
  EXPECT_THAT(page, HasSubstr(">0.0000<"));
  EXPECT_THAT(page, HasSubstr("<td class=\"odd\">nan</td>"));
  EXPECT_THAT(page, Not(HasSubstr("-nan")));
}

TEST(RenderHtml, FullyMaskedQuery) {
  const std::string page = page_of(R"({"tokens": ["a", "b"], "embeddings": [[1], [2]],
                                      "mask": "causal", "alignment": -1})");
  EXPECT_EQ(xml_error(page), "");
  EXPECT_THAT(page, HasSubstr("no key may be seen"));
}

TEST(RenderHtml, NumbersWithoutDecimalsHaveNoDecimalPoint) {
  EXPECT_THAT(content(example("alibi_window")), Not(testing::ContainsRegex(">-?[0-9]+\\.<")));
}

TEST(RenderHtml, HeadsAndItemsAreLabelled) {
  EXPECT_EQ(count(example("two_heads"), "<figcaption>head 1</figcaption>") > 4, true);
  EXPECT_THAT(example("padded_batch"), HasSubstr("<figcaption>Sentence 2 of 2</figcaption>"));
}

TEST(RenderHtml, ScriptDataHasFullPrecision) {
  const Trace trace = trace_scene(load_scene(std::string(FOVEA_SCENES) + "/001_your_journey.json"));
  const json data = data_of(to_html(trace));
  bool found = false;
  for (const json& step : data["steps"]) {
    if (step["name"] != "weights") continue;
    found = true;
    EXPECT_EQ(step["shape"], json({6, 6}));
    EXPECT_EQ(step["v"][7].get<double>(), trace.find("weights")->values.value({1, 1}));
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(data["focus"], json({0, 1}));
}

TEST(RenderHtml, QuestionsAreInTheSectionOfTheirStep) {
  const std::string page = to_html(trace_scene(parse_scene(R"({
    "tokens": [["a", "b"], ["c", "d"]], "embeddings": [[[0, 1], [1, 0]], [[1, 1], [0, 1]]],
    "score": {"scale": 1}, "focus": [1, 0],
    "questions": [
      {"step": "weights", "index": [0, 1, 1], "ask": "How <much>?", "hint": "Less than 1."},
      {"step": "focus.scores", "index": [0], "ask": "And \"c\" with itself?", "significant": 3}]})")));
  const auto section = [&](std::string_view id) {
    const std::size_t begin = page.find("id=\"" + std::string(id) + "\" data-step");
    return page.substr(begin, page.find("</section>", begin) - begin);
  };
  const std::string weights = section("step-weights");
  EXPECT_THAT(weights, HasSubstr("<b>Question 1.</b> How &lt;much&gt;?</p>"));
  EXPECT_THAT(weights, HasSubstr("<summary>Hint</summary><p class=\"hint\">Less than 1.</p>"));
  EXPECT_THAT(weights, HasSubstr("<summary>Answer</summary><p>0.7311</p>"));
  const std::string scores = section("story-scores");
  EXPECT_THAT(scores, HasSubstr("<b>Question 2.</b>"));
  EXPECT_THAT(scores, HasSubstr("<summary>Answer</summary><p>2</p>"));
  EXPECT_THAT(scores, Not(HasSubstr("Hint")));
  EXPECT_THAT(page,
              HasSubstr(R"({"step":"weights","place":[0,0,0,1,1],"tolerance":{"digits":2}})"));
  EXPECT_THAT(page,
              HasSubstr(R"({"step":"scores","place":[1,0,0,0,0],"tolerance":{"significant":3}})"));
}

TEST(RenderHtml, PageIsSmall) {
  // Numbers are 20 KB, and so are texts; the rest is the same for every page.
  EXPECT_LT(example("001_your_journey").size(), 160'000U);
  EXPECT_LT(kPageStyle.size() + kPageScript.size(), 100'000U);
  for (const std::string_view asset : {kPageStyle, kPageScript}) {
    EXPECT_EQ(asset.find("]]>"), std::string_view::npos);
    EXPECT_EQ(asset.find("</s"), std::string_view::npos);
    EXPECT_TRUE(std::all_of(asset.begin(), asset.end(), [](char c) { return c > 0; }));
  }
  EXPECT_EQ(kPageScript.find("innerHTML="), std::string_view::npos);
  EXPECT_EQ(kPageScript.find("eval("), std::string_view::npos);
}

TEST(RenderHtml, LongScenesAreDrawnOnACanvas) {
  json scene = {{"title", "long"},
                {"seed", 1},
                {"embeddings", {{"draw", "randn"}, {"dim", 8}}},
                {"mask", "causal"},
                {"heads", 2},
                {"normalizations", {"sum", "softmax_unshifted", "softmax"}}};
  for (int i = 0; i < 300; ++i) scene["tokens"].push_back("word" + std::to_string(i));
  scene["focus"] = 299;
  const std::string page = page_of(scene.dump());
  EXPECT_EQ(xml_error(page), "");
  EXPECT_LT(page.size(), 4U << 20);
  EXPECT_GT(count(page, "<canvas "), 5);
  EXPECT_LT(count(page, "<td"), 2000);
  EXPECT_THAT(page, HasSubstr("<p class=\"small\">The strongest:</p>"));
  EXPECT_THAT(page, HasSubstr("288 more"));
}

TEST(RenderHtml, LongSceneJsonIsOmitted) {
  Scene scene = parse_scene(R"({"tokens": ["a"], "embeddings": [[1]]})");
  EXPECT_THAT(to_html(trace_scene(scene)), HasSubstr("<pre id=\"scene-json\">"));
  scene.json.append(70'000, ' ');
  const std::string page = to_html(trace_scene(scene));
  EXPECT_THAT(content(page), Not(HasSubstr("<pre id=")));
  EXPECT_THAT(page, HasSubstr("too long to repeat"));
}

TEST(RenderHtml, ChecksAreATable) {
  const std::string page = page_of(R"({"tokens": ["a"], "embeddings": [[1]],
      "expect": [{"step": "weights", "values": 1}, {"step": "context", "values": 7}]})");
  EXPECT_EQ(xml_error(page), "");
  EXPECT_THAT(page, HasSubstr("1 of 2 of the author&#39;s numbers hold."));
  EXPECT_THAT(page, HasSubstr("<tr class=\"failed\">"));
}

TEST(Mathml, FormulasMatchTheScene) {
  const auto formula = [](const std::string& score, const std::string& step) {
    return html::step_mathml(step,
                             parse_scene(R"({"tokens": ["a", "b"], "seed": 1,
        "embeddings": [[1, 2], [3, 4]], "score": )" +
                                         score + "}"),
                             english());
  };
  EXPECT_THAT(formula(R"("dot")", "scaled_scores"), HasSubstr("<msqrt>"));
  EXPECT_THAT(formula(R"({"scale": 0.25})", "scaled_scores"), HasSubstr("<mn>0.25</mn>"));
  EXPECT_THAT(formula(R"("dot")", "weights"), HasSubstr("<mi>e</mi>"));
  EXPECT_THAT(formula(R"("dot", "normalizations": ["sum", "softmax"])", "weights[sum]"),
              Not(HasSubstr("<mi>e</mi>")));
  EXPECT_THAT(formula(R"({"sinks": [1]})", "focus.weights"),
              HasSubstr("<mi>max</mi><mrow><mo>(</mo><mrow><mtext>sink</mtext><mo>,</mo>"));
  for (const char* step : {"tokens", "embeddings", "scores", "focus.scores", "masked_scores",
                           "biased_scores", "hidden", "context", "focus.context", "row_sums"}) {
    EXPECT_EQ(xml_error(formula(R"({"alibi": true})", step)), "") << step;
  }
}

TEST(Mathml, PositionsIncludeTheOffset) {
  const auto formula = [](const std::string& more) {
    return html::step_mathml("biased_scores",
                             parse_scene(R"({"tokens": [["a", "b"], ["c", "d"]],
        "embeddings": [[[1], [2]], [[3], [4]]], )" +
                                         more + "}"),
                             english());
  };
  const std::string alibi = R"("score": {"alibi": true})";
  const std::string plain = "<mo>|</mo><mi>i</mi><mo>\u2212</mo><mi>j</mi><mo>|</mo>";
  EXPECT_THAT(formula(alibi), HasSubstr(plain));
  EXPECT_THAT(formula(alibi + R"(, "alignment": 3)"),
              HasSubstr("<mo>|</mo><mi>i</mi><mo>+</mo><mn>3</mn><mo>\u2212</mo><mi>j</mi>"));
  EXPECT_THAT(formula(alibi + R"(, "alignment": -3)"),
              HasSubstr("<mo>|</mo><mi>i</mi><mo>\u2212</mo><mn>3</mn><mo>\u2212</mo><mi>j</mi>"));
  // If the offsets of the batch items differ, the formula needs a symbol.
  const std::string symbol = formula(alibi + R"(, "alignment": [0, 2])");
  EXPECT_THAT(symbol, HasSubstr("<mo>|</mo><msub><mi>p</mi><mi>i</mi></msub><mo>\u2212</mo>"));
  EXPECT_THAT(symbol, HasSubstr("the offset of the batch item"));
  EXPECT_EQ(xml_error(symbol), "");

  const std::string relative = R"("score": {"relative": {"table": [[1], [2], [3], [4]]}})";
  EXPECT_THAT(formula(relative), HasSubstr("<mi>j</mi><mo>\u2212</mo><mi>i</mi></mrow>"));
  EXPECT_THAT(formula(relative + R"(, "alignment": 3)"),
              HasSubstr("<mi>j</mi><mo>\u2212</mo><mi>i</mi><mo>\u2212</mo><mn>3</mn>"));
  EXPECT_THAT(formula(relative + R"(, "alignment": -3)"),
              HasSubstr("<mi>j</mi><mo>\u2212</mo><mi>i</mi><mo>+</mo><mn>3</mn>"));
  EXPECT_THAT(formula(relative + R"(, "alignment": [0, 2])"),
              HasSubstr("<mi>j</mi><mo>\u2212</mo><msub><mi>p</mi><mi>i</mi></msub>"));
}

TEST(RenderHtml, RandomWeightsAreLabelled) {
  const std::string page = page_of(R"({"tokens": ["a"], "seed": 1, "embeddings": [[1]],
      "projections": {"query": [[1]], "key": {"draw": "rand"}, "value": {"draw": "randn"}}})");
  EXPECT_EQ(count(page, "Drawn at random: r"), 2);
  EXPECT_EQ(count(page, "Drawn at random: rand, seed 1."), 1);
  EXPECT_EQ(count(page, "Drawn at random: randn, seed 1."), 1);
}

TEST(StepId, NeedsNoEscaping) {
  EXPECT_EQ(html::step_id("weights[sum]"), "step-weights-sum");
  EXPECT_EQ(html::step_id("focus.scores"), "step-focus-scores");
}

}  // namespace
}  // namespace fovea::scene
