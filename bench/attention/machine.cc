// SPDX-License-Identifier: Apache-2.0
//
// Detection of the CPU (machine.h).

#include "bench/attention/machine.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>

namespace fovea::cli {
namespace {

// Returns the fields of the first CPU in /proc/cpuinfo. Its lines have the form
// "NAME<tab>: VALUE".
std::map<std::string, std::string> cpu_facts() {
  std::ifstream text("/proc/cpuinfo");
  std::map<std::string, std::string> facts;
  std::string line;
  while (std::getline(text, line) && !line.empty()) {
    const std::size_t colon = line.find(':');
    const std::size_t name_end = line.substr(0, colon).find_last_not_of("\t ");
    if (colon == std::string::npos || name_end == std::string::npos) continue;
    const std::size_t value = line.find_first_not_of(' ', colon + 1);
    facts[line.substr(0, name_end + 1)] = value == std::string::npos ? "" : line.substr(value);
  }
  return facts;
}

// Returns the generation by family and model, where a hypervisor hides the number in the name, as
// in "AMD EPYC".
std::string generation(CpuKind kind, std::map<std::string, std::string>& facts) {
  if (kind == CpuKind::kZen4) return "Zen 4";
  if (kind == CpuKind::kZen5) return "Zen 5";
  const std::string& family = facts["cpu family"];
  const std::string& model = facts["model"];
  if (family.empty() || model.empty()) return "";
  // Zen 3 in servers is model 0 or 1; later models of the family have other cores.
  const bool zen3 = family == "25" && (model == "0" || model == "1");
  if (facts["vendor_id"] == "AuthenticAMD" && zen3) return "Zen 3";
  return "family " + family + ", model " + model;
}

}  // namespace

Machine this_machine() {
  std::map<std::string, std::string> facts = cpu_facts();
  Machine machine;
  if (!facts["model name"].empty()) machine.cpu = facts["model name"];
  if (facts["vendor_id"] == "AuthenticAMD") {
    // Family 25 includes Zen 3 and Zen 4; only Zen 4 has AVX-512.
    const bool avx512 = (facts["flags"] + " ").find(" avx512f ") != std::string::npos;
    if (facts["cpu family"] == "25" && avx512) machine.kind = CpuKind::kZen4;
    if (facts["cpu family"] == "26") machine.kind = CpuKind::kZen5;
  }
  const auto is_digit = [](unsigned char letter) { return std::isdigit(letter) != 0; };
  const std::string told = generation(machine.kind, facts);
  if (!told.empty() && std::none_of(machine.cpu.begin(), machine.cpu.end(), is_digit)) {
    machine.cpu += " (" + told + ")";
  }
  return machine;
}

}  // namespace fovea::cli
