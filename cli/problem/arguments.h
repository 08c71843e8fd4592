// SPDX-License-Identifier: Apache-2.0
//
// The arguments of `fovea attend` as typed; empty or absent if an option was not given.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/tensor.h"

namespace fovea::cli {

struct AttendArguments {
  std::string query;
  std::string key;
  std::string value;
  std::string input;
  bool length_first = false;  // --layout blhd
  std::optional<DType> dtype;
  std::string output;
  std::string lse;

  bool causal = false;
  std::int64_t prefix = -1;  // keys; -1 if the option was not given
  std::string window;
  std::string documents;
  std::string key_lengths;
  std::string mask;
  std::string alignment;

  std::optional<double> scale;
  std::optional<double> softcap;
  std::string bias;
  bool alibi = false;
  std::string slopes;
  std::string relative;
  bool one_way = false;
  std::int64_t distance = 128;  // as in T5
  std::string sinks;

  std::int64_t threads = 0;
  bool verify = false;
  bool json = false;
};

}  // namespace fovea::cli
