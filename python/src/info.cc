// SPDX-License-Identifier: Apache-2.0
//
// Information about the build and the machine.

#include "fovea/info.h"

#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
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
              "SIMD targets supported by both this CPU and this build, best first.")
      .def_ro("target", &BuildInfo::target,
              "The active SIMD target: the first, unless FOVEA_TARGET names another.")
      .def_prop_ro(
          "products",
          [](const BuildInfo& self) {
            std::map<std::string, std::string> by_type;
            for (const BuildInfo::Products& one : self.products) by_type[one.type] = one.by;
            return by_type;
          },
          "For each type of arrays, how the target computes their products, in plain words.")
      .def_ro("threads", &BuildInfo::threads, "Number of CPUs that this process may run on.")
      .def("__repr__", [](const BuildInfo& self) {
        return fmt::format("fovea {}, {}, {}, on {} (of {}), {} CPU{}", self.version, self.compiler,
                           self.build_type, self.target, fmt::join(self.targets, " "), self.threads,
                           self.threads == 1 ? "" : "s");
      });
  module.def(
      "info", build_info,
      R"(Returns information about the build and the machine: version, compiler, SIMD targets, CPUs.

Raises ValueError if FOVEA_TARGET names an unavailable target.)");
}

}  // namespace fovea::python
