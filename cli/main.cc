// SPDX-License-Identifier: Apache-2.0
//
// The `fovea` program with its commands.

#include <memory>

#include "cli/attend/command.h"
#include "cli/completion/command.h"
#include "cli/diff/command.h"
#include "cli/explain/command.h"
#include "cli/heads/command.h"
#include "cli/info/command.h"
#include "cli/inspect/command.h"
#include "cli/learn/command.h"
#include "cli/map/command.h"
#include "cli/pages/pages.h"
#include "cli/record/command.h"
#include "cli/rollout/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/help.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"
#include "cli/shell/program.h"
#include "cli/train/command.h"
#include "cli/view/command.h"

namespace fovea::cli {
namespace {

std::unique_ptr<Command> make_no_bench(CLI::App& app) {
  return make_absent(app, "bench", "", "unknown command \"bench\"; it is the program fovea-bench");
}

class FoveaProgram : public CommandGroup {
 public:
  explicit FoveaProgram(CLI::App& app) : CommandGroup(app, kFoveaPage, Repeated::kRefused) {
    add_commands({make_learn, make_explain}, "Learn");
    add_commands(
        {make_inspect, make_map, make_tile, make_heads, make_view, make_diff, make_rollout},
        "Look");
    add_commands({make_attend, make_record}, "Compute");
    add_commands({make_train, make_translate}, "Train");
    add_commands({make_info, make_completion}, "Measure (fovea-bench) and set up");
    add_commands({make_no_bench});
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
  fovea::cli::Job job;
  return job.leave(fovea::cli::run_program(argc, argv, "fovea",
                                           "compute, explain and inspect exact attention on CPUs",
                                           fovea::cli::make_fovea));
}
