// SPDX-License-Identifier: Apache-2.0
//
// `fovea heads` (command.h).

#include "cli/heads/command.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/heads/compute.h"
#include "cli/heads/picture.h"
#include "cli/heads/report.h"
#include "cli/heads/spread.h"
#include "cli/pages/pages.h"
#include "cli/problem/arguments.h"
#include "cli/problem/call.h"
#include "cli/problem/inputs.h"
#include "cli/problem/options.h"
#include "cli/problem/recorded.h"
#include "cli/problem/rules.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"
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

/// Throws if heads are to be sorted by scores that none of them has.
void require_scores(const std::string& order, const std::vector<HeadOfSource>& heads) {
  if (order != "induction" && order != "duplicate") return;
  for (const HeadOfSource& head : heads) {
    if (!std::isnan(order_value(head, order))) return;
  }
  fail("--sort: {} needs a recording with tokens, some of which are repeated", order);
}

/// Returns the problems to show: the tensors of the options, or the selected attentions.
std::vector<HeadsSource> read_sources(const AttendArguments& arguments) {
  std::vector<HeadsSource> sources;
  if (arguments.recorded.file.empty()) {
    HeadsSource source = {read_inputs(arguments, ValueWish::kIfGiven), {}};
    source.rules = read_rules(arguments);
    sources.push_back(std::move(source));
  } else {
    const Recording recording = Recording::open(arguments.recorded.file);
    for (const RecordedAttention& attention : select_recorded(recording, arguments.recorded)) {
      sources.push_back({recorded_inputs(recording, attention), recorded_rules(attention)});
    }
  }
  for (const HeadsSource& source : sources) {
    require_fit(source.rules.options(), source.inputs.shape);
    require_something(source.inputs.shape);
  }
  return sources;
}

class HeadsCommand : public Command {
 public:
  explicit HeadsCommand(CLI::App& parent);
  bool runs_in_jobs() const override { return true; }
  int run() const override;

 private:
  void check_usage() const;
  /// Runs for the heads of one problem or one recording.
  void show_heads() const;
  /// Writes and prints what was found. `grid` is the picture, if one is wanted.
  void report(const std::vector<HeadsSource>& sources, HeadsResult& result,
              const std::string& order, const std::optional<HeadGrid>& grid) const;
  /// Runs for several recordings.
  void show_spread() const;
  /// Prints the table, or JSON, or what was written.
  void print(const std::string& text, const std::string& json, std::size_t heads) const;

  AttendArguments arguments_;
  std::vector<std::string> recordings_;
  std::int64_t blocks_ = 16;
  std::int64_t top_ = 0;
  std::string sort_;
  std::string output_;
};

HeadsCommand::HeadsCommand(CLI::App& parent)
    : Command(parent, "heads", "classify heads by where they attend", kHeadsPage) {
  app_->add_option("RECORDING", recordings_,
                   "A recording of the attention of a model (docs/recordings.md), instead of "
                   "tensors and options for masks and scores; or several, of the same model, for "
                   "medians over their texts.")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_selection_options(*app_, arguments_.recorded);
  add_problem_options(*app_, arguments_, "Options for the table", [this] {
    add_integer(
        *app_, "--blocks", blocks_, {std::int64_t{1}, kMaxBlocks},
        "The number of equal blocks of keys for the column \"block\" (default 16). If there are "
        "fewer keys, each key is a block.");
    add_choice(
        *app_, "--sort", sort_, head_orders(),
        "Sort heads in descending order by share, the largest of first, prev, own and next; by one "
        "of the columns entropy, even, distance, largest, first, prev, own, next, block, induction "
        "and duplicate; or in ascending order by layer and head (head). Default: head for a "
        "recording, else share.")
        ->type_name("ORDER");
    add_integer(*app_, "--top", top_, {std::int64_t{1}, kMaxCount},
                "Show only the first N heads of the order.");
    app_->option_defaults()->group("Options");
    app_->add_flag("--json", arguments_.json, "Print JSON instead of the table.");
    app_->add_option("--output", output_,
                     "Write the complete table to a .json or .csv file, or a picture with a map of "
                     "each head to a .png, .svg or .html file, by its extension.")
        ->type_name("FILE");
    add_job_option(*app_);
  });
}

void HeadsCommand::check_usage() const {
  if (!check_recorded_usage(*app_, recordings_)) {
    check_problem_usage(*app_, arguments_, {"--query", "--key"}, {{"--output", &output_}});
  }
  if (given("--attention") && arguments_.recorded.attention.empty()) {
    throw UsageError("--attention: expected a value");
  }
  if (!given("--output")) return;
  if (output_.empty()) throw UsageError("--output: expected a value");
  if (recordings_.size() > 1) {
    require_ending("--output", output_, {".json", ".csv"}, ".json or .csv for several recordings");
    return;
  }
  require_ending("--output", output_, {".json", ".csv", ".png", ".svg", ".html"},
                 ".json, .csv, .png, .svg or .html");
}

void HeadsCommand::print(const std::string& text, const std::string& json,
                         std::size_t heads) const {
  if (arguments_.json) {
    write_stdout(json);
  } else if (given("--output")) {
    write_stdout(fmt::format("heads  {}, written to {}\n", heads, visible(output_)));
  } else {
    write_stdout(text);
  }
}

void HeadsCommand::show_heads() const {
  AttendArguments arguments = arguments_;
  if (!recordings_.empty()) arguments.recorded.file = recordings_.front();
  const std::vector<HeadsSource> sources = in_step([&] {
    if (given("--output")) require_writable(output_);
    return read_sources(arguments);
  });

  Progress progress;
  const auto threads = static_cast<int>(arguments_.threads);
  HeadsResult result = compute_heads(sources, blocks_, threads, progress);
  const std::string order = !sort_.empty() ? sort_ : recordings_.empty() ? "share" : "head";
  do_step([&] {
    if (!is_silent()) require_scores(order, result.heads);
  });
  std::optional<HeadGrid> grid;
  if (given("--output") && is_picture(output_)) {
    grid = head_grid(sources, result.heads, threads, progress);
  }
  do_step([&] {
    if (!is_silent()) report(sources, result, order, grid);
  });
}

void HeadsCommand::report(const std::vector<HeadsSource>& sources, HeadsResult& result,
                          const std::string& order, const std::optional<HeadGrid>& grid) const {
  if (grid) write_file(output_, draw_heads_as(ending_of(output_), *grid));
  const std::size_t all = result.heads.size();
  sort_heads(result.heads, order);
  if (top_ > 0 && static_cast<std::size_t>(top_) < all) {
    result.heads.resize(static_cast<std::size_t>(top_));
  }
  const HeadsReport report = {sources, result, static_cast<std::int64_t>(all), order};
  if (given("--output") && !grid) {
    write_file(output_, ending_of(output_) == ".json" ? heads_json(report) : heads_csv(report));
  }
  print(heads_text(report, choose_width(false)), heads_json(report), result.heads.size());
}

void HeadsCommand::show_spread() const {
  if (given("--output")) require_writable(output_);
  Progress progress;
  SpreadReport report = compute_spread(recordings_, arguments_.recorded, blocks_,
                                       static_cast<int>(arguments_.threads), progress);
  report.order = sort_.empty() ? "head" : sort_;
  sort_spread(report.heads, report.order);
  if (top_ > 0 && static_cast<std::size_t>(top_) < report.heads.size()) {
    report.heads.resize(static_cast<std::size_t>(top_));
  }
  if (given("--output")) {
    write_file(output_, ending_of(output_) == ".json" ? spread_json(report) : spread_csv(report));
  }
  print(spread_text(report, choose_width(false)), spread_json(report), report.heads.size());
}

int HeadsCommand::run() const {
  check_usage();
  if (recordings_.size() > 1) {
    if (job_size() > 1) throw UsageError("several recordings go with one process");
    show_spread();
  } else {
    show_heads();
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_heads(CLI::App& parent) {
  return std::make_unique<HeadsCommand>(parent);
}

}  // namespace fovea::cli
