// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea train scene` (train_scene_page.h). What the options are for stands
// where they are added, in train_scene_command.cc.

#include "cli/train/scene_page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Changes the weights that make a scene's queries and keys until its words look where their "
    "author wants, step by step, against the gradient of a loss. A scene says under \"learn\" what "
    "is wanted: {\"one\": {\"journey\": 0.9}} wants \"one\" to give \"journey\" a weight of at "
    "least "
    "0.9. What that leaves over may go anywhere, and so may the other words' weights.\n"
    "\n"
    "A scene without projections gets them; they begin as the identity, which changes nothing. "
    "Values stay as they are, and so do scale, mask and all else that the scene has. Where it has "
    "several heads, each of them learns the same.";

constexpr const char* kLearning =
    "It ends when every wish is met, and otherwise after --steps, with exit code 1. On Ctrl-C it "
    "ends after the step that it is at and goes on as if that had been the last; a second Ctrl-C "
    "ends the program. Where numbers grow beyond all bounds it ends with the number of the step, "
    "and writes nothing.\n"
    "\n"
    "A wish for 0, not to look there, is met at 0.005. Softmax leaves something for every word, so "
    "that wishes of one word that add up to more than 0.995 are met at that share. Words with the "
    "same numbers, in the same place for the mask and the biases, cannot be told apart.";

constexpr const char* kOutput =
    "The weights of all words before and after, the loss on the way, and what became of each wish. "
    "With several heads a wish is told by the head that is furthest from it.\n"
    "\n"
    "The FILE of --output is the scene with all projections typed in, in full precision: fovea "
    "explain FILE shows what was learned. What the scene had under \"expect\" was said of other "
    "weights, and is left out. FILE is replaced in one step.";

constexpr const char* kJson =
    "One object: {title, end, steps, losses, wishes, output}. end is \"reached\", \"out of steps\" "
    "or \"interrupted\"; losses are those before each step and after the last. Each of the wishes "
    "is {query, query_index, key, key_index, wanted, before, after, met}, in a batch with item; "
    "before and after are lists, with a weight for each head. output is the file, or null.";

constexpr const char* kExamples =
    " fovea train scene examples/scenes/learn_journey.json\n"
    " fovea train scene lesson.json --output learned.json\n"
    " fovea train scene lesson.json --steps 10000 --learning-rate 0.01\n"
    " fovea train scene lesson.json --seed 7 --json";

}  // namespace

Page train_scene_page() {
  return {.synopsis = {"fovea train scene SCENE [--output FILE] [--steps N]",
                       "              [--learning-rate R] [--seed N] [--json]"},
          .description = kDescription,
          .sections = {{"LEARNING", kLearning},
                       {"OUTPUT", kOutput},
                       {"JSON", kJson},
                       exit_status_section(),
                       {"EXAMPLES", kExamples},
                       {"SEE ALSO",
                        "fovea train --help, fovea explain --help; docs/training.md, "
                        "docs/scene.md"}}};
}

}  // namespace fovea::cli
