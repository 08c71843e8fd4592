// SPDX-License-Identifier: Apache-2.0
//
// Text and JSON reports of measurements (report.h).

#include "bench/attention/report.h"

#include <array>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/optional_json.h"
#include "cli/shell/table.h"
#include "cli/shell/units.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMissed = "missed";
constexpr std::string_view kNone = "-";

/// Returns time_text() with a space appended to "s", so that units line up.
std::string aligned_time(double seconds) {
  const std::string text = time_text(seconds);
  return text.ends_with(" s") ? text + " " : text;
}

constexpr std::string_view kSides = "<>";

/// A row's measured figure, its floor or limit, and whether it missed it.
struct Verdict {
  std::string measured;
  std::string floor;
  bool missed = false;
};

Verdict judge(const RowResult& result, const BenchReport& report) {
  const auto& [kind, target] = std::pair(report.machine.kind, report.build.target);
  if (result.row.against == BenchAgainst::kPlain) {
    const double cost = 1.0 / result.speedup();
    const std::optional<double> most = row_cost(result.row, kind, target);
    return {.measured = fmt::format("{:.3f} x", cost),
            .floor = most ? fmt::format("{:.2f} x", *most) : std::string(kNone),
            .missed = most && cost > *most};
  }
  const bool share = result.row.against == BenchAgainst::kCeiling;
  const double value = share ? result.share() : result.speedup();
  const auto text = [&](double number) {
    return share ? percent_text(number) : fmt::format("{:.2f} x", number);
  };
  Verdict verdict = {.measured = text(value), .floor = std::string(kNone)};
  if (const auto floor = row_floor(result.row, kind, target)) {
    verdict.floor = text(*floor);
    verdict.missed = value < *floor;
  } else if (const auto limit = row_limit(result.row, kind, target)) {
    verdict.floor = fmt::format("<= {}", time_text(*limit));
    verdict.missed = result.median_seconds() > *limit;
  }
  return verdict;
}

/// Returns the JSON value that names a row's comparison.
Json against_json(BenchAgainst against) {
  if (against == BenchAgainst::kOneThread) return "one thread";
  if (against == BenchAgainst::kFloat32) return "float32";
  if (against == BenchAgainst::kPlain) return "no lenses";
  return Json();
}

Json problem_json(const BenchProblem& problem) {
  Json json = {{"batch", problem.batch},           {"q_heads", problem.q_heads},
               {"kv_heads", problem.kv_heads},     {"q_len", problem.q_len},
               {"kv_len", problem.kv_len},         {"head_dim", problem.head_dim},
               {"value_dim", problem.value_dim},   {"mask", problem.mask.to_string()},
               {"softcap", problem.score.softcap}, {"alibi", problem.score.alibi},
               {"bias", problem.score.bias},       {"relative", problem.score.relative},
               {"functor", problem.score.functor}, {"dtype", dtype_name(problem.dtype)},
               {"block_size", problem.block_size}};
  if (problem.lenses.any()) {
    json["lenses"] = {{"map_rows", problem.lenses.map_rows},
                      {"map_columns", problem.lenses.map_columns},
                      {"statistics", problem.lenses.statistics},
                      {"top", problem.lenses.top},
                      {"received", problem.lenses.received},
                      {"relevance", problem.lenses.relevance},
                      {"rising", problem.rising}};
  }
  return json;
}

Json row_json(const RowResult& result, const BenchReport& report) {
  const bool decode = result.row.call == BenchCall::kDecode;
  const bool against = result.row.against != BenchAgainst::kCeiling;
  Json rounds = Json::array();
  for (const BenchRound& round : result.rounds) {
    Json one = {{"seconds", round.seconds},
                {decode ? "ceilings_gb_per_s" : "ceilings_gflops",
                 std::array{round.ceiling_before, round.ceiling_after}}};
    if (against) one["against_seconds"] = round.against_seconds;
    rounds.push_back(one);
  }
  const auto& [machine, target] = std::pair(report.machine.kind, report.build.target);
  const std::optional<double> floor = row_floor(result.row, machine, target);
  const std::optional<double> none;
  Json json = {{"problem", problem_json(result.row.problem)},
               {"threads", result.row.threads},
               {decode ? "bytes" : "flop", result.work},
               {"median_s", result.median_seconds()},
               {"best_s", result.best_seconds()},
               {"at_most_s", optional_json(row_limit(result.row, machine, target))},
               {decode ? "gb_per_s" : "gflops", result.rate()},
               {"share", result.share()},
               {"share_at_least", optional_json(against ? none : floor)},
               {"against", against_json(result.row.against)},
               {"speedup", against ? Json(result.speedup()) : Json()},
               {"speedup_at_least", optional_json(against ? floor : none)},
               {"error", result.error},
               {"allowed_error", result.allowed_error},
               {"rounds", rounds}};
  if (result.row.against == BenchAgainst::kPlain) {
    json["cost"] = 1.0 / result.speedup();
    json["cost_at_most"] = optional_json(row_cost(result.row, machine, target));
  }
  return json;
}

std::string rows_text(const std::string& name, const std::string& unit,
                      const std::vector<RowResult>& results, const BenchReport& report,
                      const std::string& measured = "of ceiling",
                      const std::string& floor = "at least") {
  std::vector<Cells> rows = {
      {name, "threads", "median", "best", unit, measured, floor, "", "error"}};
  for (const RowResult& result : results) {
    const Verdict verdict = judge(result, report);
    rows.push_back({describe(result.row.problem), std::to_string(result.row.threads),
                    aligned_time(result.median_seconds()), aligned_time(result.best_seconds()),
                    fmt::format("{:.1f}", result.rate()), verdict.measured, verdict.floor,
                    std::string(verdict.missed ? kMissed : ""),
                    fmt::format("{:.1e}", result.error)});
  }
  return text_table(rows, kSides);
}

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes * 1e-6); }

}  // namespace

std::string heading_text(const BenchReport& report) {
  return fmt::format("fovea {}, {}, {}, target {}\n{}, {}\n", report.build.version,
                     report.build.compiler, report.build.build_type, report.build.target,
                     visible(report.machine.cpu), counted(report.build.threads, "CPU"));
}

std::string ceilings_text(const BenchReport& report) {
  std::vector<Cells> rows = {{"Ceilings", "GFLOP/s", "in bf16", "GB/s read"}};
  for (const CeilingResult& result : report.ceilings) {
    rows.push_back(
        {counted(result.threads, "thread"), fmt::format("{:.1f}", result.fma_gflops),
         result.bf16_gflops > 0.0 ? fmt::format("{:.1f}", result.bf16_gflops) : std::string(kNone),
         fmt::format("{:.1f}", result.read_gb_per_s)});
  }
  return text_table(rows, kSides);
}

std::string forward_text(const BenchReport& report) {
  return rows_text("Forward", "GFLOP/s", report.forward, report);
}

std::string backward_text(const BenchReport& report) {
  return rows_text("Backward", "GFLOP/s", report.backward, report);
}

std::string decode_text(const BenchReport& report) {
  return rows_text("Decode", "GB/s", report.decode, report);
}

std::string lenses_text(const BenchReport& report) {
  return rows_text("Lenses", "GFLOP/s", report.lenses, report, "of plain", "at most");
}

std::string looks_text(const BenchReport& report) {
  std::vector<Cells> rows = {{"Weights found again", "median", "best", "at most", "", "error"}};
  for (const LookResult& result : report.looks) {
    const auto limit = look_limit(result.look, report.machine.kind, report.build.target);
    const double median = result.median_seconds();
    rows.push_back({describe(result.look), aligned_time(median),
                    aligned_time(result.best_seconds()),
                    limit ? aligned_time(*limit) : std::string(kNone),
                    std::string(limit && median > *limit ? kMissed : ""),
                    fmt::format("{:.1e}", result.error)});
  }
  return text_table(rows, kSides);
}

std::string tiny_text(const BenchReport& report) {
  const TinyResult& tiny = *report.tiny;
  const auto limit = tiny_limit(report.machine.kind, report.build.target);
  const double median = tiny.median_seconds();
  return text_table({{"Tiny", "median", "best", "at most", ""},
                     {"N 4, D 3", aligned_time(median), aligned_time(tiny.best_seconds()),
                      limit ? aligned_time(*limit) : std::string(kNone),
                      std::string(limit && median > *limit ? kMissed : "")}},
                    kSides);
}

std::string memory_text(const BenchReport& report) {
  const MemoryResult& memory = *report.memory;
  return text_table({{"Memory", "beyond inputs and outputs", "at most", ""},
                     {describe(memory.problem), megabytes(memory.bytes), megabytes(kMemoryLimit),
                      std::string(memory.bytes > kMemoryLimit ? kMissed : "")}},
                    kSides);
}

std::string bench_json(const BenchReport& report) {
  Json json = {{"version", report.build.version},       {"compiler", report.build.compiler},
               {"build_type", report.build.build_type}, {"cpu", report.machine.cpu},
               {"cpus", report.build.threads},          {"target", report.build.target}};
  if (!report.ceilings.empty()) {
    json["ceilings"] = Json::array();
    for (const CeilingResult& result : report.ceilings) {
      json["ceilings"].push_back({{"threads", result.threads},
                                  {"fma_gflops", result.fma_gflops},
                                  {"bf16_gflops", result.bf16_gflops},
                                  {"read_gb_per_s", result.read_gb_per_s}});
    }
  }
  for (const auto& [name, results] :
       {std::pair("forward", &report.forward), std::pair("backward", &report.backward),
        std::pair("decode", &report.decode), std::pair("lenses", &report.lenses)}) {
    if (results->empty()) continue;
    json[name] = Json::array();
    for (const RowResult& result : *results) json[name].push_back(row_json(result, report));
  }
  if (!report.looks.empty()) {
    json["looks"] = Json::array();
    for (const LookResult& result : report.looks) {
      const auto& [length, head_dim, queries, keys, cells, seconds] = result.look;
      json["looks"].push_back(
          {{"length", length},
           {"head_dim", head_dim},
           {"queries", queries},
           {"keys", keys},
           {"cells", cells},
           {"median_s", result.median_seconds()},
           {"best_s", result.best_seconds()},
           {"at_most_s",
            optional_json(look_limit(result.look, report.machine.kind, report.build.target))},
           {"error", result.error},
           {"seconds", result.seconds}});
    }
  }
  if (report.tiny) {
    const auto limit = tiny_limit(report.machine.kind, report.build.target);
    json["tiny"] = {{"median_s", report.tiny->median_seconds()},
                    {"best_s", report.tiny->best_seconds()},
                    {"at_most_s", optional_json(limit)},
                    {"calls_per_sample", report.tiny->calls_per_sample},
                    {"seconds", report.tiny->seconds}};
  }
  if (report.memory) {
    json["memory"] = {{"problem", problem_json(report.memory->problem)},
                      {"bytes", report.memory->bytes},
                      {"at_most", kMemoryLimit}};
  }
  // The CPU's name may contain invalid UTF-8, which is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fovea::cli
