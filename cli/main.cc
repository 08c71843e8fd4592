// SPDX-License-Identifier: Apache-2.0
//
// The `fovea` program: its commands.

#include <memory>
#include <utility>

#include "cli/attend/command.h"
#include "cli/explain/command.h"
#include "cli/heads/command.h"
#include "cli/info/command.h"
#include "cli/inspect/command.h"
#include "cli/map/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/help.h"
#include "cli/shell/message.h"
#include "cli/shell/program.h"
#include "cli/train/command.h"

namespace fovea::cli {
namespace {

Page root_page() {
  return {
      .synopsis = {"fovea COMMAND [ARGUMENT]...", "fovea COMMAND --help"},
      .description =
          "Attention is how a language model lets each word look at the others. Fovea computes "
          "it exactly, on CPUs, and so that one can look inside.",
      .sections = {exit_status_section(),
                   {"EXAMPLES",
                    " fovea explain --text \"Your journey starts with one step\"\n"
                    " fovea explain lesson.json --output lesson.html\n"
                    " fovea inspect model.safetensors\n"
                    " fovea attend --input layer.npz --causal --output context.npy\n"
                    " fovea map --input layer.npz --causal --output map.html\n"
                    " fovea heads --input layer.npz --causal\n"
                    " fovea train scene lesson.json --output learned.json\n"
                    " fovea translate dates \"en-US: 03/04/05\" --show-attention\n"
                    " fovea-bench\n"
                    " fovea info"},
                   {"ENVIRONMENT",
                    "COLUMNS, NO_COLOR, TERM and COLORTERM shape text; fovea explain --help "
                    "says how. FOVEA_TARGET and OpenMP's variables say what to compute with; "
                    "fovea info --help says how."},
                   {"SEE ALSO",
                    "fovea explain --help, fovea inspect --help, fovea attend --help, fovea map "
                    "--help, fovea tile --help, fovea heads --help, fovea train --help, fovea "
                    "translate --help, fovea-bench --help, fovea info --help"}}};
}

std::unique_ptr<Command> make_no_bench(CLI::App& app) {
  return make_absent(app, "bench", "", "unknown command \"bench\"; it is the program fovea-bench");
}

class FoveaProgram : public CommandGroup {
 public:
  explicit FoveaProgram(CLI::App& app) : CommandGroup(app, root_page(), Repeated::kRefused) {
    add_commands({make_explain, make_inspect, make_attend, make_map, make_tile, make_heads,
                  make_train, make_translate, make_info, make_no_bench});
  }

 private:
  int run_alone() const override {
    write_stderr(short_help(*app_));
    return kBadInput;
  }
};

std::unique_ptr<Command> make_fovea(CLI::App& app) { return std::make_unique<FoveaProgram>(app); }

}  // namespace
}  // namespace fovea::cli

int main(int argc, char** argv) {
  return fovea::cli::run_program(argc, argv, "fovea",
                                 "exact attention on CPUs that one can look inside",
                                 fovea::cli::make_fovea);
}
