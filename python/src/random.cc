// SPDX-License-Identifier: Apache-2.0
//
// NumPy's legacy random stream.

#include "fovea/random.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "functions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

Shape shape_of(nb::args extents) {
  std::vector<std::int64_t> numbers;
  for (const nb::handle extent : extents) numbers.push_back(integer(extent.ptr(), "shape"));
  return Shape(numbers);
}

nb::object randint(RandomState& self, std::int64_t low, std::optional<std::int64_t> high,
                   nb::handle size) {
  const std::int64_t begin = high ? low : 0;
  const std::int64_t end = high.value_or(low);
  if (size.is_none()) return nb::int_(self.randint(begin, end));
  const bool one = PyIndex_Check(size.ptr()) != 0 && PySequence_Check(size.ptr()) == 0;
  const Shape shape(one ? std::vector<std::int64_t>{integer(size.ptr(), "size")}
                        : integers(size.ptr(), "size"));
  return nb::steal(numpy_copy(self.randint(begin, end, shape)));
}

}  // namespace

void add_random(nb::module_& module) {
  nb::class_<RandomState>(
      module, "RandomState",
      R"(Bit-identical to NumPy's legacy stream, numpy.random.RandomState(seed) (normal values
within an ulp if the C library's log differs): MT19937 (Matsumoto and Nishimura 1998), normal values
by Marsaglia's polar method. Scenes use it, so that they can reproduce the random arrays of
a notebook.

    >>> fovea.random.RandomState(42).randint(0, 10, size=3)
    array([6, 3, 7]))")
      .def(nb::init<std::uint64_t>(), "seed"_a)
      .def("seed", &RandomState::seed, "seed"_a,
           "Restarts the stream with a seed from 0 to 2^32 - 1.")
      .def("randint", randint, "low"_a, "high"_a = nb::none(), "size"_a = nb::none(),
           nb::sig("def randint(self, low: int, high: int | None = None, size: int | "
                   "collections.abc.Sequence[int] | None = None) -> typing.Any"),
           "Integers in [low, high), or [0, low) without high: one, or an int64 array.")
      .def(
          "rand",
          [](RandomState& self, nb::args extents) -> nb::object {
            if (extents.size() == 0) return nb::float_(self.rand());
            return nb::steal(numpy_copy(self.rand(shape_of(extents))));
          },
          "shape"_a, nb::sig("def rand(self, *shape: int) -> typing.Any"),
          "Uniform numbers in [0, 1), multiples of 2^-53: one, or a float64 array.")
      .def(
          "randn",
          [](RandomState& self, nb::args extents) -> nb::object {
            if (extents.size() == 0) return nb::float_(self.randn());
            return nb::steal(numpy_copy(self.randn(shape_of(extents))));
          },
          "shape"_a, nb::sig("def randn(self, *shape: int) -> typing.Any"),
          "Standard normal numbers: one, or a float64 array.");
}

}  // namespace fovea::python
