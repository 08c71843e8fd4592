// SPDX-License-Identifier: Apache-2.0
//
// Masks, and the table of relative positions.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "fovea/error.h"
#include "fovea/mask.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/options.h"
#include "functions.h"
#include "problem/mask_rules.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

constexpr const char* kMaskDoc =
    R"(The keys that each query may attend to: a rule, or rules combined with `&` (both must allow) and
`|` (one must allow). Immutable and cheap to copy; no matrix is stored. `Mask()` hides nothing.

    >>> fovea.causal() & fovea.window(1023, 0)
    causal() & window(1023, 0))";

constexpr const char* kMatrixDoc =
    R"(Returns the mask as a matrix, for inspection: True where the query may attend to the key.

alignment  position of the queries among the keys, as in attention()
batch, q_heads, item, head  the extents of the problem, and the batch item and head to show, for
                            masks that depend on them; by default one of each

Returns bool [q_len, kv_len], a NumPy array. Raises ValueError if a rule does not fit the shape.)";

nb::object matrix(const Mask& mask, std::int64_t q_len, std::int64_t kv_len, nb::handle alignment,
                  std::int64_t batch, std::int64_t q_heads, std::int64_t item, std::int64_t head) {
  if (q_len < 0 || kv_len < 0) {
    raise_value_error("q_len, kv_len: expected 0 or more, got {} and {}", q_len, kv_len);
  }
  if (item < 0 || item >= batch || head < 0 || head >= q_heads) {
    raise_value_error(
        "item, head: expected from 0 to before batch = {} and q_heads = {}, got {} and {}", batch,
        q_heads, item, head);
  }
  const ProblemShape shape{
      .batch = batch, .q_heads = q_heads, .kv_heads = q_heads, .q_len = q_len, .kv_len = kv_len};
  AttentionOptions options;
  options.mask = mask;
  options.alignment = alignment_of(alignment.ptr());
  validate(options, shape);
  NewArray result(DType::kBool, {q_len, kv_len});
  ScorePosition row{.batch = item, .head = head, .offset = query_offset(options, shape, item)};
  static_assert(sizeof(bool) == 1);
  Execution execution;
  run(static_cast<double>(result.view().size()), execution, [&] {
    auto* visible = static_cast<std::uint8_t*>(result.view().data());
    for (row.query = 0; row.query < q_len && kv_len > 0; ++row.query, visible += kv_len) {
      throw_if_stopped(execution);
      mask.fill(row, kv_len, visible);
    }
  });
  return nb::steal(result.release());
}

Mask make_documents(nb::handle query_ids, nb::handle key_ids) {
  const Tensor queries = int64_tensor(query_ids.ptr(), "query_ids");
  if (key_ids.is_none()) return documents(queries);
  return documents(queries, int64_tensor(key_ids.ptr(), "key_ids"));
}

Mask make_key_lengths(nb::handle lengths) {
  PyObject* const object = lengths.ptr();
  if (is_integer(object)) {
    return key_lengths({integer(object, "key_lengths")});
  }
  return key_lengths(integers(object, "key_lengths"));
}

Mask make_dense(nb::handle visible) {
  return dense(keep_array(visible.ptr(), {.name = "dense", .elements = Elements::kBools}));
}

/// The state of a pickled mask: the name of a function and its arguments. The operators are
/// functions of Python's module `operator`.
using MaskState = std::tuple<std::string, nb::tuple>;

MaskState state_of(const Mask& mask) {
  using Kind = MaskRule::Kind;
  const MaskRule rule = rule_of(mask);
  const auto array = [](const TensorView& view) { return nb::steal(numpy_copy(view)); };
  switch (rule.kind) {
    case Kind::kNothing:
      break;
    case Kind::kCausal:
      return {"causal", nb::make_tuple()};
    case Kind::kWindow:
      return {"window", nb::make_tuple(rule.numbers[0], rule.numbers[1])};
    case Kind::kPrefix:
      return {"prefix", nb::make_tuple(rule.numbers[0])};
    case Kind::kDocuments:
      return {"documents", nb::make_tuple(array(rule.query_ids), array(rule.key_ids))};
    case Kind::kKeyLengths:
      return {"key_lengths", nb::make_tuple(rule.numbers)};
    case Kind::kDense:
      return {"dense", nb::make_tuple(array(rule.dense))};
    case Kind::kBoth:
      return {"and_", nb::make_tuple(rule.operands[0], rule.operands[1])};
    case Kind::kEither:
      return {"or_", nb::make_tuple(rule.operands[0], rule.operands[1])};
  }
  return {"Mask", nb::make_tuple()};
}

Mask mask_of(const MaskState& state) {
  static constexpr std::string_view kFunctions[] = {
      "Mask", "causal", "window", "prefix", "documents", "key_lengths", "dense", "and_", "or_"};
  const auto& [name, arguments] = state;
  Mask mask;
  if (std::ranges::find(kFunctions, name) != std::end(kFunctions)) {
    const nb::module_ functions = nb::module_::import_(name.ends_with('_') ? "operator" : "fovea");
    if (nb::try_cast(functions.attr(name.c_str())(*arguments), mask)) return mask;
  }
  raise_value_error("state: expected that of a fovea.Mask, got \"{}\"", name);
}

std::string repr(const Mask& mask) { return mask.allows_all() ? "Mask()" : mask.to_string(); }

}  // namespace

void add_masks(nb::module_& module) {
  nb::class_<Mask>(module, "Mask", nb::is_final(), kMaskDoc)
      .def(nb::init<>())
      .def(nb::self & nb::self)
      .def(nb::self | nb::self)
      // NumPy would apply the operators to each element of an array.
      .def(
          "__array_ufunc__",
          [](const Mask&, const nb::args&, const nb::kwargs&) {
            raise_type_error(
                "expected a fovea.Mask on both sides of & and |, such as "
                "fovea.dense(array), got an array or a number of NumPy");
          },
          nb::sig("def __array_ufunc__(self, *inputs: typing.Any, **options: typing.Any) -> None"))
      .def("__repr__", repr)
      .def("__copy__", [](const Mask& self) { return self; })
      .def("__getstate__", state_of,
           nb::sig("def __getstate__(self) -> tuple[str, tuple[typing.Any, ...]]"))
      .def(
          "__setstate__",
          [](Mask& self, const MaskState& state) { new (&self) Mask(mask_of(state)); },
          nb::sig("def __setstate__(self, state: tuple[str, tuple[typing.Any, ...]], /) -> None"))
      .def("matrix", matrix, "q_len"_a, "kv_len"_a, nb::kw_only(), "alignment"_a = "bottom-right",
           "batch"_a = 1, "q_heads"_a = 1, "item"_a = 0, "head"_a = 0,
           nb::sig("def matrix(self, q_len: int, kv_len: int, *, alignment: _Alignment = "
                   "\"bottom-right\", batch: int = 1, q_heads: int = 1, item: int = 0, head: int = "
                   "0) -> "
                   "numpy.typing.NDArray[numpy.bool_]"),
           kMatrixDoc);

  module.def(
      "causal", causal,
      R"(Key j is visible iff j <= i + offset. With the default alignment, q_len = 2, kv_len = 5:

    1 1 1 1 0
    1 1 1 1 1

With q_len = 5, kv_len = 2 the first three rows are fully masked.)");
  module.def("window", window, "left"_a, "right"_a,
             R"(Key j is visible iff i + offset - left <= j <= i + offset + right; -1 is unbounded.

Raises ValueError for values below -1.)");
  module.def("prefix", prefix, "n"_a,
             R"(Key j is visible iff j < n. A prefix language model is `causal() | prefix(n)`.

Raises ValueError for a negative n.)");
  module.def("documents", make_documents, "query_ids"_a, "key_ids"_a = nb::none(),
             nb::sig("def documents(query_ids: numpy.typing.ArrayLike, key_ids: "
                     "numpy.typing.ArrayLike | None = None) -> Mask"),
             R"(A key is visible iff key and query have the same document id.

query_ids  integers, [q_len] or [batch, q_len]
key_ids    [kv_len] or [batch, kv_len]; query_ids by default, if q_len == kv_len

The ids are copied.)");
  module.def("key_lengths", make_key_lengths, "lengths"_a,
             nb::sig("def key_lengths(lengths: int | collections.abc.Sequence[int] | "
                     "numpy.typing.NDArray[numpy.integer[typing.Any]]) -> Mask"),
             R"(Key j of batch item b is visible iff j < lengths[b]; later keys are padding, which
the default alignment ignores. A single length applies to all items.)");
  module.def("dense", make_dense, "visible"_a, nb::sig("def dense(visible: typing.Any) -> Mask"),
             R"(A bool array, NumPy or DLPack, True where visible. It broadcasts to
[batch, q_heads, q_len, kv_len] from the right. Not copied: the mask refers to it.)");

  nb::class_<RelativeTable>(
      module, "RelativeTable", nb::is_final(),
      R"(T5's relative-position bias (Raffel et al. 2020): adds table[bucket(j - i - offset), head] to
every score.

table          floats, [buckets, q_heads]; not copied
bidirectional  keys before and after the query have separate buckets
max_distance   all distances >= max_distance share the last bucket)")
      .def(
          "__init__",
          [](RelativeTable* self, nb::handle table, bool bidirectional, std::int64_t max_distance) {
            new (self) RelativeTable{keep_array(table.ptr(), {.name = "table"}), bidirectional,
                                     max_distance};
          },
          "table"_a, nb::kw_only(), "bidirectional"_a = true, "max_distance"_a = 128,
          nb::sig("def __init__(self, table: typing.Any, *, bidirectional: bool = True, "
                  "max_distance: int = 128) -> None"))
      // For a recording of some heads.
      .def(
          "_of_heads",
          [](const RelativeTable& self, const std::vector<std::int64_t>& heads) {
            const TensorView& all = self.table;
            Tensor own(all.dtype(), {all.extent(0), static_cast<std::int64_t>(heads.size())});
            for_each_index(own.shape(), [&](const Index& at) {
              const std::int64_t head = heads[static_cast<std::size_t>(at[1])];
              set_value(own, at, all.value({at[0], head}));
            });
            return RelativeTable{std::move(own), self.bidirectional, self.max_distance};
          },
          "heads"_a)
      .def_ro("bidirectional", &RelativeTable::bidirectional)
      .def_ro("max_distance", &RelativeTable::max_distance)
      .def("__copy__", [](const RelativeTable& self) { return self; })
      .def("__getstate__",
           [](const RelativeTable& self) {
             return std::tuple(nb::steal(numpy_copy(self.table)), self.bidirectional,
                               self.max_distance);
           })
      .def("__setstate__",
           [](RelativeTable& self, const std::tuple<nb::object, bool, std::int64_t>& state) {
             const auto& [table, bidirectional, max_distance] = state;
             new (&self) RelativeTable{keep_array(table.ptr(), {.name = "table"}), bidirectional,
                                       max_distance};
           })
      .def("__repr__", [](const RelativeTable& self) {
        return fmt::format("RelativeTable({}, bidirectional={}, max_distance={})",
                           to_string(self.table->shape()), self.bidirectional ? "True" : "False",
                           self.max_distance);
      });

  module.def(
      "default_alibi_slopes",
      [](std::int64_t heads) {
        if (heads < 0) raise_value_error("heads: expected 0 or more, got {}", heads);
        const std::vector<double> slopes = default_alibi_slopes(heads);
        return nb::steal(numpy_copy(Tensor::from({heads}, slopes)));
      },
      "heads"_a,
      nb::sig("def default_alibi_slopes(heads: int) -> numpy.typing.NDArray[numpy.float64]"),
      R"(Returns the ALiBi slopes (Press et al. 2022) used by `alibi=True`: 2^(-8 (h + 1) / heads) if
heads is a power of two; otherwise the slopes of the next lower power of two, followed by every
other slope of the next higher power of two.)");
}

}  // namespace fovea::python
