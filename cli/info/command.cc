// SPDX-License-Identifier: Apache-2.0
//
// `fovea info` (command.h).

#include "cli/info/command.h"

#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include "fovea/info.h"

#include "cli/pages/pages.h"
#include "cli/shell/output.h"
#include "cli/shell/units.h"

namespace fovea::cli {
namespace {

std::string to_text(const BuildInfo& info) {
  std::string products;
  for (const BuildInfo::Products& one : info.products) {
    products += fmt::format("{:15}{}: {}\n", products.empty() ? "products" : "", one.type, one.by);
  }
  return fmt::format(
      "fovea {}\n"
      "built with     {}, {}\n"
      "computes with  the fused engine, on {}, up to {}\n"
      "reference      scalar, in float64\n"
      "SIMD targets   {} (of this CPU and this build; FOVEA_TARGET chooses)\n"
      "{}"
      "CPUs           {}\n",
      info.version, info.compiler, info.build_type, info.target,
      counted(omp_get_max_threads(), "thread"), fmt::join(info.targets, " "), products,
      info.threads);
}

std::string to_json(const BuildInfo& info) {
  std::string products;
  for (const BuildInfo::Products& one : info.products) {
    products += fmt::format("{}{:?}: {:?}", products.empty() ? "" : ", ", one.type, one.by);
  }
  // {:?} quotes and escapes like JSON for plain names such as these.
  return fmt::format(
      "{{\n"
      "  \"version\": {:?},\n"
      "  \"compiler\": {:?},\n"
      "  \"build_type\": {:?},\n"
      "  \"computes_with\": {{\"engine\": \"fused\", \"target\": {:?}, \"threads\": {}}},\n"
      "  \"judged_by\": \"reference\",\n"
      "  \"targets\": [\"{}\"],\n"
      "  \"products\": {{{}}},\n"
      "  \"threads\": {}\n"
      "}}\n",
      info.version, info.compiler, info.build_type, info.target, omp_get_max_threads(),
      fmt::join(info.targets, "\", \""), products, info.threads);
}

class InfoCommand : public Command {
 public:
  explicit InfoCommand(CLI::App& parent);
  int run() const override;

 private:
  bool json_ = false;
};

InfoCommand::InfoCommand(CLI::App& parent)
    : Command(parent, "info", "show the build, the CPU's SIMD targets and the choices made",
              kInfoPage, Repeated::kRefused) {
  app_->add_flag("--json", json_, "Print one JSON object instead of text.");
}

int InfoCommand::run() const {
  const BuildInfo info = build_info();
  write_stdout(json_ ? to_json(info) : to_text(info));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_info(CLI::App& parent) {
  return std::make_unique<InfoCommand>(parent);
}

}  // namespace fovea::cli
