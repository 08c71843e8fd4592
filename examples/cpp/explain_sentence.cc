// SPDX-License-Identifier: Apache-2.0
//
// Explains attention over a sentence: as text on standard output and, optionally, as an HTML page.
//
//   explain_sentence "Attention is all you need" page.html

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include "fovea/scene.h"

int main(int argc, char** argv) {
  const char* sentence = argc > 1 ? argv[1] : "Your journey starts with one step";
  try {
    fovea::scene::Scene scene =
        fovea::scene::scene_from_sentence(sentence, {.dim = 3, .seed = 42, .causal = true});
    // Explain the second word, if there is one.
    if (scene.words.length() > 1) fovea::scene::set_focus(scene, "@1");
    const fovea::scene::Trace trace = fovea::scene::trace_scene(scene);
    std::fputs(fovea::scene::to_text(trace).c_str(), stdout);
    if (argc > 2) {
      std::ofstream page(argv[2]);
      page << fovea::scene::to_html(trace) << std::flush;
      if (!page) throw std::runtime_error(std::string("cannot write ") + argv[2]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
