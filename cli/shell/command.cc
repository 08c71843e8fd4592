// SPDX-License-Identifier: Apache-2.0
//
// Base classes of commands (command.h).

#include "cli/shell/command.h"

#include <fmt/format.h>

#include "fovea/error.h"

#include "cli/shell/help.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"

namespace fovea::cli {
namespace {

class AbsentCommand : public Command {
 public:
  AbsentCommand(CLI::App& parent, const std::string& name, const std::string& description,
                const std::string& message)
      : Command(parent, name.c_str(), description.c_str(), {}) {
    if (description.empty()) app_->group("");  // hidden
    app_->prefix_command();
    app_->set_help_flag();
    app_->parse_complete_callback([message] { throw InvalidArgument(message); });
  }

  int run() const override { return 0; }  // unreachable
};

}  // namespace

Command::Command(CLI::App& parent, const char* name, const char* description, std::string_view page,
                 Repeated repeated)
    : Command(*parent.add_subcommand(name, description), page, repeated) {}

Command::Command(CLI::App& program, std::string_view page, Repeated repeated) : app_(&program) {
  app_->formatter(std::make_shared<PageFormatter>(parse_page(page)));
  app_->option_defaults()->group("Options");  // a heading of the page
  if (repeated == Repeated::kLastCounts) {
    app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

void CommandGroup::add_commands(std::initializer_list<MakeCommand> commands, const char* group) {
  app_->require_subcommand(0, 1);
  for (const MakeCommand make : commands) {
    commands_.push_back(make(*app_));
    if (group != nullptr) commands_.back()->set_group(group);
  }
}

int CommandGroup::run() const {
  for (const auto& command : commands_) {
    if (!command->chosen()) continue;
    if (job_size() > 1 && !command->runs_in_jobs()) {
      throw UsageError(fmt::format(
          "expected one process, got {}; attend, map and heads run on several", job_size()));
    }
    if (job_needs_mpi() && command->runs_in_jobs()) {
      throw UsageError("expected one process, as this program is built without MPI (FOVEA_MPI=ON)");
    }
    return command->run();
  }
  return run_alone();
}

std::unique_ptr<Command> make_absent(CLI::App& parent, const std::string& name,
                                     const std::string& description, const std::string& message) {
  return std::make_unique<AbsentCommand>(parent, name, description, message);
}

}  // namespace fovea::cli
