// SPDX-License-Identifier: Apache-2.0
//
// What this build is and what it found on this machine.

#include "fovea/info.h"

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "functions.h"

namespace nb = nanobind;

namespace fovea::python {

void add_info(nb::module_& module) {
  nb::class_<BuildInfo>(module, "BuildInfo", "The build and the machine it runs on.")
      .def_ro("version", &BuildInfo::version)
      .def_ro("compiler", &BuildInfo::compiler)
      .def_ro("build_type", &BuildInfo::build_type)
      .def_ro("targets", &BuildInfo::targets,
              "The SIMD targets that this CPU offers and this build holds, best first.")
      .def_ro("target", &BuildInfo::target,
              "The one that is computed on: the first, unless FOVEA_TARGET names another.")
      .def_ro("threads", &BuildInfo::threads, "The CPUs that this process may run on.")
      .def("__repr__", [](const BuildInfo& self) {
        return fmt::format("fovea {}, {}, {}, on {} (of {}), {} CPU{}", self.version, self.compiler,
                           self.build_type, self.target, fmt::join(self.targets, " "), self.threads,
                           self.threads == 1 ? "" : "s");
      });
  module.def(
      "info", build_info,
      R"(What this build is and what it found on this machine: version, compiler, SIMD targets, CPUs.

Raises ValueError where FOVEA_TARGET names a target that isn't there.)");
}

}  // namespace fovea::python
