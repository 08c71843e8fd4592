// SPDX-License-Identifier: Apache-2.0
//
// The arguments of `fovea attend` and its relatives as typed; empty or absent if an option was not
// given.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/recording.h"
#include "fovea/tensor.h"

namespace fovea::cli {

/// An attention in a recording.
struct RecordedArguments {
  std::string file;
  std::optional<std::int64_t> layer;
  std::optional<AttentionKind> kind;
  std::string attention;  // its name
};

struct AttendArguments {
  RecordedArguments recorded;
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
