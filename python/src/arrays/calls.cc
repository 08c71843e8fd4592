// SPDX-License-Identifier: Apache-2.0
//
// Calls from Python (calls.h).

#include "arrays/calls.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>

#include "fovea/error.h"

#include "arrays/arrays.h"
#include "arrays/dlpack.h"
#include "arrays/interrupt.h"
#include "engine/call/parallel.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

// Minimum flop for InterruptWatch: a call of this size takes up to a fifth of a second on a
// slow machine without SIMD. Watching costs a few system calls; the first watch starts a thread.
constexpr double kWorthWatching = 3e8;

/// Sets an error with a message in which a path may not be UTF-8.
void set_error(PyObject* type, const char* message) noexcept {
  PyObject* const text = PyUnicode_DecodeUTF8(
      message, static_cast<Py_ssize_t>(std::strlen(message)), "backslashreplace");
  if (text == nullptr) return;
  PyErr_SetObject(type, text);
  Py_DECREF(text);
}

}  // namespace

void raise_from_python(PyObject* type, const std::string& message) {
  nb::python_error cause;  // takes the pending exception
  const nb::object value = cause.value().is_valid() ? nb::borrow(cause.value()) : nb::none();
  const nb::object text = nb::steal(PyObject_Str(value.ptr()));
  const char* const reason = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (reason == nullptr) PyErr_Clear();
  const std::string whole = reason == nullptr ? message : fmt::format("{}: {}", message, reason);
  nb::raise_from(cause, type, "%s", whole.c_str());
  std::abort();  // not reached: raise_from throws
}

void translate_exception() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    if (error.type() == nb::exception_type::type_error) {
      set_error(PyExc_TypeError, error.what());
    } else if (error.type() == nb::exception_type::index_error) {
      set_error(PyExc_IndexError, error.what());
    } else {
      set_error(PyExc_ValueError, error.what());
    }
  } catch (const std::invalid_argument& error) {  // includes InvalidArgument
    set_error(PyExc_ValueError, error.what());
  } catch (const IoError& error) {
    set_error(PyExc_OSError, error.what());
  } catch (const std::bad_alloc&) {
    set_error(PyExc_MemoryError, "fovea: out of memory");
  } catch (const std::exception& error) {
    set_error(PyExc_RuntimeError, error.what());
  } catch (...) {
    set_error(PyExc_RuntimeError, "fovea: an unknown error");
  }
}

Signature::Signature(const char* function, std::span<const char* const> names, std::size_t required,
                     std::size_t positional)
    : function_(function), texts_(names), required_(required), positional_(positional) {
  for (const char* const name : names) {
    names_.push_back(PyUnicode_InternFromString(name));
    if (names_.back() == nullptr) nb::raise_python_error();
  }
}

std::size_t Signature::find(PyObject* keyword) const {
  // Keyword names in code are interned, so equal names are usually the same object.
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == keyword) return i;
  }
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (PyUnicode_Compare(names_[i], keyword) == 0) return i;
  }
  const char* const text = PyUnicode_AsUTF8(keyword);
  if (text == nullptr) nb::raise_python_error();
  raise_type_error("{}() got an unexpected keyword argument '{}'; there are {}", function_, text,
                   fmt::join(texts_, ", "));
}

void Signature::bind(PyObject* const* arguments, Py_ssize_t count, PyObject* keywords,
                     std::span<PyObject*> bound) const {
  const auto given = static_cast<std::size_t>(count);
  if (given > positional_) {
    raise_type_error(
        "{}() takes {} positional arguments but {} were given; the others have names: {}",
        function_, positional_, given,
        fmt::join(texts_.subspan(std::min(positional_, texts_.size())), ", "));
  }
  std::copy_n(arguments, given, bound.begin());
  std::fill(bound.begin() + count, bound.end(), nullptr);
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  if (named == 0 && given == required_) return;
  for (Py_ssize_t i = 0; i < named; ++i) {
    const std::size_t at = find(PyTuple_GET_ITEM(keywords, i));
    if (bound[at] != nullptr) {
      raise_type_error("{}() got multiple values for argument '{}'", function_, texts_[at]);
    }
    bound[at] = arguments[count + i];
  }
  for (std::size_t i = 0; i < required_; ++i) {
    if (bound[i] == nullptr) {
      raise_type_error("{}() missing the required argument '{}'", function_, texts_[i]);
    }
  }
  for (std::size_t i = required_; i < bound.size(); ++i) {
    if (bound[i] == Py_None) bound[i] = nullptr;  // None always means the default
  }
}

namespace {

/// Runs `engine` in the main thread, with the GIL released. SIGINT stops it: throws the exception
/// of Python's handler, or Stopped if the handler raises none.
void run_watched(Execution& execution, const std::function<void()>& engine) {
  std::stop_source source;
  execution.stop = source.get_token();
  try {
    const nb::gil_scoped_release released;
    const InterruptWatch watch(source);
    engine();
  } catch (const Stopped&) {
    // Runs Python's signal handlers, which may raise.
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    throw;
  }
}

}  // namespace

void run(double operations, Execution& execution, const std::function<void()>& engine) {
  if (!worth_running_apart(operations)) return engine();
  // PyTorch's operations run on OpenMP's threads.
  std::optional<engine::OpenMpThreads> threads;
  if (torch_is_known()) threads.emplace();
  if (operations < kWorthWatching || !in_main_thread()) {
    const nb::gil_scoped_release released;
    return engine();
  }
  while (true) {
    try {
      return run_watched(execution, engine);
    } catch (const Stopped&) {
    }
  }
}

void run_once(Execution& execution, const std::function<void()>& engine) {
  std::optional<engine::OpenMpThreads> threads;
  if (torch_is_known()) threads.emplace();
  if (in_main_thread()) return run_watched(execution, engine);
  const nb::gil_scoped_release released;
  engine();
}

void run_stoppable(const std::function<void(const std::stop_token&)>& work) {
  if (in_main_thread() && raises_keyboard_interrupt()) {
    Execution execution;
    return run_watched(execution, [&] { work(execution.stop); });
  }
  const nb::gil_scoped_release released;
  work({});
}

void add_function(nb::module_& module, const char* attribute, const char* shown_in,
                  PyMethodDef& definition) {
  const nb::object name = nb::steal(PyUnicode_FromString(shown_in));
  const nb::object function = nb::steal(PyCFunction_NewEx(&definition, module.ptr(), name.ptr()));
  if (!name.is_valid() || !function.is_valid()) nb::raise_python_error();
  module.attr(attribute) = function;
}

double number(PyObject* object, const char* name) {
  if (!PyFloat_CheckExact(object) && is_tensor_of_torch(object) && requires_gradient(object)) {
    raise_type_error(
        "{}: expected a number, got a tensor that requires a gradient, which it would not get",
        name);
  }
  const double value = PyBool_Check(object) ? -1.0 : PyFloat_AsDouble(object);
  if (PyBool_Check(object) || (value == -1.0 && PyErr_Occurred() != nullptr)) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (too_large)
      raise_value_error("{}: expected a number that float64 holds, got a larger one", name);
    raise_type_error("{}: expected a number, got {}", name, describe(object));
  }
  return value;
}

std::int64_t integer(PyObject* object, const char* name) {
  const nb::object index = PyBool_Check(object) ? nb::object() : nb::steal(PyNumber_Index(object));
  if (!index.is_valid()) {
    PyErr_Clear();
    raise_type_error("{}: expected an integer, got {}", name, describe(object));
  }
  const long long value = PyLong_AsLongLong(index.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_value_error("{}: expected an integer of 64 bits, got a larger one", name);
  }
  return value;
}

bool is_integer(PyObject* object) {
  if (PyIndex_Check(object) == 0 || PySequence_Check(object) != 0) return false;
  if (PyLong_CheckExact(object)) return true;
  const nb::object rank = nb::steal(PyObject_GetAttrString(object, "ndim"));
  const long dimensions = rank.is_valid() ? PyLong_AsLong(rank.ptr()) : 0;
  PyErr_Clear();  // no such attribute, or another one than the number of dimensions
  return dimensions <= 0;
}

bool truth(PyObject* object, const char* name) {
  if (!PyBool_Check(object)) {
    raise_type_error("{}: expected True or False, got {}", name, describe(object));
  }
  return object == Py_True;
}

namespace {

/// Returns the elements of a list, an array or a tensor, null without an error for other objects.
/// PyTorch's tensors are no sequences. Nor are sets and dicts, which have no order or other
/// elements than expected.
nb::object items_of(PyObject* object) {
  if (PyUnicode_Check(object) || PyBytes_Check(object)) return {};
  const bool is_tensor = PySequence_Check(object) == 0 && is_tensor_of_torch(object);
  const nb::object listed =
      is_tensor ? nb::steal(PyObject_CallMethod(object, "tolist", nullptr)) : nb::borrow(object);
  nb::object items;
  if (listed.is_valid() && PySequence_Check(listed.ptr()) != 0) {
    items = nb::steal(PySequence_Fast(listed.ptr(), ""));
  }
  PyErr_Clear();
  return items;
}

template <class Number>
auto each(PyObject* object, const char* name, const char* what,
          Number (*one)(PyObject*, const char*)) {
  if (is_tensor_of_torch(object) && requires_gradient(object)) {
    raise_type_error(
        "{}: expected {}, got a tensor that requires a gradient, which it would not get", name,
        what);
  }
  std::vector<Number> result;
  const nb::object items = items_of(object);
  if (!items.is_valid()) {
    raise_type_error("{}: expected {}, got {}", name, what, describe(object));
  }
  // Not PySequence_Fast_ITEMS: converting an item may run the caller's code, which may change the
  // list.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    const nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(items.ptr(), i));
    result.push_back(one(item.ptr(), name));
  }
  return result;
}

}  // namespace

std::vector<double> numbers(PyObject* object, const char* name) {
  return each<double>(object, name, "a list or an array of numbers", number);
}

std::vector<std::int64_t> integers(PyObject* object, const char* name) {
  return each<std::int64_t>(object, name, "a list or an array of integers", integer);
}

std::string path_of(PyObject* path) {
  const nb::object name = nb::steal(PyOS_FSPath(path));
  if (!name.is_valid()) {
    PyErr_Clear();
    raise_type_error("path: expected a str or a path, got {}", describe(path));
  }
  // Names that are not UTF-8 are kept: os.listdir() returns their bytes as lone surrogates.
  const nb::object bytes =
      PyBytes_Check(name.ptr()) ? name : nb::steal(PyUnicode_EncodeFSDefault(name.ptr()));
  if (!bytes.is_valid()) nb::raise_python_error();
  std::string found(PyBytes_AS_STRING(bytes.ptr()),
                    static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
  if (found.find('\0') != std::string::npos) {
    raise_value_error("path: expected a name without null characters, got one after \"{}\"",
                      found.c_str());
  }
  return found;
}

}  // namespace fovea::python
