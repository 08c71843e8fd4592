// SPDX-License-Identifier: Apache-2.0
//
// Converts the keyword arguments shared by attention, decode and the reference to AttentionOptions.

#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include <Python.h>
#include <nanobind/nanobind.h>

#include "fovea/attention_options.h"

#include "arrays/arrays.h"

namespace fovea::python {

/// All parameters of these functions, in signature order.
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

/// Options, with the bias array that they refer to.
struct ProblemOptions {
  AttentionOptions options;
  std::unique_ptr<Array> bias;

  explicit ProblemOptions(const Parameters& given);
};

/// Converts a Mask or a bool array.
Mask mask_of(PyObject* object);

/// Converts a number of threads.
int threads_of(PyObject* object);

/// Converts "bottom-right", "top-left", an integer, or one integer per batch item.
Alignment alignment_of(PyObject* object);

}  // namespace fovea::python
