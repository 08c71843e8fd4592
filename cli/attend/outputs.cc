// SPDX-License-Identifier: Apache-2.0
//
// Output files of `fovea attend` (outputs.h).

#include "cli/attend/outputs.h"

#include <vector>

#include <fmt/format.h>

#include "fovea/files.h"

#include "cli/shell/message.h"
#include "cli/shell/output.h"
#include "core/fail.h"
#include "files/file_format.h"

namespace fovea::cli {
namespace {

OutputPlace output_place(const char* option, const std::string& spec, const char* name) {
  if (spec.empty() || spec == "-") return {.path = spec, .name = name};
  const TensorSpec place = parse_tensor_spec(spec);
  const auto format = files::format_by_ending(place.path);
  if (!format) {
    fail(
        "{}: expected a name that ends in .npy, .npz or .safetensors, which is the "
        "format that is written, or -, got \"{}\"",
        option, spec);
  }
  if (*format == FileFormat::kNpy && !place.name.empty()) {
    fail("{}: expected no name within an .npy, which holds one tensor without one, got \"{}\"",
         option, spec);
  }
  return {.path = place.path, .name = place.name.empty() ? name : place.name};
}

bool share_a_file(const OutputPlan& plan) {
  return plan.context.wanted() && plan.lse.wanted() && same_file(plan.context.path, plan.lse.path);
}

void require_place_writable(const OutputPlace& place) {
  if (place.wanted() && !place.is_standard_output()) cli::require_writable(place.path);
}

}  // namespace

std::string OutputPlace::words() const {
  if (is_standard_output()) return "standard output";
  const bool nameless = files::format_by_ending(path) == FileFormat::kNpy;
  return nameless ? path : fmt::format("{}:{}", path, name);
}

OutputPlan plan_outputs(const std::string& output, const std::string& lse) {
  const OutputPlan plan = {.context = output_place("--output", output, "context"),
                           .lse = output_place("--lse", lse, "lse")};
  if (!share_a_file(plan)) return plan;
  if (plan.context.is_standard_output() ||
      files::format_by_ending(plan.context.path) == FileFormat::kNpy) {
    fail(
        "--lse: expected another file than --output, got {} for both, which holds one "
        "tensor; .npz and .safetensors hold both",
        plan.lse.words());
  }
  if (plan.context.name == plan.lse.name) {
    fail("--lse: expected another name than --output, got {} for both", plan.lse.words());
  }
  return plan;
}

void require_writable(const OutputPlan& plan) {
  require_place_writable(plan.context);
  require_place_writable(plan.lse);
}

void write_outputs(const OutputPlan& plan, const TensorView& context, const TensorView& lse) {
  if (is_silent()) return;
  if (share_a_file(plan)) {
    write_tensors(plan.context.path,
                  std::vector<NamedTensor>{{plan.context.name, context}, {plan.lse.name, lse}});
    return;
  }
  if (plan.context.wanted()) write_tensor(plan.context.path, context, plan.context.name);
  if (plan.lse.wanted()) write_tensor(plan.lse.path, lse, plan.lse.name);
}

}  // namespace fovea::cli
