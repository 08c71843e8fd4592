// SPDX-License-Identifier: Apache-2.0
//
// The keywords that describe a problem, as AttentionOptions: the same for attention, decode and the
// reference.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include <Python.h>
#include <nanobind/nanobind.h>

#include "fovea/attention_options.h"

#include "arrays/arrays.h"

namespace fovea::python {

/// Every parameter of the functions on problems, in the order of their signatures.
enum Parameter : std::size_t {
  kQuery,
  kKey,
  kValue,
  kMask,
  kScale,
  kSoftcap,
  kBias,
  kAlibi,
  kRelative,
  kSinks,
  kAlignment,
  kQueryStarts,
  kKeyStarts,
  kDropout,
  kThreads,
  kReturnLse,
  kOut,
  kLenses,
  kParameters,
};
inline constexpr std::array<const char*, kParameters> kParameterNames = {
    "query",      "key",     "value",    "mask",       "scale",     "softcap",
    "bias",       "alibi",   "relative", "sinks",      "alignment", "query_starts",
    "key_starts", "dropout", "threads",  "return_lse", "out",       "lenses"};

using Parameters = std::array<PyObject*, kParameters>;

/// Options, with the array that they look into.
struct ProblemOptions {
  AttentionOptions options;
  std::unique_ptr<Array> bias;

  explicit ProblemOptions(const Parameters& given);
};

/// A Mask, or an array of bool.
Mask mask_of(PyObject* object);

/// "bottom-right", "top-left", an integer, or one for each item of the batch.
Alignment alignment_of(PyObject* object);

}  // namespace fovea::python
