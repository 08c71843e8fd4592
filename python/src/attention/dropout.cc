// SPDX-License-Identifier: Apache-2.0
//
// Dropout in Python: a value that determines the dropped weights of forward and backward, and the
// stream of its call numbers (dropout.h).

#include "attention/dropout.h"

#include <limits>
#include <mutex>
#include <random>
#include <tuple>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "functions.h"
#include "problem/dropout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

/// The stream of the process, like PyTorch's default generator.
class Stream {
 public:
  void start(std::uint64_t seed) {
    const std::scoped_lock lock(mutex_);
    seed_ = seed;
    call_ = 0;
  }

  Dropout take(double probability, std::uint32_t calls) {
    const std::scoped_lock lock(mutex_);
    // Call numbers are exhausted: continue with another seed.
    if (calls > std::numeric_limits<std::uint32_t>::max() - call_) {
      seed_ += 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
      call_ = 0;
    }
    const Dropout dropout{.probability = probability, .seed = seed_, .call = call_};
    call_ += calls;
    return dropout;
  }

 private:
  static std::uint64_t unforeseen() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }

  std::mutex mutex_;
  std::uint64_t seed_ = unforeseen();
  std::uint32_t call_ = 0;
};

Stream& stream() {
  static Stream one;
  return one;
}

std::uint64_t natural(PyObject* object, const char* name, std::uint64_t most) {
  const nb::object index = PyBool_Check(object) ? nb::object() : nb::steal(PyNumber_Index(object));
  if (!index.is_valid()) {
    PyErr_Clear();
    raise_type_error("{}: expected an integer, got {}", name, describe(object));
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(index.ptr());
  const bool overflow = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (overflow || value > most) {
    raise_value_error("{}: expected an integer from 0 to {}, got {}", name, most,
                      text_of(index.ptr()));
  }
  return value;
}

std::uint64_t seed_of(nb::handle object) {
  return natural(object.ptr(), "seed", std::numeric_limits<std::uint64_t>::max());
}

Dropout make(nb::handle given, nb::handle seed, nb::handle call) {
  const double probability = probability_of(given.ptr(), "probability");
  if (seed.is_none() && !call.is_none()) {
    raise_value_error("call: expected none without a seed, as both come from the stream then");
  }
  if (seed.is_none()) return next_dropout(probability);
  const std::uint64_t number =
      call.is_none() ? 0 : natural(call.ptr(), "call", std::numeric_limits<std::uint32_t>::max());
  return {.probability = probability,
          .seed = seed_of(seed),
          .call = static_cast<std::uint32_t>(number)};
}

// Operations per weight of DropoutRule::keeps(), about.
constexpr double kKeepsOperations = 50;

nb::object kept(const Dropout& dropout, nb::args extents) {
  if (extents.size() < 2 || extents.size() > 4) {
    raise_value_error(
        "shape: expected [batch, q_heads, q_len, kv_len], [q_heads, q_len, kv_len] or [q_len, "
        "kv_len], got {} dimensions",
        extents.size());
  }
  Shape own, shape{1, 1, 1, 1};
  for (const nb::handle extent : extents) {
    own.push_back(integer(extent.ptr(), "shape"));
    if (own[own.rank() - 1] < 0) {
      raise_value_error("shape: expected extents of 0 or more, got {}", own[own.rank() - 1]);
    }
  }
  for (int dim = 0; dim < own.rank(); ++dim) shape[dim + 4 - own.rank()] = own[dim];
  validate({.dropout = dropout}, {.batch = shape[0],
                                  .q_heads = shape[1],
                                  .kv_heads = shape[1],
                                  .q_len = shape[2],
                                  .kv_len = shape[3]});
  NewArray result(DType::kBool, own);
  Execution execution;
  run(kKeepsOperations * static_cast<double>(result.view().size()), execution, [&] {
    auto* next = static_cast<bool*>(result.view().data());
    for (std::int64_t item = 0; item < shape[0]; ++item) {
      for (std::int64_t head = 0; head < shape[1]; ++head) {
        const DropoutRule rule(dropout, item, head, shape[1]);
        for (std::int64_t query = 0; query < shape[2]; ++query) {
          throw_if_stopped(execution);
          for (std::int64_t key = 0; key < shape[3]; ++key) *next++ = rule.keeps(query, key);
        }
      }
    }
  });
  return nb::steal(result.release());
}

}  // namespace

Dropout next_dropout(double probability, std::uint32_t calls) {
  return stream().take(probability, calls);
}

double probability_of(PyObject* object, const char* name) {
  const double probability = number(object, name);
  if (!(probability >= 0.0 && probability < 1.0)) {
    raise_value_error("{}: expected a probability from 0 up to, but not, 1, got {}", name,
                      probability);
  }
  return probability;
}

void add_dropout(nb::module_& module) {
  nb::class_<Dropout>(
      module, "Dropout", nb::is_final(),
      R"(Dropout of weights (Srivastava et al. 2014): drops each weight with this probability and divides
kept weights by 1 - probability. Philox 4x32-10 (Salmon et al. 2011) computes the decision from
seed, call and the weight's position only, so nothing is stored: attention() and
attention_backward() drop the same weights, for any number of threads.

probability  in [0, 1)
seed         0 to 2^64 - 1; None: the seed and next call number of the manual_seed() stream
call         0 to 2^32 - 1, a different number for each call with the same seed; 0 by default if
             seed is set

    >>> fovea.Dropout(0.5, seed=7).kept(2, 6)
    array([[ True,  True, False, False, False,  True],
           [False, False,  True,  True, False, False]]))")
      .def(
          "__init__",
          [](Dropout* self, nb::handle probability, nb::handle seed, nb::handle call) {
            new (self) Dropout(make(probability, seed, call));
          },
          "probability"_a, nb::kw_only(), "seed"_a = nb::none(), "call"_a = nb::none(),
          nb::sig("def __init__(self, probability: float, *, seed: int | None = None, call: int | "
                  "None = None) -> None"))
      .def_ro("probability", &Dropout::probability)
      .def_ro("seed", &Dropout::seed)
      .def_ro("call", &Dropout::call)
      .def(
          "kept", kept, "shape"_a,
          nb::sig("def kept(self, *shape: int) -> numpy.typing.NDArray[numpy.bool_]"),
          R"(Returns the kept weights as a matrix, True where kept, for other programs or inspection.

shape  batch, q_heads, q_len, kv_len; or without batch, or without batch and heads. For packed
       sequences, batch is the sequence count, and q_len and kv_len are the maximum lengths.

Returns a NumPy array of bool.)")
      .def("__getstate__",
           [](const Dropout& self) { return std::tuple(self.probability, self.seed, self.call); })
      .def("__setstate__",
           [](Dropout& self, const std::tuple<nb::object, nb::object, nb::object>& state) {
             const auto& [probability, seed, call] = state;
             new (&self) Dropout(make(probability, seed, call));
           })
      .def("__repr__", [](const Dropout& self) {
        return fmt::format("Dropout({}, seed={}, call={})", self.probability, self.seed, self.call);
      });
  module.def(
      "manual_seed", [](nb::handle seed) { stream().start(seed_of(seed)); }, "seed"_a,
      nb::sig("def manual_seed(seed: int) -> None"),
      R"(Starts the stream of seed and call numbers for dropout without a seed: the first call after this
drops the same weights as Dropout(probability, seed=seed, call=0), the second as call=1, and so on.
The process has one stream, seeded randomly until this call. Threads may share it.

seed  0 to 2^64 - 1)");
}

}  // namespace fovea::python
