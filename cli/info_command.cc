// SPDX-License-Identifier: Apache-2.0
//
// `fovea info` (info_command.h).

#include "info_command.h"

#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/info.h"

#include "help.h"
#include "output.h"

namespace fovea::cli {
namespace {

Page info_page() {
  return {.synopsis = {"fovea info [--json]"},
          .description =
              "Prints what a bug report or a record of a measurement needs: the version, how it "
              "was built, what it computes with, and what it found on this machine.\n"
              "\n"
              "This version computes with the scalar reference, on one thread. The SIMD targets "
              "are those that the CPU offers, for versions to come.",
          .sections = {exit_status_section(),
                       {"EXAMPLES", " fovea info\n fovea info --json | python3 -m json.tool"},
                       {"SEE ALSO", "fovea --help, fovea explain --help"}}};
}

std::string to_text(const BuildInfo& info) {
  return fmt::format(
      "fovea {}\n"
      "built with     {}, {}\n"
      "computes with  the scalar reference, one thread\n"
      "SIMD targets   {} (what the CPU offers; not used by this version)\n"
      "CPUs           {}\n",
      info.version, info.compiler, info.build_type, fmt::join(info.targets, " "), info.threads);
}

std::string to_json(const BuildInfo& info) {
  // {:?} quotes and escapes; for plain names, as these are, it does so as JSON does.
  return fmt::format(
      "{{\n"
      "  \"version\": {:?},\n"
      "  \"compiler\": {:?},\n"
      "  \"build_type\": {:?},\n"
      "  \"computes_with\": {{\"engine\": \"reference\", \"threads\": 1}},\n"
      "  \"targets\": [\"{}\"],\n"
      "  \"threads\": {}\n"
      "}}\n",
      info.version, info.compiler, info.build_type, fmt::join(info.targets, "\", \""),
      info.threads);
}

}  // namespace

InfoCommand::InfoCommand(CLI::App& parent)
    : app_(parent.add_subcommand("info", "what this build is and what it found on this machine")) {
  app_->formatter(std::make_shared<PageFormatter>(info_page()));
  app_->add_flag("--json", json_, "Print one JSON object instead of text.");
  app_->set_help_flag("-h,--help", "Print this page and exit.");
}

int InfoCommand::run() const {
  const BuildInfo info = build_info();
  write_stdout(json_ ? to_json(info) : to_text(info));
  return 0;
}

}  // namespace fovea::cli
