// SPDX-License-Identifier: Apache-2.0
//
// `fovea diff` (command.h).

#include "cli/diff/command.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/info.h"

#include "cli/diff/compare.h"
#include "cli/diff/report.h"
#include "cli/pages/pages.h"
#include "cli/problem/arguments.h"
#include "cli/problem/options.h"
#include "cli/problem/recorded.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "picture/svg.h"
#include "picture/table.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

class DiffCommand : public Command {
 public:
  explicit DiffCommand(CLI::App& parent);
  int run() const override;

 private:
  void check_usage() const;
  void write_output(const DiffReport& report) const;

  AttendArguments arguments_;
  std::vector<std::string> recordings_;
  std::int64_t top_ = 20;
  std::string sort_ = "mean";
  std::string output_;
};

DiffCommand::DiffCommand(CLI::App& parent)
    : Command(parent, "diff", "compare the heads of two recordings", kDiffPage) {
  app_->add_option("RECORDING", recordings_,
                   "Two recordings of the same tokens (docs/recordings.md): of two models, two "
                   "checkpoints, or a run with a change.")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_selection_options(*app_, arguments_.recorded);
  app_->option_defaults()->group("Options");
  add_choice(*app_, "--sort", sort_, {"mean", "largest", "head"},
             "Sort heads in descending order by their mean (the default) or largest divergence, or "
             "in ascending order by layer and head.")
      ->type_name("ORDER");
  add_integer(*app_, "--top", top_, {std::int64_t{1}, kMaxCount},
              "The number of heads in the table (default 20).");
  add_threads_option(*app_, arguments_);
  app_->add_flag("--json", arguments_.json, "Print JSON with all heads instead of the table.");
  app_->add_option("--output", output_,
                   "Write all heads to a .json or .csv file, or a picture of layers and heads to a "
                   ".png, .svg or .html file, by its extension.")
      ->type_name("FILE");
}

void DiffCommand::check_usage() const {
  if (recordings_.size() != 2) {
    throw UsageError(fmt::format("expected two RECORDINGs, got {}", recordings_.size()));
  }
  check_recorded_usage(*app_, recordings_);
  for (const auto& [option, text] : {std::pair{"--attention", &arguments_.recorded.attention},
                                     std::pair{"--output", &output_}}) {
    if (given(option) && text->empty()) {
      throw UsageError(fmt::format("{}: expected a value", option));
    }
  }
  if (!given("--output")) return;
  require_ending("--output", output_, {".json", ".csv", ".png", ".svg", ".html"},
                 ".json, .csv, .png, .svg or .html");
}

void DiffCommand::write_output(const DiffReport& report) const {
  const std::string ending = ending_of(output_);
  if (ending == ".json" || ending == ".csv") {
    write_file(output_, ending == ".json" ? diff_json(report) : diff_csv(report));
    return;
  }
  const Comparison& comparison = report.comparison;
  MapWords words;
  words.title = fmt::format("Difference of {} and {}", visible(comparison.first.path()),
                            visible(comparison.second.path()));
  words.lines.emplace_back("mean Jensen-Shannon divergence of each head, in nats (0 to 0.693)");
  words.down = "layer";
  words.across = "head";
  words.value = "divergence";
  const MapCells map = difference_map(comparison, words.query_tokens, words.key_tokens);
  const MapLook look;
  if (ending == ".svg") {
    write_file(output_, map_as_svg(map, look, words));
  } else if (ending == ".html") {
    write_file(output_, map_as_html(map, look, words));
  } else {
    const TableLabels labels = {words.down, words.across, words.query_tokens, words.key_tokens};
    write_file(output_, table_as_png(map, look, labels,
                                     {{"Title", words.title},
                                      {"Software", "fovea " + build_info().version},
                                      {"Description", words.lines.front()},
                                      {"Comment", "rows are layers, columns heads"}}));
  }
}

int DiffCommand::run() const {
  check_usage();
  const Recording first = Recording::open(recordings_[0]);
  const Recording second = Recording::open(recordings_[1]);
  if (given("--output")) require_writable(output_);
  Progress progress;
  const Comparison comparison =
      compare(first, second, arguments_.recorded, static_cast<int>(arguments_.threads), progress);
  DiffReport report = {comparison, comparison.heads, sort_};
  if (sort_ != "head") {
    const auto value = [this](const HeadDifference& head) {
      return sort_ == "mean" ? head.mean : head.largest;
    };
    std::ranges::stable_sort(report.heads, [&](const HeadDifference& a, const HeadDifference& b) {
      return std::isnan(value(b)) ? !std::isnan(value(a)) : value(a) > value(b);
    });
  }
  if (given("--output")) write_output(report);
  if (arguments_.json) {
    write_stdout(diff_json(report));
  } else if (given("--output")) {
    write_stdout(fmt::format("heads  {}, written to {}\n", report.heads.size(), visible(output_)));
  } else {
    write_stdout(diff_text(report, static_cast<std::size_t>(top_)));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_diff(CLI::App& parent) {
  return std::make_unique<DiffCommand>(parent);
}

}  // namespace fovea::cli
