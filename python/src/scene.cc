// SPDX-License-Identifier: Apache-2.0
//
// Scenes and traces. The library renders them as text, JSON, Markdown and HTML, with the same code
// as for the command line.

#include "fovea/scene.h"

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "functions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

using scene::Scene;
using scene::Step;
using scene::Trace;

Scene load(nb::handle path) { return scene::load_scene(path_of(path.ptr())); }

/// Returns the page in an iframe, which isolates its style and script from the notebook.
std::string framed_page(const Trace& self) {
  const nb::object escape = nb::module_::import_("html").attr("escape");
  return fmt::format(
      "<iframe title=\"{}\" srcdoc=\"{}\" style=\"width: 100%; height: 780px; border: 1px solid "
      "#8884; border-radius: 6px\"></iframe>",
      nb::cast<std::string>(escape(self.scene.title)),
      nb::cast<std::string>(escape(scene::to_html(self))));
}

/// Returns the words as written: one list, or one list per batch item.
nb::object tokens_of(const Scene& self) {
  const auto& items = self.words.tokens;
  return self.batched ? nb::cast(items) : nb::cast(items.front());
}

/// Returns a position that is counted from the end if it is negative.
std::int64_t position(nb::handle given, std::int64_t count, const char* what) {
  const std::int64_t index = integer(given.ptr(), "focus");
  if (index < -count || index >= count) {
    raise_value_error("focus: expected {} from {} to {}, got {}", what, -count, count - 1, index);
  }
  return index < 0 ? index + count : index;
}

Scene with_focus(const Scene& self, nb::handle query) {
  Scene result = self;
  const auto words = [&](nb::handle index) {
    return position(index, self.words.length(), "a position");
  };
  std::string word;
  if (nb::try_cast(query, word)) {
    scene::set_focus(result, word);
  } else if (PySequence_Check(query.ptr()) != 0 && PySequence_Size(query.ptr()) == 2) {
    const auto items = static_cast<std::int64_t>(self.words.tokens.size());
    result.focus = scene::Focus{position(query[0], items, "an item"), words(query[1])};
  } else if (PyIndex_Check(query.ptr()) && !PyBool_Check(query.ptr())) {
    result.focus = scene::Focus{0, words(query)};
  } else {
    raise_type_error("focus: expected a word, a position or [item, position], got {}",
                     describe(query.ptr()));
  }
  return result;
}

nb::object values_of(const Step& step, nb::handle owner) {
  if (step.numeric) {
    nb::list ids;
    for (const std::string& word : step.words) ids.append(nb::int_(nb::str(word.c_str())));
    return ids;
  }
  if (!step.words.empty()) return nb::cast(step.words);
  return nb::steal(numpy_view(step.values, owner.ptr()));
}

nb::object item(nb::handle_t<Trace> self, const std::string& name) {
  const Trace& trace = nb::cast<const Trace&>(self);
  const Step* const step = trace.find(name);
  if (step != nullptr) return values_of(*step, self);
  std::vector<std::string> names;
  for (const Step& one : trace.steps) names.push_back(one.name);
  throw nb::key_error(
      fmt::format("no step \"{}\"; there are {}", name, fmt::join(names, ", ")).c_str());
}

std::vector<std::string> names(const Trace& self) {
  std::vector<std::string> result;
  for (const Step& step : self.steps) result.push_back(step.name);
  return result;
}

scene::Color color_of(const std::string& color) {
  if (color == "none") return scene::Color::kNone;
  if (color == "256") return scene::Color::k256;
  if (color == "true") return scene::Color::kTrueColor;
  raise_value_error("color: expected \"none\", \"256\" or \"true\", got \"{}\"", color);
}

}  // namespace

void add_scene(nb::module_& module) {
  nb::class_<Scene>(
      module, "Scene",
      R"(A small attention problem on words: tokens, embeddings, optional weights, heads and a mask.
docs/scene.md describes its JSON format.)")
      .def_static(
          "parse", [](const std::string& json) { return scene::parse_scene(json); }, "json"_a,
          R"(Parses a scene from JSON text. Raises ValueError; the message has the location, the
expected and the actual value.)")
      .def_static(
          "load", load, "path"_a, nb::sig("def load(path: str | os.PathLike[str]) -> Scene"),
          R"(Reads a scene from a file. Raises OSError if it can't be read, ValueError if it is invalid;
the message has the file, the location, the expected and the actual value.)")
      .def_static(
          "from_sentence",
          [](const std::string& text, std::int64_t dim, std::uint64_t seed, bool causal,
             std::int64_t heads, bool random_projections) {
            return scene::scene_from_sentence(text, {.dim = dim,
                                                     .seed = seed,
                                                     .causal = causal,
                                                     .heads = heads,
                                                     .random_projections = random_projections});
          },
          "text"_a, nb::kw_only(), "dim"_a = 4, "seed"_a = 42, "causal"_a = false, "heads"_a = 1,
          "random_projections"_a = false,
          R"(Returns a scene for a sentence: each word gets a random embedding of `dim` numbers, and equal
words get equal ones. Nothing is trained: the weights show how attention is computed, not what a
model would attend to.

seed                seed of NumPy's legacy random streams, one per word ("by": "word" in docs/scene.md)
causal              words do not attend to later words; the last word is in focus
heads               number of heads that split the embedding
random_projections  project the embeddings to queries, keys and values with random weights;
                    otherwise all three are the embeddings

Raises ValueError for text without words and for invalid numbers.)")
      .def(
          "with_focus", with_focus, "query"_a,
          nb::sig("def with_focus(self, query: str | typing.SupportsIndex | "
                  "collections.abc.Sequence[typing.SupportsIndex]) -> Scene"),
          R"(Returns the same scene with another word as the focus: the word; its position, counted from
0, or from -1 at the end; [item, position] in a batch; or "@INDEX" and "@ITEM:INDEX". Raises
ValueError for an unknown word; the message lists the words.)")
      .def_ro("title", &Scene::title)
      .def_prop_ro("tokens", tokens_of,
                   nb::sig("def tokens(self, /) -> list[str] | list[list[str]]"),
                   "The words; a list per item if the scene has a batch.")
      .def_ro("heads", &Scene::heads)
      .def_ro("kv_heads", &Scene::kv_heads)
      .def_ro("json", &Scene::json, "The scene's JSON text, as read or as generated.")
      .def("__repr__", [](const Scene& self) {
        return fmt::format("Scene({:?}, {} words)", self.title, self.words.length());
      });

  nb::class_<Step>(module, "Step", "One step of a trace.")
      .def_ro("name", &Step::name)
      .def_ro("title", &Step::title)
      .def_ro("formula", &Step::formula)
      .def_prop_ro(
          "values",
          [](nb::handle_t<Step> self) { return values_of(nb::cast<const Step&>(self), self); },
          nb::sig("def values(self, /) -> typing.Any"),
          "The values, a read-only NumPy array; for tokens a list of words or ids.")
      .def("__repr__", [](const Step& self) {
        return fmt::format("Step({:?}, {})", self.name, to_string(self.shape));
      });

  nb::class_<scene::Check>(module, "Check",
                           "Comparison of a step with a value that the scene's author expects.")
      .def_ro("step", &scene::Check::step)
      .def_ro("passed", &scene::Check::passed)
      .def_ro("max_error", &scene::Check::max_error)
      .def_ro("tolerance", &scene::Check::tolerance)
      .def_ro("message", &scene::Check::message)
      .def("__repr__", [](const scene::Check& self) {
        return fmt::format("Check({:?}, {}, max_error={:.3g})", self.step,
                           self.passed ? "passed" : "failed", self.max_error);
      });

  nb::class_<Trace>(module, "Trace",
                    R"(Every step of a scene, computed by the reference.

    trace = fovea.explain("Your journey starts with one step")
    trace["weights"]       # an array; names() has all of them
    print(trace)           # the story, as printed by `fovea explain`
    trace                  # in a notebook: an interactive page)")
      .def("names", names, "Returns the names of the steps, in the order of the story.")
      .def(
          "__getitem__", item, "name"_a,
          nb::sig("def __getitem__(self, name: str, /) -> typing.Any"),
          R"(Returns a step by name: a read-only NumPy array, or for tokens a list of words or ids. Batch and
heads are leading dimensions if the scene has them. Raises KeyError.)")
      .def(
          "__contains__",
          [](const Trace& self, nb::handle name) {
            std::string text;
            return nb::try_cast(name, text) && self.find(text) != nullptr;
          },
          nb::sig("def __contains__(self, name: object, /) -> bool"))
      .def(
          "__iter__", [](const Trace& self) { return nb::iter(nb::cast(names(self))); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[str]"))
      .def("__len__", [](const Trace& self) { return self.steps.size(); })
      .def_prop_ro(
          "steps", [](const Trace& self) { return self.steps; },
          "The steps, with titles and formulas.")
      .def_ro("scene", &Trace::scene)
      .def_ro("checks", &Trace::checks, "One check for each value that the scene expects.")
      .def_prop_ro("passed", &Trace::passed, "Whether all checks passed.")
      .def(
          "to_text",
          [](const Trace& self, int width, const std::string& color) {
            return scene::to_text(self, {.color = color_of(color), .width = width});
          },
          nb::kw_only(), "width"_a = 100, "color"_a = "none",
          nb::sig("def to_text(self, *, width: int = 100, color: typing.Literal[\"none\", \"256\", "
                  "\"true\"] = \"none\") -> str"),
          "Returns the story for a terminal of 40 to 240 columns.")
      .def(
          "to_markdown", [](const Trace& self) { return scene::to_markdown(self); },
          "Returns the story as Markdown.")
      .def(
          "to_latex", [](const Trace& self) { return scene::to_latex(self); },
          "Returns the story as a complete LaTeX document.")
      .def(
          "to_json", [](const Trace& self) { return scene::to_json(self); },
          "Returns the steps with all values, in full precision.")
      .def(
          "to_html",
          [](const Trace& self, const Trace* compare, const std::string& language) {
            return compare == nullptr ? scene::to_html(self, {.language = language})
                                      : scene::to_html(self, *compare, {.language = language});
          },
          nb::kw_only(), "compare"_a = nb::none(), "language"_a = "en",
          R"(Returns one self-contained page: no network, no other file. With another trace to compare, it
shows both, with the same word, head and step. `language` is that of the page's own texts: "de", "en", "es"
or "zh". Raises ValueError for another one.)")
      .def(
          "to_slides",
          [](const Trace& self, const std::string& language) {
            return scene::to_slides(self, {.language = language});
          },
          nb::kw_only(), "language"_a = "en",
          R"(Returns one self-contained HTML file with a slide per step. `language` is as in `to_html`.)")
      .def("_repr_html_", framed_page, nb::sig("def _repr_html_(self) -> str"),
           "Returns the page in an iframe, for a notebook.")
      .def("__str__", [](const Trace& self) { return scene::to_text(self); })
      .def("__repr__", [](const Trace& self) {
        return fmt::format("Trace of {:?}: {}", self.scene.title, fmt::join(names(self), ", "));
      });

  module.def(
      "trace_scene", &scene::trace_scene, "scene"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Computes every step of a scene. Raises ValueError if options do not fit the problem.");
}

}  // namespace fovea::python
