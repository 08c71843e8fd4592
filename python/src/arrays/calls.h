// SPDX-License-Identifier: Apache-2.0
//
// What every call from Python shares: arguments bound to names, exceptions of C++ as Python's, and
// how the engine runs: with the GIL released where that is worth it, and so that Ctrl-C ends it.
//
// The functions on arrays are plain functions of CPython (METH_FASTCALL): a call of nanobind's
// costs as much as attention on a few words takes.

#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include "fovea/execution.h"

namespace fovea::python {

template <class... Args>
[[noreturn]] void raise_type_error(fmt::format_string<Args...> format, Args&&... args) {
  throw nanobind::type_error(fmt::format(format, std::forward<Args>(args)...).c_str());
}

template <class... Args>
[[noreturn]] void raise_value_error(fmt::format_string<Args...> format, Args&&... args) {
  throw nanobind::value_error(fmt::format(format, std::forward<Args>(args)...).c_str());
}

/// Raises `type` with the message, and what Python has raised just now as its cause and end.
[[noreturn]] void raise_from_python(PyObject* type, const std::string& message);

/// The exception at hand becomes Python's. Only in a handler.
void translate_exception() noexcept;

/// The result of `function()`, or null with Python's error set.
template <class Function>
PyObject* guarded(const Function& function) noexcept {
  try {
    return function();
  } catch (...) {
    translate_exception();
    return nullptr;
  }
}

/// The parameters of a function: those before the first keyword-only one come in their order too.
class Signature {
 public:
  /// `required` of the `positional` have no default. Names must live as long as the program.
  Signature(const char* function, std::span<const char* const> names, std::size_t required,
            std::size_t positional);

  /// The argument for each parameter, null where it was not given; borrowed. Throws nb::type_error
  /// as Python does.
  void bind(PyObject* const* arguments, Py_ssize_t count, PyObject* keywords,
            std::span<PyObject*> bound) const;

 private:
  std::size_t find(PyObject* keyword) const;

  const char* function_;
  std::span<const char* const> texts_;
  std::vector<PyObject*> names_;  // interned, and kept for good
  std::size_t required_;
  std::size_t positional_;
};

/// Below, a call is over before another thread could make use of the GIL, and giving it away could
/// cost the 5 ms that threads leave each other: some 20 us on one core.
inline constexpr double kWorthReleasing = 1e6;
inline bool worth_running_apart(double operations) { return operations >= kWorthReleasing; }

/// Runs `engine`, which takes about `operations` multiplications and additions, as suits its size:
/// a small call at once; others with the GIL released; a long one, in the main thread, so that
/// SIGINT stops it through execution.stop, and what Python's handler raises comes out of this. A
/// handler that raises nothing has the call start again.
void run(double operations, Execution& execution, const std::function<void()>& engine);

/// Adds a function of CPython to the module as `attribute`; the package shows it as one of
/// `shown_in`, under the definition's name. `definition` must live as long as the program.
void add_function(nanobind::module_& module, const char* attribute, const char* shown_in,
                  PyMethodDef& definition);

/// A number, an integer, a truth value; nb::type_error names the argument.
double number(PyObject* object, const char* name);
std::int64_t integer(PyObject* object, const char* name);
bool truth(PyObject* object, const char* name);
std::vector<double> numbers(PyObject* object, const char* name);
std::vector<std::int64_t> integers(PyObject* object, const char* name);

}  // namespace fovea::python
