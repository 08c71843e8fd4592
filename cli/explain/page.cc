// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea explain` (explain_page.h). What the options are for stands where they
// are added, in explain_command.cc.

#include "cli/explain/page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Computes the attention of a small example exactly as it is written and shows every step on "
    "the way, from embeddings over scores and weights to context: first for one word, the query, "
    "in detail, then for all words at once.\n"
    "\n"
    "The example is a scene, a JSON file that is written by hand (docs/scene.md describes it), or "
    "a sentence, whose words get random embeddings. Nothing is trained: the weights of a sentence "
    "show how attention is computed, not what a language model would attend to.";

constexpr const char* kOutput =
    "text\tThe story for a terminal, with the weights as a heat map: in colours where the terminal "
    "has them, in characters otherwise.\n"
    "markdown\tThe story for a document.\n"
    "html\tOne page that needs no network: heat maps, a query to choose, the products behind each "
    "cell.\n"
    "json\tOne object with \"title\", \"tokens\", \"focus\", \"steps\" and \"checks\". A step has "
    "\"name\", \"title\", \"formula\", \"shape\" and \"values\": nested arrays in full precision, "
    "with \"inf\", \"-inf\" and \"nan\" as strings.\n"
    "\n"
    "With --output the story goes to FILE and nothing to standard output. FILE is replaced in one "
    "step once the story is complete, so that a failure leaves it as it was.";

constexpr const char* kSteps =
    "Each is there where the scene has it. JSON uses these names; those of the query begin with "
    "\"focus.\". Heads and batch are leading dimensions.\n"
    "\n"
    "tokens\tthe words\n"
    "embeddings\ta row of numbers for each word\n"
    "source_tokens\tthe words that are looked at, in cross-attention\n"
    "source_embeddings\tand their numbers\n"
    "query_weights\tprojections; also key_weights, value_weights\n"
    "query, key, value\twhat the projections make of the embeddings\n"
    "hidden\ttanh(q W + k U), for additive scores\n"
    "scores\thow well each query matches each key\n"
    "scaled_scores\tscores times the scale\n"
    "softcapped_scores\tand bent towards a limit\n"
    "biased_scores\twith a bias for the distance or for the pair\n"
    "masked_scores\t-inf where a word must not be seen\n"
    "weights\tscores made to add up to one; \"weights[sum]\" and the like are other ways to do "
    "so, shown beside it\n"
    "row_sums\twhat they do add up to\n"
    "context\tthe values, averaged by the weights\n"
    "merged_context\tthe contexts of all heads, side by side";

constexpr const char* kChecks =
    "A scene may list, under \"expect\", numbers that its author claims. --check prints one line "
    "for each array of them: the step, the largest error, and how much was allowed. With --output "
    "the story is written to FILE as well; without it, only text and json can be checked.";

constexpr const char* kEnvironment =
    "COLUMNS\tThe width of the text, instead of the terminal's.\n"
    "NO_COLOR\tWhen not empty, --color auto means never.\n"
    "TERM\tWhen \"dumb\", --color auto means never.\n"
    "COLORTERM\tWhen \"truecolor\" or \"24bit\", colours are exact; otherwise the nearest of 256.";

constexpr const char* kExamples =
    " fovea explain --text \"Your journey starts with one step\"\n"
    " fovea explain --text \"the cat sat\" --causal --heads 2 --projections random\n"
    " fovea explain lesson.json --query journey\n"
    " fovea explain lesson.json --query @1 --color always | less -R\n"
    " fovea explain lesson.json --output lesson.html\n"
    " fovea explain lesson.json --check\n"
    " fovea explain - --format json < lesson.json | python3 -m json.tool";

}  // namespace

Page explain_page() {
  return {.synopsis = {"fovea explain SCENE [--query WORD|@INDEX] [--format FORMAT]",
                       "              [--output FILE] [--check] [--color WHEN] [--width N]",
                       "fovea explain --text SENTENCE [--dim N] [--seed N] [--causal] [--heads N]",
                       "              [--projections none|random] [OPTION]..."},
          .description = kDescription,
          .sections = {{"OUTPUT", kOutput},
                       {"STEPS", kSteps},
                       {"CHECKS", kChecks},
                       exit_status_section(),
                       {"ENVIRONMENT", kEnvironment},
                       {"EXAMPLES", kExamples},
                       {"SEE ALSO", "fovea --help, fovea info --help; docs/scene.md"}}};
}

}  // namespace fovea::cli
