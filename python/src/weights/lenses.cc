// SPDX-License-Identifier: Apache-2.0
//
// fovea.Lenses and fovea.Seen (lenses.h).

#include "weights/lenses.h"

#include <array>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "arrays/calls.h"
#include "attention/problem.h"
#include "functions.h"
#include "weights/named_tuple.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

constexpr const char* kLensesDoc =
    R"(Statistics of the weights to collect while attention() computes them. The weights are never
stored, and statistics not requested cost nothing.

statistics  True: for each row (query) the entropy, in nats; the largest weight and its key; mean
            and variance of the distance to the keys, in positions before the query's own (negative
            for later keys); the weight of the first key
top         the k largest weights of each row, and their keys; 1 to 64, and at most kv_len
map         (rows, columns): pools the matrix to rows x columns cells; row r has the queries from
            floor(r q_len / rows) to before floor((r + 1) q_len / rows), columns in the same way
reduce      reduction of the weights in a cell of the map: "sum", "mean" (over the visible pairs of
            a query and a key) or "max"
pairs       True: also counts the visible pairs of each cell

Raises TypeError and ValueError; the message has the argument, the expected and the actual value.

    >>> words = np.eye(3, dtype=np.float32)
    >>> looks = fovea.Lenses(statistics=True, top=2)
    >>> context, seen = fovea.attention(words, words, words, mask=fovea.causal(), lenses=looks)
    >>> seen.first_key.round(2)
    array([1.  , 0.36, 0.26], dtype=float32)
    >>> seen.top_keys
    array([[ 0, -1],
           [ 1,  0],
           [ 2,  0]]))";

constexpr const char* kSeenDoc =
    "Results of Lenses: named NumPy arrays, None if not requested. Values are float32 (float64 "
    "for\n"
    "float64 inputs), keys and counts int64. The arrays lack the batch and head dimensions that\n"
    "query lacks. A fully masked row has maximum_key -1, distances NaN, and 0 elsewhere.";

PyTypeObject* seen_type = nullptr;  // never released

LensRequest make(nb::handle statistics, nb::handle top, nb::handle map, nb::handle reduce,
                 nb::handle pairs) {
  LensRequest request;
  request.statistics = truth(statistics.ptr(), "statistics");
  if (!top.is_none()) {
    request.top = integer(top.ptr(), "top");
    if (request.top < 1 || request.top > kMaxTopKeys) {
      raise_value_error("top: expected 1 to {} keys, got {}", kMaxTopKeys, request.top);
    }
  }
  if (!map.is_none()) {
    const std::vector<std::int64_t> size = integers(map.ptr(), "map");
    if (size.size() != 2 || size[0] < 1 || size[1] < 1) {
      raise_value_error("map: expected (rows, columns), each 1 or more, got {}",
                        text_of(map.ptr()));
    }
    request.rows = size[0];
    request.columns = size[1];
  }
  request.reduce = pool_of(reduce.ptr(), "reduce");
  request.pairs = truth(pairs.ptr(), "pairs");
  if (map.is_none() && (request.pairs || request.reduce != Pool::kSum)) {
    raise_value_error("{}: expected beside map=(rows, columns), got it without",
                      request.pairs ? "pairs" : "reduce");
  }
  if (!request.statistics && request.top == 0 && map.is_none()) {
    raise_value_error("Lenses: expected statistics, top or map, got none of them");
  }
  return request;
}

nb::object top_of(const LensRequest& self) {
  return self.top == 0 ? nb::none() : nb::object(nb::int_(self.top));
}

nb::object map_of(const LensRequest& self) {
  return self.rows == 0 ? nb::none() : nb::object(nb::make_tuple(self.rows, self.columns));
}

/// The state of a pickled Lenses: the arguments of its constructor.
using LensesState = std::tuple<nb::object, nb::object, nb::object, nb::object, nb::object>;

std::string repr(const LensRequest& self) {
  std::string text;
  if (self.statistics) text += ", statistics=True";
  if (self.top > 0) text += fmt::format(", top={}", self.top);
  if (self.rows > 0) {
    text += fmt::format(", map=({}, {}), reduce=\"{}\"", self.rows, self.columns,
                        pool_name(self.reduce));
  }
  if (self.pairs) text += ", pairs=True";
  return fmt::format("Lenses({})", text.substr(2));
}

}  // namespace

Pool pool_of(PyObject* object, const char* name) {
  if (!PyUnicode_Check(object)) {
    raise_type_error("{}: expected \"sum\", \"mean\" or \"max\", got {}", name, describe(object));
  }
  for (const Pool pool : {Pool::kSum, Pool::kMean, Pool::kMax}) {
    if (PyUnicode_CompareWithASCIIString(object, pool_name(pool)) == 0) return pool;
  }
  raise_value_error("{}: expected \"sum\", \"mean\" or \"max\", got \"{}\"", name, text_of(object));
}

const LensRequest& lenses_of(PyObject* object) {
  LensRequest* request = nullptr;
  if (!nb::try_cast<LensRequest*>(nb::handle(object), request) || request == nullptr) {
    raise_type_error(
        "lenses: expected a fovea.Lenses, such as fovea.Lenses(statistics=True), got {}",
        describe(object));
  }
  return *request;
}

Seen::Seen(const LensRequest& request, const Array& query, std::int64_t kv_len)
    : reduce_(request.reduce) {
  const Shape& shape = query.view().shape();
  const std::int64_t q_len = shape[shape.rank() - 2];
  // The engine also checks this, but its message uses other names, and the oversized arrays would
  // already have been allocated.
  if (request.top > kv_len) {
    raise_value_error("lenses: expected top of at most kv_len = {}, got {}", kv_len, request.top);
  }
  if (request.rows > q_len || request.columns > kv_len) {
    raise_value_error("lenses: expected map of at most (q_len, kv_len) = ({}, {}), got ({}, {})",
                      q_len, kv_len, request.rows, request.columns);
  }
  const DType sums = query.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const auto add = [&](SeenField field, DType dtype, const Shape& extents) {
    made_[field].emplace(query, Framework::kNumpy, dtype, extents);
  };
  if (request.statistics) {
    const Shape rows = result_shape(shape, -1);
    for (const SeenField field :
         {kSeenEntropy, kSeenMaximum, kSeenMeanDistance, kSeenDistanceVariance, kSeenFirstKey}) {
      add(field, sums, rows);
    }
    add(kSeenMaximumKey, DType::kInt64, rows);
  }
  if (request.top > 0) {
    add(kSeenTopKeys, DType::kInt64, result_shape(shape, request.top));
    add(kSeenTopWeights, sums, result_shape(shape, request.top));
  }
  if (request.rows > 0) {
    Shape cells = result_shape(shape, request.columns);
    cells[cells.rank() - 2] = request.rows;
    add(kSeenMap, sums, cells);
    if (request.pairs) add(kSeenPairs, DType::kInt64, cells);
  }
}

Lenses Seen::lenses() const {
  const auto rows = [&](SeenField field) {
    return made_[field] ? with_rank_3(made_[field]->view()) : MutableTensorView();
  };
  const auto all = [&](SeenField field) {
    return made_[field] ? with_rank_4(made_[field]->view()) : MutableTensorView();
  };
  return {.rows = {.entropy = rows(kSeenEntropy),
                   .maximum = rows(kSeenMaximum),
                   .maximum_key = rows(kSeenMaximumKey),
                   .mean_distance = rows(kSeenMeanDistance),
                   .distance_variance = rows(kSeenDistanceVariance),
                   .first_key = rows(kSeenFirstKey)},
          .top = {.keys = all(kSeenTopKeys), .weights = all(kSeenTopWeights)},
          .map = {.cells = all(kSeenMap), .pairs = all(kSeenPairs), .pool = reduce_}};
}

PyObject* Seen::release() {
  std::array<nb::object, kSeenFields> arrays;
  for (std::size_t i = 0; i < kSeenFields; ++i) {
    if (made_[i]) arrays[i] = nb::steal(made_[i]->release());
  }
  return make_named_tuple(seen_type, arrays);
}

void add_lenses(nb::module_& module) {
  nb::class_<LensRequest>(module, "Lenses", nb::is_final(), kLensesDoc)
      .def(
          "__init__",
          [](LensRequest* self, nb::handle statistics, nb::handle top, nb::handle map,
             nb::handle reduce, nb::handle pairs) {
            new (self) LensRequest(make(statistics, top, map, reduce, pairs));
          },
          nb::kw_only(), "statistics"_a = false, "top"_a = nb::none(), "map"_a = nb::none(),
          "reduce"_a = "sum", "pairs"_a = false,
          nb::sig("def __init__(self, *, statistics: bool = False, top: int | None = None, map: "
                  "tuple[int, int] | None = None, reduce: typing.Literal[\"sum\", \"mean\", "
                  "\"max\"] = \"sum\", pairs: bool = False) -> None"))
      .def_ro("statistics", &LensRequest::statistics)
      .def_prop_ro("top", top_of, nb::sig("def top(self) -> int | None"))
      .def_prop_ro("map", map_of, nb::sig("def map(self) -> tuple[int, int] | None"))
      .def_prop_ro("reduce", [](const LensRequest& self) { return pool_name(self.reduce); })
      .def_ro("pairs", &LensRequest::pairs)
      .def("__getstate__",
           [](const LensRequest& self) {
             return LensesState(nb::bool_(self.statistics), top_of(self), map_of(self),
                                nb::str(pool_name(self.reduce)), nb::bool_(self.pairs));
           })
      .def("__setstate__",
           [](LensRequest& self, const LensesState& state) {
             const auto& [statistics, top, map, reduce, pairs] = state;
             new (&self) LensRequest(make(statistics, top, map, reduce, pairs));
           })
      .def("__repr__", repr);

  static std::array<PyStructSequence_Field, kSeenFields + 1> fields{
      {{"entropy", "[batch, q_heads, q_len], -sum_j w_j ln(w_j), in nats"},
       {"maximum", "[batch, q_heads, q_len], the largest weight"},
       {"maximum_key", "[batch, q_heads, q_len], its key; the lowest on ties"},
       {"mean_distance", "[batch, q_heads, q_len], weighted mean of i + offset - j"},
       {"distance_variance", "[batch, q_heads, q_len], weighted variance of i + offset - j"},
       {"first_key", "[batch, q_heads, q_len], the weight of key 0 of the query's sequence"},
       {"top_keys",
        "[batch, q_heads, q_len, k], keys of the largest weights; -1 beyond the visible keys"},
       {"top_weights", "[batch, q_heads, q_len, k], in descending order"},
       {"map", "[batch, q_heads, rows, columns], the pooled weights"},
       {"pairs", "[batch, q_heads, rows, columns], number of visible pairs"},
       {nullptr, nullptr}}};
  static PyStructSequence_Desc description{"fovea.Seen", kSeenDoc, fields.data(),
                                           static_cast<int>(kSeenFields)};
  seen_type = add_named_tuple(module, "Seen", description);
}

}  // namespace fovea::python
