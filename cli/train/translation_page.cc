// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea train translate` (train_translate_page.h). What the options are for
// stands where they are added, in train_translate_command.cc.

#include "cli/train/translation_page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Learns from pairs of texts to write the second of them when it reads the first, character by "
    "character, and leaves the model in a folder that fovea translate reads. While it learns, one "
    "can watch where it looks: which characters of the source each character of the answer comes "
    "from, which nobody tells it.";

constexpr const char* kData =
    "Lines of UTF-8, a tab between source and target. A third column may say which characters come "
    "from where, 0-4=20-24,5-7=12-14: characters 0 to 3 of the target from 20 to 23 of the source "
    "(several ranges with + between them). Nothing learns from it; it only serves to count how "
    "often the model looks at the right place.\n"
    "\n"
    "Without --validation every twentieth pair, at most 500 of them, is left out of learning and "
    "serves to validate.";

constexpr const char* kRun =
    "Every --validate-every steps the pairs kept for it are translated, and a line says how many "
    "came out exactly, chrF2 of all, and how many characters looked the most at where they come "
    "from. The best model so far is kept. On a terminal a line below shows loss, tokens in a "
    "second and the time that is left.\n"
    "\n"
    "Then, too, all that the run is goes into a checkpoint. Whatever ends the program, --resume "
    "goes on from there, to the same bits as a run that was never ended, with the same number of "
    "threads and the same SIMD target. On Ctrl-C a checkpoint is made at once. Where the loss is "
    "no number any more, "
    "training ends with the number of the step, and the last checkpoint stays.";

constexpr const char* kFiles =
    " model.json              what the model is, and its characters\n"
    " model.safetensors       the best parameters so far, by PyTorch's names\n"
    " run.json                data and settings, for --resume\n"
    " checkpoint.safetensors  parameters, Adam's means, the step\n"
    " attention.html          where the first validation pair looked, and when";

constexpr const char* kExamples =
    " fovea train translate --data dates.train.tsv --output dates --steps 1500\n"
    " fovea train translate --data pairs.tsv --output run --architecture gru\n"
    " fovea train translate --output run --resume";

}  // namespace

Page train_translate_page() {
  return {.synopsis = {"fovea train translate --data FILE --output DIR [OPTION]...",
                       "fovea train translate --output DIR --resume"},
          .description = kDescription,
          .sections = {{"DATA", kData},
                       {"THE RUN", kRun},
                       {"FILES IN DIR", kFiles},
                       exit_status_section(),
                       {"EXAMPLES", kExamples},
                       {"SEE ALSO", "fovea translate --help; docs/training.md"}}};
}

}  // namespace fovea::cli
