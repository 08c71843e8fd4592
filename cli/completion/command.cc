// SPDX-License-Identifier: Apache-2.0
//
// `fovea completion` (command.h).

#include "cli/completion/command.h"

#include <memory>
#include <string>

#include "cli/completion/scripts.h"
#include "cli/completion/table.h"
#include "cli/pages/pages.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"

namespace fovea::cli {
namespace {

using MakeScript = std::string (*)(const std::vector<Completion>& table);

class CompletionCommand : public Command {
 public:
  explicit CompletionCommand(CLI::App& parent);
  int run() const override;

 private:
  MakeScript script_ = nullptr;
};

CompletionCommand::CompletionCommand(CLI::App& parent)
    : Command(parent, "completion", "print a completion script for bash, zsh or fish",
              kCompletionPage, Repeated::kRefused) {
  add_choice<MakeScript>(*app_, "SHELL", script_,
                         {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}},
                         "The shell: bash, zsh or fish.");
}

int CompletionCommand::run() const {
  if (script_ == nullptr) throw UsageError("expected a shell: bash, zsh or fish");
  write_stdout(script_(completion_table(*app_->get_parent())));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_completion(CLI::App& parent) {
  return std::make_unique<CompletionCommand>(parent);
}

}  // namespace fovea::cli
