// SPDX-License-Identifier: Apache-2.0
//
// Selection of weights (place.h).

#include "cli/map/place.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/problem/call.h"
#include "cli/shell/number_list.h"
#include "cli/shell/option_types.h"
#include "core/fail.h"

namespace fovea::cli {
namespace {

/// Parses "A:B", in which both numbers are optional.
Span parse_span(const char* option, const std::string& text, std::int64_t length) {
  if (text.empty()) return {0, length};
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const std::string first = text.substr(0, colon), end = text.substr(colon + 1);
    const auto from = first.empty() ? 0 : parse_number<std::int64_t>(first);
    const auto to = end.empty() ? length : parse_number<std::int64_t>(end);
    if (from && to && *from >= 0 && *from < *to && *to <= length) return {*from, *to};
  }
  fail("{}: expected FIRST:END, whole numbers with 0 <= FIRST < END <= {}, got \"{}\"", option,
       length, text);
}

/// Adds --head with the values mean and max for all heads together.
void add_head_option(CLI::App& app, PlaceArguments& to) {
  const auto assign = [&to](const std::string& value) {
    to.heads = value == "mean"  ? std::optional(Pool::kMean)
               : value == "max" ? std::optional(Pool::kMax)
                                : std::nullopt;
    to.head = to.heads ? std::nullopt : parse_number<std::int64_t>(value);
    if (!to.heads && (!to.head || *to.head < 0 || *to.head > kMaxCount)) {
      throw CLI::ValidationError(
          "--head", fmt::format("expected a whole number from 0 to {}, mean or max, got \"{}\"",
                                kMaxCount, value));
    }
  };
  app.add_option_function<std::string>("--head", assign,
                                       "The query head (default 0), or mean or max over all heads.")
      ->type_name("N|HOW");
}

void require_index(const char* option, std::int64_t index, std::int64_t count, const char* what) {
  if (index < count) return;
  fail("{}: expected a number below {}, as there are that many {}, got {}", option, count, what,
       index);
}

/// Adds --batch, --head, --rows and --cols under the current option group.
void add_place_options(CLI::App& app, PlaceArguments& to, HeadChoice heads) {
  add_integer(app, "--batch", to.batch, {std::int64_t{0}, kMaxCount},
              "The batch item (default 0).");
  if (heads == HeadChoice::kOneOrAll) {
    add_head_option(app, to);
  } else {
    add_index(app, "--head", to.head, "The query head (default 0).");
  }
  app.add_option("--rows", to.rows,
                 "Select the queries from FIRST to before END; both are optional. Default: all.")
      ->type_name("FIRST:END");
  app.add_option("--cols", to.cols, "Select keys in the same way.")->type_name("FIRST:END");
}

/// Returns the index among the recorded heads of a head of the model.
std::int64_t recorded_head(const RecordedSource& source, std::int64_t head) {
  const std::vector<std::int64_t>& heads = source.attention.heads;
  const auto found = std::ranges::find(heads, head);
  if (found != heads.end()) return found - heads.begin();
  fail("--head: expected a head that was recorded, {}, got {}", fmt::join(heads, ", "), head);
}

/// Returns the selection. Throws InvalidArgument if an index is out of range or the problem is
/// empty.
MapPlace place_in(const PlaceArguments& arguments, const AttendInputs& inputs) {
  const ProblemShape& shape = inputs.shape;
  if (shape.batch == 0 || shape.q_heads == 0 || shape.q_len == 0 || shape.kv_len == 0) {
    fail("nothing to show: there are {} queries and {} keys{}{}", shape.q_len, shape.kv_len,
         shape.q_heads == 0 ? " of 0 heads" : "", shape.batch == 0 ? " of 0 batch items" : "");
  }
  require_index("--batch", arguments.batch, shape.batch, "batch items");
  std::int64_t head = arguments.head.value_or(0);
  if (inputs.source && !inputs.source->attention.heads.empty()) {
    head = arguments.head ? recorded_head(*inputs.source, head) : 0;
  }
  require_index("--head", head, shape.q_heads, "heads of queries");
  return {.batch = arguments.batch,
          .head = head,
          .heads = arguments.heads,
          .queries = parse_span("--rows", arguments.rows, shape.q_len),
          .keys = parse_span("--cols", arguments.cols, shape.kv_len)};
}

}  // namespace

void add_weight_options(CLI::App& app, WeightArguments& to, const char* heading, HeadChoice heads,
                        const std::function<void()>& own) {
  add_problem_options(app, to.problem, heading, [&] {
    add_place_options(app, to.place, heads);
    own();
  });
}

void check_weight_usage(const CLI::App& app, const WeightArguments& arguments,
                        std::vector<OptionText> own) {
  own.push_back({"--rows", &arguments.place.rows});
  own.push_back({"--cols", &arguments.place.cols});
  check_problem_usage(app, arguments.problem, {"--query", "--key"}, own);
}

WeightProblem read_weight_problem(const WeightArguments& arguments) {
  WeightProblem problem = {
      .inputs = read_inputs(arguments.problem, ValueWish::kIfGiven), .rules = {}, .place = {}};
  problem.rules = read_rules(arguments.problem, problem.inputs);
  require_fit(problem.rules.options(), problem.inputs.shape);
  problem.place = place_in(arguments.place, problem.inputs);
  return problem;
}

}  // namespace fovea::cli
