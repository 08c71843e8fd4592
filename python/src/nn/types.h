// SPDX-License-Identifier: Apache-2.0
//
// Argument and result types of layers, each with its name in Python signatures.

#pragma once

#include <string>

#include <nanobind/nanobind.h>

namespace fovea::python {

// Arguments are checked later, because nanobind's converters cannot produce specific error
// messages.
struct GivenArray {
  static constexpr auto kName = nanobind::detail::const_name("_Input");
  nanobind::handle object;
};
struct GivenIntegers {
  static constexpr auto kName = nanobind::detail::const_name("numpy.typing.ArrayLike");
  nanobind::handle object;
};
struct GivenMask {
  static constexpr auto kName = nanobind::detail::const_name("fovea._fovea.Mask | _Array | None");
  nanobind::handle object;
};
struct GivenPath {
  static constexpr auto kName = nanobind::detail::const_name("str | os.PathLike[str]");
  nanobind::handle object;
};

/// A NumPy array.
struct NumpyArray {
  static constexpr auto kName = nanobind::detail::const_name("numpy.typing.NDArray[typing.Any]");
  nanobind::object object;
};
/// A read-only mapping from names to NumPy arrays.
struct NumpyArrays {
  static constexpr auto kName = nanobind::detail::const_name(
      "collections.abc.Mapping[str, numpy.typing.NDArray[typing.Any]]");
  nanobind::object object;
};

// Enumerations as text; converted later, to give specific error messages.
struct DTypeWord {
  static constexpr auto kName =
      nanobind::detail::const_name("typing.Literal[\"float32\", \"float64\"]");
  std::string text;
};
struct ActivationWord {
  static constexpr auto kName = nanobind::detail::const_name("typing.Literal[\"relu\", \"gelu\"]");
  std::string text;
};
struct NormWord {
  static constexpr auto kName =
      nanobind::detail::const_name("typing.Literal[\"after\", \"before\"]");
  std::string text;
};
struct PositionWord {
  static constexpr auto kName =
      nanobind::detail::const_name("typing.Literal[\"none\", \"sinusoidal\", \"learned\"]");
  std::string text;
};
struct ScheduleWord {
  static constexpr auto kName =
      nanobind::detail::const_name("typing.Literal[\"constant\", \"inverse_root\", \"cosine\"]");
  std::string text;
};

template <class T>
concept Object = requires(T t) {
  T::kName, t.object;
};
template <class T>
concept Word = requires(T t) {
  T::kName, t.text;
};

}  // namespace fovea::python

namespace nanobind::detail {

template <fovea::python::Object Type>
struct type_caster<Type> {
  NB_TYPE_CASTER(Type, Type::kName)

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    value.object = borrow(source);
    return true;
  }
  static handle from_cpp(const Type& from, rv_policy, cleanup_list*) noexcept {
    return handle(from.object).inc_ref();
  }
};

template <fovea::python::Word Type>
struct type_caster<Type> {
  NB_TYPE_CASTER(Type, Type::kName)

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    const char* const text =
        PyUnicode_Check(source.ptr()) != 0 ? PyUnicode_AsUTF8(source.ptr()) : nullptr;
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    value.text = text;
    return true;
  }
  static handle from_cpp(const Type& from, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_FromString(from.text.c_str());
  }
};

}  // namespace nanobind::detail
