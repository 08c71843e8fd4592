// SPDX-License-Identifier: Apache-2.0
//
// Replaces the dispatchers of nanobind functions (arguments.h). nanobind calls its functions
// through a pointer in the object (CPython's vectorcall), also for methods, operators and
// constructors. The pointers are those of a few dispatchers, so each gets a wrapper with a fixed
// index, and a call costs one more jump. Functions on arrays are not nanobind functions (calls.h).

#include "arrays/arguments.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <Python.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace fovea::python {
namespace {

constexpr std::size_t kMaxDispatchers = 8;
constexpr const char* kMismatch = "(): incompatible function arguments. The following";

std::array<vectorcallfunc, kMaxDispatchers> dispatchers{};

/// Replaces the pending exception if it is nanobind's error for arguments that do not fit.
void name_argument(PyObject* function, PyObject* const* arguments, std::size_t count_and_flags,
                   PyObject* keywords) noexcept {
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
  nb::python_error error;  // takes the pending exception
  try {
    if (nb::cast<std::string>(nb::str(error.value())).find(kMismatch) == std::string::npos) {
      error.restore();
      return;
    }
    // nanobind has flags of its own in the upper half.
    const auto count = static_cast<Py_ssize_t>(count_and_flags & 0xFFFFFFFFU);
    nb::list positional;
    for (Py_ssize_t i = 0; i < count; ++i) positional.append(nb::handle(arguments[i]));
    nb::dict named;
    const Py_ssize_t named_count = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t i = 0; i < named_count; ++i) {
      named[nb::handle(PyTuple_GET_ITEM(keywords, i))] = nb::handle(arguments[count + i]);
    }
    const nb::object clear = nb::module_::import_("fovea._arguments")
                                 .attr("mismatch")(nb::handle(function), positional, named);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(clear.ptr())), clear.ptr());
  } catch (...) {
    error.restore();
  }
}

template <std::size_t kIndex>
PyObject* call(PyObject* function, PyObject* const* arguments, std::size_t count_and_flags,
               PyObject* keywords) {
  PyObject* const result = dispatchers[kIndex](function, arguments, count_and_flags, keywords);
  if (result == nullptr) name_argument(function, arguments, count_and_flags, keywords);
  return result;
}

template <std::size_t... kIndices>
constexpr std::array<vectorcallfunc, kMaxDispatchers> make_wrappers(
    std::index_sequence<kIndices...>) {
  return {call<kIndices>...};
}
constexpr auto kWrappers = make_wrappers(std::make_index_sequence<kMaxDispatchers>());

void wrap(nb::handle function) {
  if (!nb::hasattr(function, "__nb_signature__")) return;
  auto* const address = reinterpret_cast<char*>(function.ptr());
  auto& dispatcher =
      *reinterpret_cast<vectorcallfunc*>(address + Py_TYPE(function.ptr())->tp_vectorcall_offset);
  if (std::ranges::find(kWrappers, dispatcher) != kWrappers.end()) return;
  for (std::size_t i = 0; i < kMaxDispatchers; ++i) {
    if (dispatchers[i] == nullptr) dispatchers[i] = dispatcher;
    if (dispatchers[i] != dispatcher) continue;
    dispatcher = kWrappers[i];
    return;
  }
}

/// Returns a copy of the values of an object's __dict__.
nb::list members(nb::handle owner) { return nb::list(owner.attr("__dict__").attr("values")()); }

}  // namespace

void name_arguments_in_errors(const nb::module_& module) {
  for (const nb::handle value : members(module)) {
    wrap(value);
    if (PyType_Check(value.ptr()) == 0) continue;
    for (const nb::handle member : members(value)) {
      wrap(member);
      if (nb::hasattr(member, "fset")) wrap(member.attr("fset"));
    }
  }
}

}  // namespace fovea::python
