// SPDX-License-Identifier: Apache-2.0
//
// fovea.Gradients, what attention_backward returns: a tuple of three with names, and more by
// their names alone, as os.stat() has them.

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
  kRelevance,  // no gradients, but what comes of them in passing
  kMagnitude,
  kGradients
};
inline constexpr std::array<const char*, kGradients> kGradientNames = {
    "query", "key", "value", "bias", "relative", "sinks", "relevance", "magnitude"};

/// A fovea.Gradients of arrays, None where there is none. A new reference.
PyObject* make_gradients(std::array<nanobind::object, kGradients> arrays);

}  // namespace fovea::python
