// SPDX-License-Identifier: Apache-2.0
//
// `fovea heads` (command.h).

#include "cli/heads/command.h"

#include <cstdint>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/heads/compute.h"
#include "cli/heads/report.h"
#include "cli/pages/pages.h"
#include "cli/problem/arguments.h"
#include "cli/problem/call.h"
#include "cli/problem/inputs.h"
#include "cli/problem/options.h"
#include "cli/problem/rules.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/terminal.h"
#include "core/fail.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;

void require_something(const ProblemShape& shape) {
  if (shape.batch > 0 && shape.q_heads > 0 && shape.q_len > 0 && shape.kv_len > 0) return;
  fail(
      "nothing to show: expected at least one of each, got batch {}, heads {}, queries {}, keys {}",
      shape.batch, shape.q_heads, shape.q_len, shape.kv_len);
}

class HeadsCommand : public Command {
 public:
  explicit HeadsCommand(CLI::App& parent);
  int run() const override;

 private:
  void check_usage() const;

  AttendArguments arguments_;
  std::int64_t blocks_ = 16;
  std::string sort_ = "share";
  std::string output_;
};

HeadsCommand::HeadsCommand(CLI::App& parent)
    : Command(parent, "heads", "classify heads by where they attend", kHeadsPage) {
  add_problem_options(*app_, arguments_, "Options for the table", [this] {
    add_integer(
        *app_, "--blocks", blocks_, {std::int64_t{1}, kMaxBlocks},
        "The number of equal blocks of keys for the column \"block\" (default 16). If there are "
        "fewer keys, each key is a block.");
    add_choice(
        *app_, "--sort", sort_, head_orders(),
        "Sort heads in descending order by share (the default), the largest of first, prev, own "
        "and next; by one of the columns entropy, even, distance, largest, first, prev, own, next "
        "and block; or in ascending order by head.")
        ->type_name("ORDER");
    app_->option_defaults()->group("Options");
    app_->add_flag("--json", arguments_.json, "Print JSON instead of the table.");
    app_->add_option("--output", output_,
                     "Write the complete table to a .json or .csv file, by its extension.")
        ->type_name("FILE");
  });
}

void HeadsCommand::check_usage() const {
  check_problem_usage(*app_, arguments_, {"--query", "--key"}, {{"--output", &output_}});
  if (!given("--output")) return;
  require_ending("--output", output_, {".json", ".csv"}, ".json or .csv");
}

int HeadsCommand::run() const {
  check_usage();
  const AttendInputs inputs = read_inputs(arguments_, ValueWish::kIfGiven);
  const AttendRules rules = read_rules(arguments_);
  require_fit(rules.options(), inputs.shape);
  require_something(inputs.shape);
  if (given("--output")) require_writable(output_);

  Progress progress;
  HeadsResult result =
      compute_heads(inputs, rules, blocks_, static_cast<int>(arguments_.threads), progress);
  sort_heads(result.heads, sort_);
  const HeadsReport report = {inputs, rules, result, sort_};
  if (given("--output")) {
    write_file(output_, ending_of(output_) == ".json" ? heads_json(report) : heads_csv(report));
  }
  if (arguments_.json) {
    write_stdout(heads_json(report));
  } else if (given("--output")) {
    write_stdout(fmt::format("heads  {}, written to {}\n", result.heads.size(), visible(output_)));
  } else {
    write_stdout(heads_text(report, choose_width(false)));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_heads(CLI::App& parent) {
  return std::make_unique<HeadsCommand>(parent);
}

}  // namespace fovea::cli
