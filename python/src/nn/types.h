// SPDX-License-Identifier: Apache-2.0
//
// What comes into layers and goes out of them, each type with its name in signatures.

#pragma once

#include <string>

#include <nanobind/nanobind.h>

namespace fovea::python {

// What came is looked at later: converters of nanobind's cannot say what is wrong.
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

/// An array of NumPy's.
struct NumpyArray {
  static constexpr auto kName = nanobind::detail::const_name("numpy.typing.NDArray[typing.Any]");
  nanobind::object object;
};
/// Names, with one for each, which nobody can put another in place of.
struct NumpyArrays {
  static constexpr auto kName = nanobind::detail::const_name(
      "collections.abc.Mapping[str, numpy.typing.NDArray[typing.Any]]");
  nanobind::object object;
};

// One of a few words, as text: which one is looked up later, for the same reason.
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
