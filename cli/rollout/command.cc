// SPDX-License-Identifier: Apache-2.0
//
// `fovea rollout` (command.h).

#include "cli/rollout/command.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fovea/analysis.h"
#include "fovea/error.h"
#include "fovea/files.h"
#include "fovea/info.h"

#include "cli/pages/pages.h"
#include "cli/problem/arguments.h"
#include "cli/problem/call.h"
#include "cli/problem/options.h"
#include "cli/problem/recorded.h"
#include "cli/problem/rules.h"
#include "cli/rollout/report.h"
#include "cli/shell/call_progress.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/stopwatch.h"
#include "core/fail.h"
#include "picture/svg.h"
#include "picture/table.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

class RolloutCommand : public Command {
 public:
  explicit RolloutCommand(CLI::App& parent);
  int run() const override;

 private:
  void check_usage() const;
  /// Returns the self-attentions of one stack, first layer first.
  std::vector<const RecordedAttention*> layers_of(const Recording& recording) const;
  void write_output(const RolloutReport& report) const;

  AttendArguments arguments_;
  std::int64_t batch_ = 0;
  std::optional<std::int64_t> query_;
  std::optional<double> residual_;
  std::int64_t top_ = 20;
  std::string output_;
};

RolloutCommand::RolloutCommand(CLI::App& parent)
    : Command(parent, "rollout", "trace a token back through all layers", kRolloutPage) {
  app_->add_option("RECORDING", arguments_.recorded.file,
                   "A recording of the attention of a model (docs/recordings.md).");
  add_index(*app_, "--query", query_, "The token to trace back from (default: the last one).");
  add_integer(*app_, "--batch", batch_, {std::int64_t{0}, kMaxCount},
              "The batch item (default 0).");
  add_choice(*app_, "--kind", arguments_.recorded.kind,
             {{"self", AttentionKind::kSelf},
              {"encoder", AttentionKind::kEncoder},
              {"decoder", AttentionKind::kDecoder}},
             "The stack of layers, if the model has two: encoder or decoder.")
      ->type_name("KIND");
  add_real(*app_, "--residual", residual_,
           "The share of a token that each layer passes on unchanged, from 0 to 1 (default 0.5).");
  add_integer(*app_, "--top", top_, {std::int64_t{1}, kMaxCount},
              "The number of tokens in the table (default 20).");
  add_threads_option(*app_, arguments_);
  app_->add_flag("--json", arguments_.json, "Print JSON with all layers instead of the table.");
  app_->add_option("--output", output_,
                   "Write all layers to a .json, .csv or .npy file, or a picture of layers and "
                   "tokens to a .png, .svg or .html file, by its extension.")
      ->type_name("FILE");
}

void RolloutCommand::check_usage() const {
  if (arguments_.recorded.file.empty()) throw UsageError("expected a RECORDING");
  if (!given("--output")) return;
  if (output_.empty()) throw UsageError("--output: expected a value");
  require_ending("--output", output_, {".json", ".csv", ".npy", ".png", ".svg", ".html"},
                 ".json, .csv, .npy, .png, .svg or .html");
}

std::vector<const RecordedAttention*> RolloutCommand::layers_of(const Recording& recording) const {
  std::optional<AttentionKind> kind = arguments_.recorded.kind;
  std::vector<AttentionKind> kinds;
  for (const RecordedAttention& attention : recording.attentions()) {
    if (attention.kind == AttentionKind::kCross) continue;
    if (std::ranges::find(kinds, attention.kind) == kinds.end()) kinds.push_back(attention.kind);
  }
  if (kinds.empty()) {
    fail("{}: expected self-attention, got {}", recording.path(), recorded_words(recording));
  }
  if (!kind && kinds.size() > 1) {
    fail("{}: expected --kind with one stack of layers, encoder or decoder, got {}",
         recording.path(), recorded_words(recording));
  }
  if (!kind) kind = kinds.front();
  std::vector<const RecordedAttention*> layers;
  for (const RecordedAttention& attention : recording.attentions()) {
    if (attention.kind == *kind) layers.push_back(&attention);
  }
  if (layers.empty()) {
    fail("{}: expected a kind that was recorded, {}, got --kind {}", recording.path(),
         recorded_words(recording), attention_kind_name(*kind));
  }
  std::ranges::stable_sort(layers, {}, &RecordedAttention::layer);
  return layers;
}

void RolloutCommand::write_output(const RolloutReport& report) const {
  const std::string ending = ending_of(output_);
  if (ending == ".npy") {
    write_tensor(output_, report.shares);
  } else if (ending == ".json") {
    write_file(output_, rollout_json(report));
  } else if (ending == ".csv") {
    write_file(output_, rollout_csv(report));
  } else {
    const MapCells map = rollout_map(report);
    const MapWords words = rollout_words(report);
    const MapLook look;
    if (ending == ".svg") {
      write_file(output_, map_as_svg(map, look, words));
    } else if (ending == ".html") {
      write_file(output_, map_as_html(map, look, words));
    } else {
      // Tokens by their numbers, which the printed table has too: their texts may have any letters.
      TableLabels labels = {words.down, words.across, words.query_tokens, {}};
      for (std::int64_t token = 0; token < map.columns(); ++token) {
        labels.columns.push_back(std::to_string(token));
      }
      write_file(output_, table_as_png(map, look, labels,
                                       {{"Title", words.title},
                                        {"Software", "fovea " + build_info().version},
                                        {"Description", words.lines.front()},
                                        {"Comment", "rows are layers, columns tokens"}}));
    }
  }
}

int RolloutCommand::run() const {
  check_usage();
  const Recording recording = Recording::open(arguments_.recorded.file);
  const std::vector<const RecordedAttention*> layers = layers_of(recording);
  const ProblemShape shape = layers.front()->shape();
  const auto require_below = [](const char* option, std::int64_t got, std::int64_t count,
                                const char* what) {
    if (got < count) return;
    fail("{}: expected a number below {}, as there are that many {}, got {}", option, count, what,
         got);
  };
  require_below("--batch", batch_, shape.batch, "batch items");
  if (query_) require_below("--query", *query_, shape.q_len, "tokens");
  if (given("--output")) require_writable(output_);

  const RolloutRequest request = {.batch = batch_,
                                  .query = query_.value_or(shape.q_len - 1),
                                  .residual = residual_.value_or(0.5)};
  Progress progress;
  double flop = 0.0;
  for (const RecordedAttention* const layer : layers) {
    flop += useful_flop(layer->shape(), layer->query->extent(3), layer->options);
  }
  CallProgress said(progress, flop);
  Execution execution = {.threads = static_cast<int>(arguments_.threads)};
  execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };
  const Stopwatch watch;
  Tensor shares;
  try {
    shares = attention_rollout(layers, request, execution);
  } catch (const InvalidArgument& error) {
    if (error.argument() == "residual") throw in_words_of_options(error);
    fail("{}: {}", recording.path(), error.what());
  }
  progress.clear();
  RolloutReport report = {.recording = recording,
                          .layers = layers,
                          .request = request,
                          .shares = shares,
                          .tokens = {},
                          .threads = threads_of(execution)};
  report.seconds = watch.seconds();
  if (const TokenList* const tokens = recording.key_tokens(*layers.front(), batch_)) {
    report.tokens = tokens->texts;
  }
  if (given("--output")) write_output(report);
  if (arguments_.json) {
    write_stdout(rollout_json(report));
  } else if (given("--output")) {
    write_stdout(fmt::format("rollout  {} layers, {} tokens, written to {}\n", shares.extent(0),
                             shares.extent(1), visible(output_)));
  } else {
    write_stdout(rollout_text(report, top_));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_rollout(CLI::App& parent) {
  return std::make_unique<RolloutCommand>(parent);
}

}  // namespace fovea::cli
