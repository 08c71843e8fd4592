// SPDX-License-Identifier: Apache-2.0
//
// The `fovea-bench` program: measures attention against this machine's ceilings.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "fovea/info.h"

#include "bench/attention/machine.h"
#include "bench/attention/measure.h"
#include "bench/attention/problem.h"
#include "bench/attention/report.h"
#include "bench/attention/table.h"
#include "cli/shell/message.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/shell/program.h"
#include "cli/shell/progress.h"
#include "kernels/simd/target.h"

namespace fovea::cli {

extern const std::string_view kBenchPage;  // page.txt

namespace {

constexpr std::int64_t kMaxLength = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxDim = 4096;
constexpr std::int64_t kMaxRepeat = 1000;
constexpr std::int64_t kDefaultLength = 4096;
constexpr std::int64_t kDefaultCache = 16384;
constexpr std::int64_t kDefaultDim = 64;

const std::vector<std::string> kProblemOptions = {
    "--q-len",     "--kv-len", "--q-heads", "--kv-heads", "--batch",      "--head-dim",
    "--value-dim", "--mask",   "--score",   "--dtype",    "--block-size", "--lens"};

class BenchCommand : public Command {
 public:
  explicit BenchCommand(CLI::App& program);
  int run() const override;

 private:
  void add_problem_options();
  /// Returns whether any option describes a problem.
  bool own_problem() const;
  bool wants(const std::string& part) const;
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;
  BenchLenses lenses(const BenchProblem& problem) const;
  BenchProblem problem(BenchCall call) const;
  std::vector<BenchRow> rows(BenchCall call) const;
  std::vector<int> ceiling_threads() const;
  BenchEffort effort() const;

  std::vector<std::string> parts_;
  BenchProblem shape_;
  std::vector<std::string> masks_;
  std::vector<std::string> scores_;
  std::vector<std::string> lenses_;
  std::int64_t threads_ = 1;
  std::int64_t repeat_ = 0;
  bool quick_ = false;
  bool json_ = false;
};

BenchCommand::BenchCommand(CLI::App& program) : Command(program, kBenchPage) {
  add_choices(*app_, "PART", parts_,
              {"ceilings", "forward", "backward", "decode", "lenses", "looks", "tiny", "memory"},
              "One or more of ceilings, forward, backward, decode, lenses, looks, tiny and memory. "
              "Default: forward if a problem is described, else all.");
  add_integer(*app_, "--threads", threads_, {std::int64_t{1}, kMaxThreads},
              "The number of threads. Default: 1; for ceilings 1, then one per CPU.");
  add_integer(*app_, "--repeat", repeat_, {std::int64_t{1}, kMaxRepeat},
              "The number of rounds through all rows (default 7, with --quick 1).");
  app_->add_flag("--quick", quick_, "Measure as briefly as possible.");
  app_->add_flag("--json", json_, "Print one JSON object instead of text.");
  add_problem_options();
}

void BenchCommand::add_problem_options() {
  app_->option_defaults()->group("Options for a problem");
  const auto add = [this](const std::string& name, std::int64_t& target, std::int64_t most,
                          const std::string& description) {
    add_integer(*app_, name, target, {std::int64_t{1}, most}, description);
  };
  add("--q-len", shape_.q_len, kMaxLength, "The number of queries (default 4096; for decode 1).");
  add("--kv-len", shape_.kv_len, kMaxLength,
      "The number of keys and values. Default: that of queries; for decode 16384.");
  add("--q-heads", shape_.q_heads, kMaxHeads, "The number of query heads (default 1).");
  add("--kv-heads", shape_.kv_heads, kMaxHeads,
      "The number of key/value heads, a divisor of that of query heads. Default: the same.");
  add("--batch", shape_.batch, kMaxHeads, "The batch size (default 1).");
  add("--head-dim", shape_.head_dim, kMaxDim, "The dimension of queries and keys (default 64).");
  add("--value-dim", shape_.value_dim, kMaxDim,
      "The dimension of values. Default: that of the keys.");
  app_->add_option(
          "--mask", masks_,
          "The mask: causal, window:LEFT,RIGHT (-1: no bound) or prefix:N. May be repeated: "
          "a key is visible if all rules allow it, except that a prefix widens the rules "
          "before it.")
      ->type_name("RULE");
  app_->add_option(
          "--score", scores_,
          "Modify the scores: alibi, bias (a random number per query and key), relative (T5's "
          "table), softcap:CAP, or functor (softcap:30 as a functor of a user of the library). May "
          "be repeated.")
      ->type_name("RULE");
  add_choice(*app_, "--dtype", shape_.dtype,
             {{"f32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"f16", DType::kFloat16}},
             "The type of the tensors (default f32).")
      ->type_name("TYPE");
  add("--block-size", shape_.block_size, kMaxLength,
      "For decode: store keys and values in blocks of N tokens, in random order.");
  app_->add_option("--lens", lenses_,
                   "For lenses: statistics, top:K (keys per row), map:ROWS,COLUMNS (cells), "
                   "received (the sum of each key's weights, in a separate pass) or, without any "
                   "other, relevance (of each key, in attention_backward). May be repeated. "
                   "Default: statistics, top:8 and map:256,256, or less for small problems.")
      ->type_name("LENS");
  for (const char* name : {"--mask", "--score", "--lens"}) {
    app_->get_option(name)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  app_->option_defaults()->group("Options");
}

bool BenchCommand::own_problem() const {
  for (const std::string& option : kProblemOptions) {
    if (given(option)) return true;
  }
  return false;
}

bool BenchCommand::wants(const std::string& part) const {
  if (!parts_.empty()) return std::ranges::find(parts_, part) != parts_.end();
  return !own_problem() || part == "forward";
}

void BenchCommand::check_usage() const {
  if (given("--block-size") &&
      (!wants("decode") || wants("forward") || wants("backward") || wants("lenses"))) {
    throw UsageError("--block-size goes with decode alone");
  }
  if (given("--lens") && !wants("lenses")) throw UsageError("--lens goes with lenses alone");
  if (wants("forward") || wants("backward") || wants("decode") || wants("lenses")) return;
  for (const std::string& option : kProblemOptions) {
    if (given(option)) {
      throw UsageError(fmt::format("{} goes with forward, backward, decode and lenses, not with {}",
                                   option, parts_.front()));
    }
  }
  if (given("--threads") && !wants("ceilings") && !wants("looks") && !wants("memory")) {
    throw UsageError("--threads does not go with tiny, which is too small for threads");
  }
}

BenchProblem BenchCommand::problem(BenchCall call) const {
  BenchProblem problem = shape_;
  const bool decode = call == BenchCall::kDecode;
  if (!given("--q-len")) problem.q_len = decode ? 1 : kDefaultLength;
  if (!given("--head-dim")) problem.head_dim = kDefaultDim;
  if (!given("--kv-len")) problem.kv_len = decode ? kDefaultCache : problem.q_len;
  if (!given("--kv-heads")) problem.kv_heads = problem.q_heads;
  if (!given("--value-dim")) problem.value_dim = problem.head_dim;
  if (problem.q_heads % problem.kv_heads != 0) {
    throw UsageError(fmt::format("--kv-heads: expected a divisor of the {} query heads, got {}",
                                 problem.q_heads, problem.kv_heads));
  }
  for (const std::string& text : masks_) {
    const Mask rule = parse_mask(text);
    const bool whole_prefix = text.starts_with("prefix") && !problem.mask.allows_all();
    problem.mask = problem.mask.allows_all() ? rule
                   : whole_prefix            ? problem.mask | rule
                                             : problem.mask & rule;
  }
  for (const std::string& text : scores_) parse_score(text, problem.score);
  if (call == BenchCall::kLenses) problem.lenses = lenses(problem);
  return problem;
}

BenchLenses BenchCommand::lenses(const BenchProblem& problem) const {
  if (lenses_.empty()) {
    return {.statistics = true,
            .top = std::min<std::int64_t>(8, problem.kv_len),
            .map_rows = std::min<std::int64_t>(256, problem.q_len),
            .map_columns = std::min<std::int64_t>(256, problem.kv_len)};
  }
  BenchLenses lenses;
  for (const std::string& text : lenses_) parse_lens(text, lenses);
  return lenses;
}

std::vector<BenchRow> BenchCommand::rows(BenchCall call) const {
  const int threads = static_cast<int>(threads_);
  if (own_problem()) {
    const auto against = call == BenchCall::kLenses ? BenchAgainst::kPlain : BenchAgainst::kCeiling;
    const BenchProblem own = problem(call);
    if (own.lenses.relevance) call = BenchCall::kBackward;
    return {{.problem = own, .call = call, .threads = threads, .against = against}};
  }
  return standard_table(call, threads, build_info().threads, kernels::bf16_products_active());
}

std::vector<int> BenchCommand::ceiling_threads() const {
  if (given("--threads")) return {static_cast<int>(threads_)};
  const std::set<int> distinct = {1, omp_get_max_threads()};
  return {distinct.begin(), distinct.end()};
}

BenchEffort BenchCommand::effort() const {
  BenchEffort effort;
  if (quick_) {
    effort = {.rounds = 1,
              .seconds_per_round = 0.0,
              .seconds_per_ceiling = 0.01,
              .seconds_per_own_ceiling = 0.1};
  }
  if (given("--repeat")) effort.rounds = static_cast<int>(repeat_);
  return effort;
}

int BenchCommand::run() const {
  check_usage();
  // Errors in the options are reported before anything is measured.
  const std::vector<BenchRow> forward = rows(BenchCall::kForward);
  const std::vector<BenchRow> backward = rows(BenchCall::kBackward);
  const std::vector<BenchRow> decode = rows(BenchCall::kDecode);
  const std::vector<BenchRow> lenses = rows(BenchCall::kLenses);
  const BenchEffort effort = this->effort();
  BenchReport report;
  report.build = build_info();
  report.machine = this_machine();
  Progress progress;
  const auto print = [&](const std::string& text) {
    progress.clear();
    if (!json_) write_stdout(text);
  };
  print(heading_text(report));
  if (wants("memory")) {
    // Measured first, because memory that other parts leave in the heap would count as well.
    progress.show("memory");
    report.memory = measure_memory(memory_problem(quick_), static_cast<int>(threads_));
  }
  if (wants("ceilings")) {
    for (const int threads : ceiling_threads()) {
      progress.show(fmt::format("ceilings, {} threads", threads));
      report.ceilings.push_back(measure_ceilings(threads, effort));
    }
    print("\n" + ceilings_text(report));
  }
  if (wants("forward")) {
    report.forward = measure_rows(forward, effort, progress);
    print("\n" + forward_text(report));
  }
  if (wants("backward")) {
    report.backward = measure_rows(backward, effort, progress);
    print("\n" + backward_text(report));
  }
  if (wants("decode")) {
    report.decode = measure_rows(decode, effort, progress);
    print("\n" + decode_text(report));
  }
  if (wants("lenses")) {
    report.lenses = measure_rows(lenses, effort, progress);
    print("\n" + lenses_text(report));
  }
  if (wants("looks") || (wants("lenses") && !own_problem())) {
    report.looks =
        measure_looks(standard_looks(quick_), static_cast<int>(threads_), effort, progress);
    print("\n" + looks_text(report));
  }
  if (wants("tiny")) {
    progress.show("tiny");
    report.tiny = measure_tiny(effort);
    print("\n" + tiny_text(report));
  }
  if (wants("memory")) {
    print("\n" + (report.memory ? memory_text(report)
                                : std::string("Memory: this system does not tell.\n")));
  }
  progress.clear();
  if (json_) write_stdout(bench_json(report));
  return 0;
}

std::unique_ptr<Command> make_bench(CLI::App& program) {
  return std::make_unique<BenchCommand>(program);
}

}  // namespace
}  // namespace fovea::cli

int main(int argc, char** argv) {
  return fovea::cli::run_program(argc, argv, "fovea-bench",
                                 "measure speed against this machine's limits",
                                 fovea::cli::make_bench);
}
