// SPDX-License-Identifier: Apache-2.0
//
// KvCache and rotary embedding (cache.h).

#include "cache.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "fovea/error.h"
#include "fovea/rotary.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/problem.h"
#include "functions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  raise_value_error("dtype: expected \"float32\", \"float16\" or \"bfloat16\", got \"{}\"", name);
}

/// Returns the cache for modification. Throws if it is being read.
KvCache& changeable(PythonCache& self) {
  if (self.readers.load() != 0) {
    throw std::runtime_error(
        "KvCache: another thread is reading it; it can't be changed meanwhile");
  }
  return self.cache;
}

void append(PythonCache& self, nb::handle key, nb::handle value, const Rotary* rotary) {
  const Array keys(key.ptr(), {.name = "key"}), values(value.ptr(), {.name = "value"});
  check_rank(keys, "key");
  check_same_rank(values, "value", keys, "key");
  // After the conversions, which may run Python code, and another thread meanwhile.
  changeable(self).append(with_rank_4(keys.view()), with_rank_4(values.view()), rotary);
}

std::string repr(const PythonCache& self) {
  const KvCacheOptions& options = self.cache.options();
  return fmt::format(
      "KvCache(dtype=\"{}\", batch={}, kv_heads={}, head_dim={}, value_dim={}, length={}, "
      "capacity={})",
      dtype_name(options.dtype), options.batch, options.kv_heads, options.head_dim,
      options.value_dim.value_or(options.head_dim), self.cache.length(), self.cache.capacity());
}

Rotary make_rotary(double base, std::int64_t dims, const std::string& pairs,
                   nb::handle inverse_frequencies) {
  Rotary rotary{.base = base, .dims = dims};
  if (pairs == "interleaved")
    rotary.pairs = Rotary::Pairs::kInterleaved;
  else if (pairs != "halves") {
    raise_value_error("pairs: expected \"halves\" or \"interleaved\", got \"{}\"", pairs);
  }
  if (!inverse_frequencies.is_none()) {
    rotary.inverse_frequencies = numbers(inverse_frequencies.ptr(), "inverse_frequencies");
    if (rotary.inverse_frequencies.empty()) {
      raise_value_error("inverse_frequencies: expected one number per pair, got none");
    }
  }
  return rotary;
}

/// The state of a pickled Rotary: base, dims, whether pairs are interleaved, inverse frequencies.
using RotaryState = std::tuple<double, std::int64_t, bool, std::vector<double>>;

nb::object rotated(nb::handle source, nb::handle positions, const Rotary& rotary) {
  const Array array(source.ptr(), {.name = "source"});
  NewArray target(array, array.framework(), array.dtype(), array.view().shape());
  PyObject* const at = positions.ptr();
  if (is_integer(at)) {
    apply_rotary(array.view(), integer(at, "positions"), rotary, target.view());
  } else {
    apply_rotary(array.view(), int64_tensor(at, "positions").view(), rotary, target.view());
  }
  return nb::steal(target.release());
}

}  // namespace

std::optional<CacheInUse> cache_of(PyObject* object) {
  PythonCache* cache = nullptr;
  if (!nb::try_cast<PythonCache*>(nb::handle(object), cache) || cache == nullptr)
    return std::nullopt;
  return CacheInUse(*cache);
}

void add_cache(nb::module_& module) {
  static nb::object cache_full =
      nb::borrow(nb::exception<CacheFull>(module, "CacheFull", PyExc_RuntimeError));
  cache_full.attr("__doc__") = "A KvCache has no room for the appended tokens, and is unchanged.";

  nb::class_<Rotary>(
      module, "Rotary", nb::is_final(),
      R"(Rotary position embedding (Su et al. 2021): rotates pair i of d dimensions by the angle
position * base^(-2 i / d).

base    base of the frequencies
dims    number of leading dimensions to rotate, even; the rest is copied; 0: all
pairs   "halves": i and i + d / 2, as Llama in transformers; "interleaved": 2 i and 2 i + 1
inverse_frequencies  the frequencies themselves, one per pair, in place of base)")
      .def(
          "__init__",
          [](Rotary* self, double base, std::int64_t dims, const std::string& pairs,
             nb::handle inverse_frequencies) {
            new (self) Rotary(make_rotary(base, dims, pairs, inverse_frequencies));
          },
          nb::kw_only(), "base"_a = 10000.0, "dims"_a = 0, "pairs"_a = "halves",
          "inverse_frequencies"_a = nb::none(),
          nb::sig("def __init__(self, *, base: float = 10000.0, dims: int = 0, pairs: "
                  "typing.Literal[\"halves\", \"interleaved\"] = \"halves\", inverse_frequencies: "
                  "collections.abc.Sequence[float] | None = None) -> None"))
      .def_ro("base", &Rotary::base)
      .def_ro("dims", &Rotary::dims)
      .def("__getstate__",
           [](const Rotary& self) {
             return RotaryState(self.base, self.dims, self.pairs == Rotary::Pairs::kInterleaved,
                                self.inverse_frequencies);
           })
      .def("__setstate__",
           [](Rotary& self, const RotaryState& state) {
             const auto& [base, dims, interleaved, inverse_frequencies] = state;
             new (&self)
                 Rotary{.base = base,
                        .dims = dims,
                        .pairs = interleaved ? Rotary::Pairs::kInterleaved : Rotary::Pairs::kHalves,
                        .inverse_frequencies = inverse_frequencies};
           })
      .def("__repr__", [](const Rotary& self) {
        const std::string rest =
            fmt::format("dims={}, pairs=\"{}\"", self.dims,
                        self.pairs == Rotary::Pairs::kHalves ? "halves" : "interleaved");
        if (self.inverse_frequencies.empty()) {
          return fmt::format("Rotary(base={}, {})", self.base, rest);
        }
        return fmt::format("Rotary({}, inverse_frequencies=[{}])", rest,
                           fmt::join(self.inverse_frequencies, ", "));
      });

  module.def(
      "apply_rotary", rotated, "source"_a, "positions"_a, "rotary"_a,
      nb::sig("def apply_rotary(source: ArrayT, positions: int | numpy.typing.ArrayLike, rotary: "
              "Rotary) -> ArrayT"),
      R"(Returns the rows of source, rotated.

source     [..., length, dim], any floating-point dtype; token t is at position `positions` + t
positions  position of the first token; or of every token, integers [length] or [batch, length]

Returns a new array with the same library, dtype and shape. Angles, sines and cosines are float64.
Raises ValueError naming the argument.)");

  nb::class_<PythonCache>(
      module, "KvCache", nb::is_final(),
      R"(Cache of the keys and values of past tokens. Tokens are appended during generation; decode()
accepts the cache in place of key and value.

dtype      "float32", "float16" or "bfloat16": appended values are rounded to it once
batch, kv_heads  numbers of batch items and of key heads; 1 by default
head_dim, value_dim  elements of each key and value; value_dim is head_dim by default
capacity   maximum number of tokens, with address space reserved at once (pages are committed as
           tokens arrive); 0: grows automatically

    cache = fovea.KvCache(dtype="bfloat16", kv_heads=8, head_dim=128)
    cache.append(key, value, rotary=rotary)
    context = fovea.decode(query, cache)

Changing the cache while another thread decodes from it raises RuntimeError.)")
      .def(
          "__init__",
          [](PythonCache* self, const std::string& dtype, std::int64_t batch, std::int64_t kv_heads,
             std::int64_t head_dim, std::optional<std::int64_t> value_dim, std::int64_t capacity) {
            new (self) PythonCache(KvCache({.dtype = dtype_of_name(dtype),
                                            .batch = batch,
                                            .kv_heads = kv_heads,
                                            .head_dim = head_dim,
                                            .value_dim = value_dim,
                                            .capacity = capacity}));
          },
          nb::kw_only(), "dtype"_a = "float32", "batch"_a = 1, "kv_heads"_a = 1, "head_dim"_a,
          "value_dim"_a = nb::none(), "capacity"_a = 0,
          nb::sig("def __init__(self, *, dtype: typing.Literal[\"float32\", \"float16\", "
                  "\"bfloat16\"] = "
                  "\"float32\", batch: int = 1, kv_heads: int = 1, head_dim: int, value_dim: int | "
                  "None "
                  "= None, capacity: int = 0) -> None"))
      .def("append", append, "key"_a, "value"_a, nb::kw_only(), "rotary"_a = nb::none(),
           nb::sig("def append(self, key: typing.Any, value: typing.Any, *, rotary: Rotary | None "
                   "= None) "
                   "-> None"),
           R"(Appends n tokens.

key     [batch, kv_heads, n, head_dim], any floating-point dtype; [kv_heads, n, head_dim] or
        [n, head_dim] if batch, or batch and kv_heads, are 1
value   [batch, kv_heads, n, value_dim], or with fewer dimensions like key
rotary  rotates the keys, at positions from `length` on, before they are rounded

Raises ValueError naming the argument, and CacheFull if a fixed capacity is exceeded.)")
      .def(
          "truncate",
          [](PythonCache& self, std::int64_t length) { changeable(self).truncate(length); },
          "length"_a, "Removes all tokens after the first `length`.")
      .def(
          "reserve",
          [](PythonCache& self, std::int64_t capacity) { changeable(self).reserve(capacity); },
          "capacity"_a, "Grows the capacity to at least `capacity` tokens.")
      .def(
          "fork",
          [](const PythonCache& self, std::int64_t prefix_length) {
            return new PythonCache(self.cache.fork(prefix_length));
          },
          "prefix_length"_a, nb::rv_policy::take_ownership,
          "Returns an independent cache with a copy of the first `prefix_length` tokens.")
      .def(
          "__deepcopy__",
          [](const PythonCache& self, const nb::handle& /*memo*/) {
            return new PythonCache(self.cache.fork(self.cache.length()));
          },
          "memo"_a, nb::rv_policy::take_ownership)
      .def(
          "key", [](const PythonCache& self) { return nb::steal(numpy_copy(self.cache.key())); },
          nb::sig("def key(self) -> numpy.typing.NDArray[typing.Any]"),
          "Returns a copy of the keys: [batch, kv_heads, length, head_dim]; bfloat16 as float32.")
      .def(
          "value",
          [](const PythonCache& self) { return nb::steal(numpy_copy(self.cache.value())); },
          nb::sig("def value(self) -> numpy.typing.NDArray[typing.Any]"),
          "Returns a copy of the values: [batch, kv_heads, length, value_dim]; bfloat16 as "
          "float32.")
      .def("__len__", [](const PythonCache& self) { return self.cache.length(); })
      .def_prop_ro(
          "length", [](const PythonCache& self) { return self.cache.length(); },
          "Number of tokens in the cache.")
      .def_prop_ro(
          "capacity", [](const PythonCache& self) { return self.cache.capacity(); },
          "Number of tokens that fit without growing.")
      .def_prop_ro(
          "bytes", [](const PythonCache& self) { return self.cache.bytes(); },
          "Size of that capacity in bytes.")
      .def_prop_ro("dtype",
                   [](const PythonCache& self) {
                     return std::string(dtype_name(self.cache.options().dtype));
                   })
      .def("__repr__", repr);
}

}  // namespace fovea::python
