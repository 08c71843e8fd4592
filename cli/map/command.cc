// SPDX-License-Identifier: Apache-2.0
//
// `fovea map` (command.h).

#include "cli/map/command.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "fovea/files.h"
#include "fovea/scene.h"

#include "cli/map/compute.h"
#include "cli/map/place.h"
#include "cli/map/stats.h"
#include "cli/map/text.h"
#include "cli/pages/pages.h"
#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/problem/token_file.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"
#include "cli/shell/number_list.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/terminal.h"
#include "cli/shell/units.h"
#include "core/fail.h"
#include "picture/png.h"
#include "picture/svg.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kUsualSide = 1024;

class MapCommand : public Command {
 public:
  explicit MapCommand(CLI::App& parent);
  bool runs_in_jobs() const override { return true; }
  int run() const override;

 private:
  void add_map_options();
  void add_look_options();
  void add_output_options();
  /// Throws UsageError for incompatible arguments and unknown file formats.
  void check_usage() const;
  /// Returns the request. Throws InvalidArgument if an option does not fit the problem.
  MapRequest make_request(const ProblemShape& shape, const MapPlace& place) const;
  void set_size(MapRequest& request) const;
  /// Returns the colours for the map in the terminal.
  scene::Color color_depth() const;
  MapWords words(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                 const MapLook& look) const;
  void write_output(const MapResult& result, const MapLook& look, const MapWords& words) const;
  void write_stats(const MapRequest& request, const MapResult& result, const MapWords& words) const;
  std::string report(const MapResult& result) const;

  WeightArguments arguments_;
  std::string size_;
  Pool reduce_ = Pool::kMean;
  std::optional<Tone> tone_;
  ColorMap colors_ = ColorMap::kViridis;
  ColorWish color_ = ColorWish::kAuto;
  std::string tokens_;
  std::string output_, stats_;
  std::int64_t top_ = 0;
  bool values_ = false;
};

MapCommand::MapCommand(CLI::App& parent)
    : Command(parent, "map", "render attention weights, with statistics", kMapPage) {
  add_weight_options(*app_, arguments_, "Options for the map", HeadChoice::kOneOrAll, [this] {
    add_map_options();
    add_look_options();
    add_output_options();
    add_job_option(*app_);
  });
}

void MapCommand::add_map_options() {
  app_->add_option("--size", size_,
                   "The number of cells or pixels across (keys) and down (queries). Default: one "
                   "per key and query, up to 1024 each, or as many as fit the terminal.")
      ->type_name("WIDTHxHEIGHT");
  add_choice(*app_, "--reduce", reduce_,
             {{"sum", Pool::kSum}, {"mean", Pool::kMean}, {"max", Pool::kMax}},
             "Combine the weights in a cell by sum, mean over the visible pairs (the default), or "
             "max.")
      ->type_name("HOW");
  app_->add_option("--tokens", tokens_,
                   "A text file with one name per line for the keys, and for the queries if there "
                   "are as many. Default: the tokens of the recording.")
      ->type_name("FILE");
  app_->add_flag("--values", values_,
                 "Multiply each weight by the norm of its value, which the recording must have: "
                 "how much of the context it contributes.");
}

void MapCommand::add_look_options() {
  app_->option_defaults()->group("Options for colours");
  add_choice(*app_, "--tone", tone_,
             {{"linear", Tone::kLinear}, {"log", Tone::kLog}, {"sqrt", Tone::kSqrt}},
             "Map weights to colours linearly (linear), by their square root (sqrt), which shows "
             "small weights, or by their logarithm (log), down to a millionth of the largest. "
             "Default: sqrt, or log for more than 256 keys.")
      ->type_name("TONE");
  add_choice(*app_, "--colormap", colors_,
             {{"viridis", ColorMap::kViridis},
              {"magma", ColorMap::kMagma},
              {"cividis", ColorMap::kCividis},
              {"grey", ColorMap::kGrey}},
             "The colour map: viridis (the default), magma, cividis or grey.")
      ->type_name("COLORS");
  add_choice(
      *app_, "--color", color_,
      {{"auto", ColorWish::kAuto}, {"always", ColorWish::kAlways}, {"never", ColorWish::kNever}},
      "Use colours for the map in the terminal: always, never, or only if standard output is a "
      "terminal with colours (auto, the default).")
      ->type_name("WHEN");
}

void MapCommand::add_output_options() {
  app_->option_defaults()->group("Options");
  app_->add_option("--output", output_,
                   "Write the map to a .png, .svg, .html or .npy file, by its extension, instead "
                   "of showing it in the terminal.")
      ->type_name("FILE");
  app_->add_option("--stats", stats_,
                   "Write per-query statistics to a .json or .csv file, by its extension.")
      ->type_name("FILE");
  add_integer(*app_, "--top", top_, {std::int64_t{1}, kMaxTopKeys},
              "With --stats: also write the N largest weights of each query and their keys.");
}

void MapCommand::check_usage() const {
  check_weight_usage(
      *app_, arguments_,
      {{"--output", &output_}, {"--stats", &stats_}, {"--tokens", &tokens_}, {"--size", &size_}});
  if (given("--output")) {
    require_ending("--output", output_, {".png", ".svg", ".html", ".npy"},
                   ".png, .svg, .html or .npy");
  }
  if (given("--stats")) {
    require_ending("--stats", stats_, {".json", ".csv"}, ".json or .csv");
  } else if (given("--top")) {
    throw UsageError("--top goes with --stats FILE");
  }
  if (given("--top") && arguments_.place.heads) {
    throw UsageError(
        fmt::format("--top goes with one head, as each has largest keys of its own; got --head {}",
                    pool_name(*arguments_.place.heads)));
  }
  if (values_) {
    if (!given("RECORDING")) throw UsageError("--values goes with a RECORDING");
    if (arguments_.place.heads || given("--stats")) {
      throw UsageError("--values goes with one head, without --stats");
    }
    if (job_size() > 1) throw UsageError("--values goes with one process");
  }
  // --output and --stats have different extensions, so they cannot be the same file.
}

void MapCommand::set_size(MapRequest& request) const {
  const std::int64_t keys = request.keys.size(), queries = request.queries.size();
  request.columns = std::min(keys, kUsualSide);
  request.rows = std::min(queries, kUsualSide);
  if (size_.empty()) {
    if (given("--output")) return;
    const TextSize fits = text_size(queries, keys, choose_width(false), color_depth());
    request.columns = fits.columns;
    request.rows = fits.rows;
    return;
  }
  const std::size_t cross = size_.find('x');
  const auto width = parse_number<std::int64_t>(std::string_view(size_).substr(0, cross));
  const auto height = cross == std::string::npos
                          ? std::nullopt
                          : parse_number<std::int64_t>(std::string_view(size_).substr(cross + 1));
  if (!width || !height || *width < 1 || *height < 1) {
    fail("--size: expected WIDTHxHEIGHT, whole numbers of 1 or more, got \"{}\"", size_);
  }
  if (*width > keys || *height > queries) {
    fail(
        "--size: expected at most {}x{}, one cell for each of {} keys across and {} "
        "queries down, got {}",
        keys, queries, keys, queries, size_);
  }
  request.columns = *width;
  request.rows = *height;
}

scene::Color MapCommand::color_depth() const { return choose_color(color_, false); }

MapRequest MapCommand::make_request(const ProblemShape& shape, const MapPlace& place) const {
  MapRequest request = {.batch = place.batch,
                        .head = place.head,
                        .heads = place.heads,
                        .queries = place.queries,
                        .keys = place.keys,
                        .pool = reduce_,
                        .statistics = given("--stats"),
                        .top = top_};
  set_size(request);
  if (top_ > shape.kv_len) {
    fail("--top: expected at most {}, as there are that many keys, got {}", shape.kv_len, top_);
  }
  if (ending_of(output_) == ".html" && request.rows * request.columns > kMaxPageCells) {
    fail(
        "--size: expected at most {} cells of a page, which carries all numbers, got {}; .png and "
        ".svg may have more",
        kMaxPageCells, request.rows * request.columns);
  }
  return request;
}

MapWords MapCommand::words(const AttendInputs& inputs, const AttendRules& rules,
                           const MapRequest& request, const MapLook& look) const {
  const ProblemShape& shape = inputs.shape;
  MapSubject subject = {.name = inputs.words(),
                        .model = {},
                        .source = {},
                        .shape = shape,
                        .head = inputs.model_head(request.head),
                        .some_heads = inputs.source && !inputs.source->attention.heads.empty(),
                        .mask = rules.mask_words,
                        .scores = rules.score_words(inputs.head_dim()),
                        .values = values_};
  if (inputs.source) {
    subject.model = inputs.source->recording.model();
    subject.source = inputs.source->recording.source();
  }
  MapWords words = map_words(subject, request, look);
  if (inputs.source) {
    words.query_tokens = inputs.source->query_tokens(request.batch);
    words.key_tokens = inputs.source->key_tokens(request.batch);
  }
  if (!tokens_.empty()) {
    words.query_tokens.clear();
    words.key_tokens = read_tokens("--tokens", tokens_);
    require_tokens("--tokens", tokens_, words.key_tokens, shape.kv_len);
    if (shape.q_len == shape.kv_len) words.query_tokens = words.key_tokens;
  }
  return words;
}

void MapCommand::write_output(const MapResult& result, const MapLook& look,
                              const MapWords& words) const {
  const std::string ending = ending_of(output_);
  if (ending == ".npy") {
    const TensorView cells = result.map.cells;
    write_tensor(output_, cells.dtype() == DType::kFloat32 ? Tensor(cells)
                                                           : convert(cells, DType::kFloat32));
  } else if (ending == ".svg") {
    write_file(output_, map_as_svg(result.map, look, words));
  } else if (ending == ".html") {
    write_file(output_, map_as_html(result.map, look, words));
  } else {
    const std::vector<ImageText> texts = map_texts(result.map, look, words);
    write_file(output_, map_as_png(result.map, look, texts));
  }
}

void MapCommand::write_stats(const MapRequest& request, const MapResult& result,
                             const MapWords& words) const {
  const bool json = ending_of(stats_) == ".json";
  write_file(stats_,
             json ? stats_as_json(request, result, words) : stats_as_csv(request, result, words));
}

std::string MapCommand::report(const MapResult& result) const {
  const MapCells& map = result.map;
  std::string text;
  if (given("--output")) {
    text += fmt::format("map    {} x {} cells, written to {}\n", map.columns(), map.rows(),
                        visible(output_));
  }
  if (given("--stats")) {
    text += fmt::format("stats  {}, written to {}\n",
                        counted(map.queries.size(), "query", "queries"), visible(stats_));
  }
  return text + fmt::format("time   {}, {}\n", time_text(result.seconds),
                            counted(result.threads, "thread"));
}

int MapCommand::run() const {
  check_usage();
  const WeightProblem problem = in_step([&] { return read_weight_problem(arguments_); });
  const AttendInputs& inputs = problem.inputs;
  const AttendRules& rules = problem.rules;
  const MapRequest request = make_request(inputs.shape, problem.place);
  const MapLook drawn = map_look(colors_, tone_, request.keys.size());
  const MapWords told = in_step([&] {
    if (given("--output")) require_writable(output_);
    if (given("--stats")) require_writable(stats_);
    return words(inputs, rules, request, drawn);
  });

  Progress progress;
  const auto threads = static_cast<int>(arguments_.problem.threads);
  const MapResult result =
      values_ ? compute_value_map(inputs.source->attention, request, threads, progress)
              : compute_map(inputs, rules, request, threads, progress);
  do_step([&] {
    if (is_silent()) return;
    if (given("--output")) write_output(result, drawn, told);
    if (given("--stats")) write_stats(request, result, told);
    std::string text;
    if (!given("--output")) {
      text = map_as_text(result.map, drawn, told, choose_width(false), color_depth()) + "\n";
    }
    write_stdout(text + report(result));
  });
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_map(CLI::App& parent) { return std::make_unique<MapCommand>(parent); }

}  // namespace fovea::cli
