// SPDX-License-Identifier: Apache-2.0
//
// A sentence explained from C++: the story as text on standard output, and as a page in a file.
//
//   explain_sentence "Attention is all you need" page.html

#include <cstdio>
#include <exception>
#include <fstream>

#include "fovea/scene.h"

int main(int argc, char** argv) {
  const char* sentence = argc > 1 ? argv[1] : "Your journey starts with one step";
  try {
    fovea::scene::Scene scene =
        fovea::scene::scene_from_sentence(sentence, {.dim = 3, .seed = 42, .causal = true});
    fovea::scene::set_focus(scene, "@1");
    const fovea::scene::Trace trace = fovea::scene::trace_scene(scene);
    std::fputs(fovea::scene::to_text(trace).c_str(), stdout);
    if (argc > 2) std::ofstream(argv[2]) << fovea::scene::to_html(trace);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
