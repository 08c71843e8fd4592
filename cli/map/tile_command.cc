// SPDX-License-Identifier: Apache-2.0
//
// `fovea tile` (command.h), and its manual page.

#include <string>

#include <fmt/format.h>

#include "fovea/array_format.h"
#include "fovea/files.h"

#include "cli/map/command.h"
#include "cli/map/place.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/terminal.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Prints or writes the weights softmax(scores) of some queries and keys of one head, as they "
    "are: exp(score - lse), 0 where the mask hides the key. The lse of these queries comes from a "
    "pass over all their keys; the rest costs what the rectangle costs. With --scores it is what "
    "enters the softmax, -inf where the mask hides the key, and no pass is needed.\n"
    "\n"
    "Without --output numbers are printed as NumPy prints an array: of more than 1000 the first "
    "and last few. Tensors, masks and scores are those of fovea attend, and mean the same.";

constexpr const char* kExamples =
    " fovea tile --input layer.npz --causal --rows 0:6 --cols 0:6\n"
    " fovea tile --query q.npy --key k.npy --head 3 --rows 900: --output last.npy\n"
    " fovea tile --input layer.npz --rows 7:8 --scores --output - > scores.npy";

Page tile_page() {
  return {
      .synopsis = {"fovea tile --query TENSOR --key TENSOR [--batch N] [--head N]",
                   "           [--rows FIRST:END] [--cols FIRST:END] [--scores]",
                   "           [--output FILE] [OPTION]...", "fovea tile --input FILE [OPTION]..."},
      .description = kDescription,
      .sections = {exit_status_section(),
                   {"EXAMPLES", kExamples},
                   {"SEE ALSO", "fovea map --help, fovea attend --help; docs/files.md"}}};
}

class TileCommand : public Command {
 public:
  explicit TileCommand(CLI::App& parent);

  int run() const override;

 private:
  void check_usage() const;

  WeightArguments arguments_;
  std::string output_;
  bool scores_ = false;
};

TileCommand::TileCommand(CLI::App& parent)
    : Command(parent, "tile", "one rectangle of the weights, as numbers", tile_page()) {
  add_weight_options(*app_, arguments_, "Which weights", HeadChoice::kOne, [this] {
    app_->option_defaults()->group("Options");
    app_->add_flag("--scores", scores_, "Scores instead of weights.");
    app_->add_option("--output", output_,
                     "Write them there, [queries, keys]: an .npy, or \"-\", an .npy on standard "
                     "output.")
        ->type_name("FILE");
  });
}

void TileCommand::check_usage() const {
  check_weight_usage(*app_, arguments_, {{"--output", &output_}});
  if (given("--output") && output_ != "-") require_ending("--output", output_, {".npy"}, ".npy");
}

int TileCommand::run() const {
  check_usage();
  const auto [inputs, rules, place] = read_weight_problem(*app_, arguments_);
  const bool to_file = given("--output") && output_ != "-";
  if (to_file) require_writable(output_);

  Progress progress;
  const MapRequest request = {
      .batch = place.batch, .head = place.head, .queries = place.queries, .keys = place.keys};
  const TileOf what = scores_ ? TileOf::kScores : TileOf::kWeights;
  const Tensor tile = compute_tile(inputs, rules, request, what,
                                   static_cast<int>(arguments_.problem.threads), progress);
  progress.clear();
  if (!given("--output")) {
    ArrayFormat format;
    format.line_width = choose_width(false);
    write_stdout(format_array(tile, format) + "\n");
    return 0;
  }
  write_tensor(output_, tile);
  if (to_file) {
    write_stdout(fmt::format("tile   {} queries, {} keys, written to {}\n", place.queries.size(),
                             place.keys.size(), visible(output_)));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_tile(CLI::App& parent) {
  return std::make_unique<TileCommand>(parent);
}

}  // namespace fovea::cli
