// SPDX-License-Identifier: Apache-2.0
//
// `fovea view` (command.h).

#include "cli/view/command.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "fovea/error.h"

#include "cli/pages/pages.h"
#include "cli/problem/options.h"
#include "cli/problem/rules.h"
#include "cli/problem/tensor_options.h"
#include "cli/shell/browser.h"
#include "cli/shell/message.h"
#include "cli/shell/number_list.h"
#include "cli/shell/option_types.h"
#include "cli/shell/output.h"
#include "cli/view/inputs.h"
#include "view/api/api.h"
#include "view/http/security.h"
#include "view/http/server.h"

namespace fovea::cli {
namespace {

constexpr std::int64_t kMaxPort = 65535;

class ViewCommand : public Command {
 public:
  explicit ViewCommand(CLI::App& parent);
  int run() const override;

 private:
  void add_view_options();
  /// Throws UsageError for incompatible arguments.
  void check_usage() const;
  /// Returns the number of bytes of --memory. Throws UsageError.
  std::int64_t memory() const;
  ViewSources sources() const;

  AttendArguments arguments_;
  std::vector<std::string> files_;
  std::string tokens_, query_tokens_;
  std::int64_t port_ = 0;
  bool no_open_ = false;
  bool until_closed_ = false;
  std::vector<std::string> embed_;
  std::string memory_ = "1G";
};

ViewCommand::ViewCommand(CLI::App& parent)
    : Command(parent, "view", "look inside attention in the browser", kViewPage) {
  app_->add_option("FILE", files_,
                   "A scene (.json), a recording, or a tensor file with \"query\" and \"key\" or, "
                   "for each layer L, \"layers.L.query\" and \"layers.L.key\". Default: the "
                   "built-in scenes.")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app_->option_defaults()->group("Options");
  add_view_options();
  add_threads_option(*app_, arguments_);
  add_weight_tensor_options(*app_, arguments_);
  add_mask_options(*app_, arguments_);
  add_score_options(*app_, arguments_);
  app_->option_defaults()->group("Options");
}

void ViewCommand::add_view_options() {
  add_integer(*app_, "--port", port_, {std::int64_t{0}, kMaxPort},
              "The port to listen at. Default: 0, a free one.");
  app_->add_flag("--no-open", no_open_, "Print the address, but do not open a browser.");
  app_->add_option("--tokens", tokens_,
                   "With tensors: a text file with one name per line for the keys, and for the "
                   "queries if there are as many.")
      ->type_name("FILE");
  app_->add_option("--query-tokens", query_tokens_, "Names of the queries in the same form.")
      ->type_name("FILE");
  app_->add_option("--memory", memory_,
                   "The memory for tiles, row statistics and coarse maps, in bytes or with K, M or "
                   "G (default 1G).")
      ->type_name("SIZE");
  app_->add_option(
          "--embed", embed_,
          "Allow pages of another origin, such as http://localhost:8888, to show the "
          "viewer in a frame; \"*\" as the port stands for any. May be given several times.")
      ->type_name("ORIGIN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);  // FILE may follow
  app_->add_flag("--until-closed", until_closed_,
                 "Also end, with exit code 0, when standard input is closed, as it is when the "
                 "program that started this one ends.");
}

void ViewCommand::check_usage() const {
  for (const std::string& file : files_) {
    if (file.empty()) throw UsageError("FILE: expected a file, got \"\"");
  }
  for (const auto& [option, value] :
       {std::pair{"--tokens", &tokens_}, std::pair{"--query-tokens", &query_tokens_},
        std::pair{"--memory", &memory_}}) {
    if (given(option) && value->empty()) {
      throw UsageError(fmt::format("{}: expected a value", option));
    }
  }
  for (const std::string& origin : embed_) {
    const std::string mistake = view::mistake_in_origin(origin);
    if (!mistake.empty()) throw UsageError("--embed: " + mistake);
  }
  const ViewSources from = sources();
  if (from.tensor_options) {
    check_problem_usage(*app_, arguments_, {"--query", "--key"}, {});
    for (const std::string* tensor : {&arguments_.query, &arguments_.key, &arguments_.value}) {
      if (is_standard_input(*tensor)) {
        throw UsageError("expected files, which can be read again, got - for standard input");
      }
    }
  }
}

std::int64_t ViewCommand::memory() const {
  std::string_view digits = memory_;
  int shift = 0;
  for (const auto& [unit, bits] : {std::pair{'K', 10}, std::pair{'M', 20}, std::pair{'G', 30}}) {
    if (!digits.ends_with(unit)) continue;
    shift = bits;
    digits.remove_suffix(1);
    break;
  }
  const auto number = parse_number<std::int64_t>(digits);
  if (!number || *number < 1 || *number > kMaxCount >> shift) {
    throw UsageError(fmt::format("--memory: expected a size such as 512M, got \"{}\"", memory_));
  }
  return *number << shift;
}

ViewSources ViewCommand::sources() const {
  ViewSources from;
  from.files = files_;
  from.problem = arguments_;
  from.tokens = tokens_;
  from.query_tokens = query_tokens_;
  const auto any = [this](std::initializer_list<const char*> options) {
    for (const char* option : options) {
      if (given(option)) return true;
    }
    return false;
  };
  from.tensor_options = any({"--query", "--key", "--value", "--input"});
  from.rule_options = any({"--layout", "--dtype", "--tokens", "--query-tokens", "--causal",
                           "--alignment", "--window", "--prefix", "--documents", "--key-lengths",
                           "--mask", "--scale", "--softcap", "--bias", "--alibi", "--relative",
                           "--relative-one-way", "--relative-distance", "--sinks"});
  return from;
}

int ViewCommand::run() const {
  check_usage();
  const ViewSources from = sources();
  view::ApiOptions options;
  options.explorer.threads = static_cast<int>(arguments_.threads);
  options.explorer.memory = memory();
  options.token = view::make_token();
  options.embed = !embed_.empty();
  options.reopen = [&from](const view::Input& input) { return reopen_input(from, input); };

  std::vector<view::Input> inputs = open_inputs(from);
  // All scenes have the same script.
  std::vector<std::string> scripts;
  for (const view::Input& input : inputs) {
    if (scripts.empty() && input.page) scripts = view::script_sources(input.page());
  }
  view::Server server(static_cast<int>(port_));
  options.connections = [&server] { return server.connections(); };
  if (until_closed_) server.end_with(STDIN_FILENO);
  std::optional<view::Api> api;
  try {
    api.emplace(std::move(inputs), options);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  const std::string url =
      fmt::format("http://127.0.0.1:{}/#token={}", server.port(), options.token);
  write_stdout(url + "\n");
  if (!no_open_) open_in_browser(url);
  server.run(
      [&api](view::HttpRequest request, std::stop_token stop, view::HttpReply reply) {
        api->handle(std::move(request), std::move(stop), std::move(reply));
      },
      view::security_fields(scripts, embed_));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_view(CLI::App& parent) {
  return std::make_unique<ViewCommand>(parent);
}

}  // namespace fovea::cli
