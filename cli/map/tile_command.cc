// SPDX-License-Identifier: Apache-2.0
//
// `fovea tile` (command.h).

#include <string>
#include <vector>

#include <fmt/format.h>

#include "fovea/array_format.h"
#include "fovea/files.h"

#include "cli/map/command.h"
#include "cli/map/place.h"
#include "cli/map/tile_text.h"
#include "cli/pages/pages.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/terminal.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

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
    : Command(parent, "tile", "print a rectangle of the weights", kTilePage) {
  add_weight_options(*app_, arguments_, "Options for the rectangle", HeadChoice::kOne, [this] {
    app_->option_defaults()->group("Options");
    app_->add_flag("--scores", scores_, "Print scores instead of weights.");
    app_->add_option("--output", output_,
                     "Write the rectangle, [queries, keys], to an .npy file; \"-\": as .npy to "
                     "standard output.")
        ->type_name("FILE");
  });
}

void TileCommand::check_usage() const {
  check_weight_usage(*app_, arguments_, {{"--output", &output_}});
  if (given("--output") && output_ != "-") require_ending("--output", output_, {".npy"}, ".npy");
}

int TileCommand::run() const {
  check_usage();
  const auto [inputs, rules, place] = read_weight_problem(arguments_);
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
    if (inputs.source) {
      const std::vector<std::string> queries = inputs.source->query_tokens(place.batch);
      const std::vector<std::string> keys = inputs.source->key_tokens(place.batch);
      if (!queries.empty() || !keys.empty()) {
        write_stdout(
            tile_as_text(tile, {place.queries, place.keys, queries, keys}, choose_width(false)));
        return 0;
      }
    }
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
