// SPDX-License-Identifier: Apache-2.0
//
// Common code of all calls from Python: binding arguments to parameters, translating C++
// exceptions, and running the engine, with the GIL released if the call is long enough,
// interruptible by Ctrl-C.
//
// The functions on arrays are plain CPython functions (METH_FASTCALL), because the overhead of a
// nanobind call equals the time of attention on a few words.

#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include "fovea/error.h"
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

/// Raises `type` with the message followed by the text of the pending Python exception, which
/// becomes the cause.
[[noreturn]] void raise_from_python(PyObject* type, const std::string& message);

/// Sets the Python error from the current C++ exception. Call only inside a catch block.
void translate_exception() noexcept;

/// Returns `function()`, or null with the Python error set if it throws.
template <class Function>
PyObject* guarded(const Function& function) noexcept {
  try {
    return function();
  } catch (...) {
    translate_exception();
    return nullptr;
  }
}

/// The parameters of a function; the first `positional` ones may also be passed by position.
class Signature {
 public:
  /// The first `required` parameters have no default. Names must live as long as the program.
  Signature(const char* function, std::span<const char* const> names, std::size_t required,
            std::size_t positional);

  /// Writes a borrowed argument for each parameter, null if absent. Throws nb::type_error with
  /// Python's messages.
  void bind(PyObject* const* arguments, Py_ssize_t count, PyObject* keywords,
            std::span<PyObject*> bound) const;

 private:
  std::size_t find(PyObject* keyword) const;

  const char* function_;
  std::span<const char* const> texts_;
  std::vector<PyObject*> names_;  // interned, never released
  std::size_t required_;
  std::size_t positional_;
};

/// Minimum operations for releasing the GIL, about 20 us on one core. A shorter call ends before
/// another thread could use the GIL, and reacquiring it may take Python's 5 ms switch interval.
inline constexpr double kWorthReleasing = 1e6;
inline bool worth_running_apart(double operations) { return operations >= kWorthReleasing; }

/// Runs `engine`, which takes about `operations` flop. Small calls run directly, others with the
/// GIL released. In the main thread, SIGINT stops a long call through execution.stop, and this
/// function throws the exception that Python's handler raised. If the handler raises no exception,
/// the call starts again.
void run(double operations, Execution& execution, const std::function<void()>& engine);
/// Ends the `engine` of run() after a stop request. For those that do not pass `execution` on.
inline void throw_if_stopped(const Execution& execution) {
  if (execution.stop.stop_requested()) throw Stopped("stopped as requested");
}
/// Runs `engine`, in which other processes take part, with the GIL released. SIGINT stops it as in
/// run(); but if the handler raises no exception, this function throws Stopped.
void run_once(Execution& execution, const std::function<void()>& engine);

/// Runs work(token) with the GIL released. In the main thread, SIGINT requests a stop if Python's
/// own handler is installed, which raises KeyboardInterrupt. Other handlers may raise nothing, and
/// the work, unlike that of run(), cannot start again, because it has changed a state.
void run_stoppable(const std::function<void(const std::stop_token&)>& work);

/// Adds a CPython function to the module as `attribute`. The function's __module__ is `shown_in`,
/// and its name is that of `definition`, which must live as long as the program.
void add_function(nanobind::module_& module, const char* attribute, const char* shown_in,
                  PyMethodDef& definition);

/// Convert an object to a number, an integer or a bool. Throw nb::type_error naming the argument.
double number(PyObject* object, const char* name);
std::int64_t integer(PyObject* object, const char* name);
bool truth(PyObject* object, const char* name);
/// Returns whether an object is an integer, and not an array of integers.
bool is_integer(PyObject* object);
std::vector<double> numbers(PyObject* object, const char* name);
std::vector<std::int64_t> integers(PyObject* object, const char* name);

/// Converts a str or a path, the argument `path`.
std::string path_of(PyObject* path);

}  // namespace fovea::python
