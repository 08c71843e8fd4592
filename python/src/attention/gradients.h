// SPDX-License-Identifier: Apache-2.0
//
// fovea.Gradients, the result of attention_backward: a named tuple of three items, with further
// fields that are accessible by name only, like os.stat_result.

#pragma once

#include <array>
#include <cstddef>

#include <Python.h>
#include <nanobind/nanobind.h>

namespace fovea::python {

enum Gradient : std::size_t {
  kGradQuery,
  kGradKey,
  kGradValue,
  kGradBias,
  kGradRelative,
  kGradSinks,
  kRelevance,  // this and kMagnitude are not gradients, but by-products of the backward pass
  kMagnitude,
  kGradients
};
inline constexpr std::array<const char*, kGradients> kGradientNames = {
    "query", "key", "value", "bias", "relative", "sinks", "relevance", "magnitude"};

/// Returns a fovea.Gradients of the arrays (null becomes None). A new reference.
PyObject* make_gradients(std::array<nanobind::object, kGradients> arrays);

}  // namespace fovea::python
