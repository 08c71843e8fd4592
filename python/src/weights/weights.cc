// SPDX-License-Identifier: Apache-2.0
//
// `weights`, `received` and `heads`, and the further building blocks of fovea.Weights and fovea.map
// (python/fovea/_weights.py, _map.py): rectangles of scores, pooled weights, and lenses of the
// fused pass without a context.

#include "fovea/weights.h"

#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <nanobind/nanobind.h>

#include "fovea/lens_buffers.h"
#include "fovea/map.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/forward.h"
#include "attention/options.h"
#include "attention/problem.h"
#include "docs.h"
#include "functions.h"
#include "weights/heads.h"
#include "weights/lenses.h"
#include "weights/named_tuple.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

constexpr const char* kReceivedDoc =
    "Results of received(): named NumPy arrays, None if not requested. Values are float32 "
    "(float64\n"
    "for float64 inputs), counts int64. The arrays lack the batch and head dimensions that query\n"
    "lacks.";

// The last parameters of every function here: all options except packed sequences and dropout.
constexpr std::size_t kScoreOptions = kAlignment - kMask + 1;
constexpr std::size_t kOptions = kScoreOptions + 1;  // threads

template <std::size_t kOwn>
constexpr std::array<const char*, kOwn + kOptions> with_options(
    const std::array<const char*, kOwn>& own) {
  std::array<const char*, kOwn + kOptions> names{};
  for (std::size_t i = 0; i < kOwn; ++i) names[i] = own[i];
  for (std::size_t i = 0; i < kScoreOptions; ++i) names[kOwn + i] = kParameterNames[kMask + i];
  names[kOwn + kScoreOptions] = kParameterNames[kThreads];
  return names;
}

Parameters parameters(std::span<PyObject* const> options) {
  Parameters given{};
  for (std::size_t i = 0; i < kScoreOptions; ++i) given[kMask + i] = options[i];
  given[kThreads] = options[kScoreOptions];
  return given;
}

/// Returns an index below `count`, 0 by default; `name` is the argument's name in error messages.
std::int64_t place(PyObject* object, const char* name, const char* count_name, std::int64_t count) {
  const std::int64_t at = object == nullptr ? 0 : integer(object, name);
  if (at < 0 || at >= count) {
    raise_value_error("{}: expected 0 or more and less than {} = {}, got {}", name, count_name,
                      count, at);
  }
  return at;
}

struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Converts None, a slice or a pair (first, end) to a range.
Range range_of(PyObject* object, const char* name, const char* length_name, std::int64_t length) {
  if (object == nullptr) return {0, length};
  if (PySlice_Check(object)) {
    Py_ssize_t first = 0, end = 0, step = 0;
    if (PySlice_Unpack(object, &first, &end, &step) < 0) {
      if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) nb::raise_python_error();
      PyErr_Clear();
      raise_type_error("{}: expected a slice of integers, got {}", name, text_of(object));
    }
    if (step != 1) {
      raise_value_error(
          "{}: expected neighbours, a slice without a step, got {}; what comes can be sliced", name,
          text_of(object));
    }
    const Py_ssize_t count = PySlice_AdjustIndices(length, &first, &end, step);
    return {first, count};
  }
  if (!PyTuple_Check(object) && !PyList_Check(object)) {
    raise_type_error("{}: expected a slice, or a pair of the first and the end, got {}", name,
                     describe(object));
  }
  const std::vector<std::int64_t> pair = integers(object, name);
  if (pair.size() != 2 || pair[0] < 0 || pair[0] > pair[1] || pair[1] > length) {
    raise_value_error("{}: expected a first and an end with 0 <= first <= end <= {} = {}, got {}",
                      name, length_name, length, text_of(object));
  }
  return {pair[0], pair[1] - pair[0]};
}

/// Query, key, options and lse of a call.
class Weighing {
 public:
  /// `arguments` must end with the options.
  Weighing(std::span<PyObject* const> arguments, PyObject* lse)
      : query_(arguments[0], {.name = "query", .contiguous_rows = true}),
        key_(arguments[1], {.name = "key", .contiguous_rows = true}),
        given_(parameters(arguments.last(kOptions))) {
    check_rank(query_, "query");
    check_same_rank(key_, "key", query_);
    inputs_.query = with_rank_4(query_.view());
    inputs_.key = with_rank_4(key_.view());
    if (lse == nullptr) return;
    lse_.emplace(lse, ArrayRequest{.name = "lse"});
    if (lse_->rank() + 1 != query_.rank()) {
      raise_value_error("lse: expected {} dimensions, one less than query has, got {}",
                        query_.rank() - 1, to_string(lse_->view().shape()));
    }
    inputs_.lse = with_rank_3(lse_->view());
  }

  const Array& query() const { return query_; }
  DType sums() const {
    return query_.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  std::int64_t batch() const { return inputs_.query.extent(0); }
  std::int64_t q_heads() const { return inputs_.query.extent(1); }
  std::int64_t q_len() const { return inputs_.query.extent(2); }
  std::int64_t kv_len() const { return inputs_.key.extent(2); }

  /// Returns the cost of one head's product in flop.
  double product(std::int64_t rows, std::int64_t columns) const {
    const double each = query_.dtype() == DType::kFloat64 ? 100.0 : 2.0;
    return each * static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(std::max<std::int64_t>(inputs_.query.extent(3), 1));
  }
  double whole() const {
    return static_cast<double>(batch() * q_heads()) * product(q_len(), kv_len());
  }

  /// Returns the index of a head, which applies to all batch items.
  std::int64_t head(PyObject* head) const { return tile({}, {}, nullptr, head).head; }
  /// `batch` and `head` are the caller's Python arguments.
  WeightTile tile(Range rows, Range columns, PyObject* batch, PyObject* head) const {
    return {.batch = place(batch, "batch", "batch", this->batch()),
            .head = place(head, "head", "q_heads", q_heads()),
            .first_query = rows.first,
            .queries = rows.count,
            .first_key = columns.first,
            .keys = columns.count};
  }

  /// Calls engine(inputs, options) with an lse, computed by the fused pass if none was given.
  template <class Engine>
  void compute(double work, const Engine& engine) {
    if (!inputs_.lse.defined()) work += whole();
    run(work, options().execution, [&] {
      if (!inputs_.lse.defined()) {
        Tensor found(sums(), {batch(), q_heads(), q_len()});
        forward(inputs_.query, inputs_.key, inputs_.key, options(), {.lse = found.view()});
        found_ = std::move(found);
        inputs_.lse = found_.view();
      }
      engine(inputs_, options());
    });
  }

  /// Calls engine(inputs, options) without an lse.
  template <class Engine>
  void compute_without_lse(double work, const Engine& engine) {
    run(work, options().execution, [&] { engine(inputs_, options()); });
  }

  /// Runs the fused pass without a context; `outputs.context` must be undefined.
  void observe(const AttentionOutputs& outputs) {
    run(whole(), options().execution,
        [&] { forward(inputs_.query, inputs_.key, inputs_.key, options(), outputs); });
  }

 private:
  AttentionOptions& options() { return given_.options; }

  Array query_, key_;
  std::optional<Array> lse_;
  Tensor found_;
  ProblemOptions given_;
  WeightInputs inputs_;
};

enum class TileOf { kWeights, kScores };

/// weights(query, key, rows, cols, batch, head, lse, ...), and _scores with the same parameters.
template <TileOf kOf>
PyObject* call_tile(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  enum : std::size_t { kRows = 2, kColumns, kBatch, kHead, kGivenLse, kOwn };
  return guarded([&] {
    static constexpr auto kNames = with_options(
        std::array<const char*, kOwn>{"query", "key", "rows", "cols", "batch", "head", "lse"});
    static const Signature signature(kOf == TileOf::kWeights ? "weights" : "_scores", kNames, 2, 2);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Weighing weighing(given, given[kGivenLse]);
    const WeightTile tile =
        weighing.tile(range_of(given[kRows], "rows", "q_len", weighing.q_len()),
                      range_of(given[kColumns], "cols", "kv_len", weighing.kv_len()), given[kBatch],
                      given[kHead]);
    NewArray found(weighing.query(), Framework::kNumpy, weighing.sums(), {tile.queries, tile.keys});
    // The engine does not accept empty tiles.
    if (tile.queries == 0 || tile.keys == 0) return found.release();
    const double work = weighing.product(tile.queries, tile.keys);
    if constexpr (kOf == TileOf::kWeights) {
      weighing.compute(work, [&](const WeightInputs& inputs, const AttentionOptions& options) {
        attention_weights(inputs, tile, options, found.view());
      });
    } else {
      weighing.compute_without_lse(
          work, [&](const WeightInputs& inputs, const AttentionOptions& options) {
            attention_scores(inputs, tile, options, found.view());
          });
    }
    return found.release();
  });
}

/// Returns a cell count from 1 to `length`. Error messages use `name`, the argument's name, and
/// `things`, which is "queries" or "keys".
std::int64_t cells_of(PyObject* object, const char* name, std::int64_t length, const char* things) {
  const std::int64_t cells = integer(object, name);
  if (cells < 1 || cells > length) {
    raise_value_error("{}: expected 1 to {}, as many as there are {}, got {}", name, length, things,
                      cells);
  }
  return cells;
}

/// _pooled_weights(query, key, lse, rows, columns, reduce, queries, keys, pairs, batch, head, ...):
/// returns the cells, or with pairs (cells, pairs).
PyObject* call_pooled(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  enum : std::size_t {
    kGivenLse = 2,
    kRows,
    kColumns,
    kReduce,
    kQueries,
    kKeys,
    kPairs,
    kBatch,
    kHead,
    kOwn
  };
  return guarded([&]() -> PyObject* {
    static constexpr auto kNames = with_options(
        std::array<const char*, kOwn>{"query", "key", "lse", "rows", "columns", "reduce", "queries",
                                      "keys", "pairs", "batch", "head"});
    static const Signature signature("_pooled_weights", kNames, kReduce + 1, kOwn);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Weighing weighing(given, given[kGivenLse]);
    const WeightTile tile = weighing.tile(
        range_of(given[kQueries], "queries", "q_len", weighing.q_len()),
        range_of(given[kKeys], "keys", "kv_len", weighing.kv_len()), given[kBatch], given[kHead]);
    const Shape shape = {cells_of(given[kRows], "rows", tile.queries, "queries"),
                         cells_of(given[kColumns], "columns", tile.keys, "keys")};
    NewArray cells(weighing.query(), Framework::kNumpy, weighing.sums(), shape);
    std::optional<NewArray> pairs;
    PooledMap map{.cells = cells.view(), .pairs = {}, .pool = pool_of(given[kReduce], "reduce")};
    if (given[kPairs] != nullptr && truth(given[kPairs], "pairs")) {
      map.pairs = pairs.emplace(weighing.query(), Framework::kNumpy, DType::kInt64, shape).view();
    }
    weighing.compute(weighing.product(tile.queries, tile.keys),
                     [&](const WeightInputs& inputs, const AttentionOptions& options) {
                       attention_weights(inputs, tile, options, map);
                     });
    if (!pairs) return cells.release();
    return nb::make_tuple(nb::steal(cells.release()), nb::steal(pairs->release())).release().ptr();
  });
}

/// _map(query, key, lse, rows, columns, reduce, queries, keys, head, heads, ...): returns the
/// cells of every head, of one head, or pooled over all heads.
PyObject* call_map(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  enum : std::size_t {
    kGivenLse = 2,
    kRows,
    kColumns,
    kReduce,
    kQueries,
    kKeys,
    kHead,
    kHeads,
    kOwn
  };
  return guarded([&] {
    static constexpr auto kNames = with_options(std::array<const char*, kOwn>{
        "query", "key", "lse", "rows", "columns", "reduce", "queries", "keys", "head", "heads"});
    static const Signature signature("_map", kNames, 2, kOwn);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Weighing weighing(given, given[kGivenLse]);
    const bool each = given[kHead] == nullptr && given[kHeads] == nullptr;
    const Range rows = range_of(given[kQueries], "queries", "q_len", weighing.q_len());
    const Range columns = range_of(given[kKeys], "keys", "kv_len", weighing.kv_len());
    MapRequest request = {.queries = {rows.first, rows.first + rows.count},
                          .keys = {columns.first, columns.first + columns.count},
                          .rows = cells_of(given[kRows], "rows", rows.count, "queries"),
                          .columns = cells_of(given[kColumns], "columns", columns.count, "keys"),
                          .pool = pool_of(given[kReduce], "reduce")};
    if (given[kHead] != nullptr) request.head = weighing.head(given[kHead]);
    if (given[kHeads] != nullptr) request.heads = pool_of(given[kHeads], "heads");
    Shape shape;
    for (int dim = 4 - weighing.query().rank(); dim < (each ? 2 : 1); ++dim) {
      shape.push_back(dim == 0 ? weighing.batch() : weighing.q_heads());
    }
    shape.push_back(request.rows);
    shape.push_back(request.columns);
    NewArray found(weighing.query(), Framework::kNumpy, weighing.sums(), shape);
    const std::int64_t heads = each ? weighing.q_heads() : 1;
    const Shape all_shape = {weighing.batch(), heads, request.rows, request.columns};
    const MutableTensorView all(found.view().data(), weighing.sums(), all_shape);
    const auto write = [&](std::int64_t batch, std::int64_t head, const Tensor& cells) {
      const Tensor own = convert(cells, all.dtype());
      std::memcpy(all.address({batch, head, 0, 0}), own.view().data(),
                  static_cast<std::size_t>(own.size()) * dtype_size(own.dtype()));
    };
    const bool nothing = weighing.batch() * weighing.q_heads() == 0;
    const bool whole = given[kHead] == nullptr && given[kGivenLse] == nullptr &&
                       given[kQueries] == nullptr && given[kKeys] == nullptr;
    if (each && (whole || nothing)) {
      const Lenses lenses = {.map = {.cells = all, .pool = request.pool}};
      weighing.observe({.lenses = &lenses});
    } else if (whole || nothing) {
      LensBuffers room({.batch = weighing.batch(), .q_heads = weighing.q_heads()}, weighing.sums(),
                       {.map_rows = request.rows,
                        .map_columns = request.columns,
                        .pool = request.pool,
                        .pairs = request.pool == Pool::kMean});
      const Lenses lenses = room.lenses();
      weighing.observe({.lenses = &lenses});
      if (nothing) for_each_index(all.shape(), [&](const Index& at) { set_value(all, at, NAN); });
      for (std::int64_t b = 0; !nothing && b < weighing.batch(); ++b) {
        const TensorView cells = room.cells.view(), pairs = room.pairs.view();
        write(b, 0, pool_heads(cells[b], pairs.defined() ? pairs[b] : pairs, *request.heads));
      }
    } else {
      const std::int64_t computed = request.heads ? weighing.q_heads() : heads;
      const double work = static_cast<double>(weighing.batch() * computed) *
                          weighing.product(rows.count, columns.count);
      weighing.compute(work, [&](const WeightInputs& inputs, const AttentionOptions& options) {
        for (request.batch = 0; request.batch < weighing.batch(); ++request.batch) {
          for (std::int64_t head = 0; head < heads; ++head) {
            if (each) request.head = head;
            write(request.batch, head, attention_map(inputs, request, options).map.cells);
          }
        }
      });
    }
    return found.release();
  });
}

enum ReceivedField : std::size_t {
  kReceivedSum,
  kReceivedLargest,
  kReceivedRecent,
  kReceivedHistogram,
  kReceivedFields
};

PyTypeObject* received_type = nullptr;  // never released

PyObject* call_received(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                        PyObject* keywords) {
  enum : std::size_t { kGivenLse = 2, kRecent, kBins, kOwn };
  return guarded([&] {
    static constexpr auto kNames =
        with_options(std::array<const char*, kOwn>{"query", "key", "lse", "recent", "bins"});
    static const Signature signature("received", kNames, 2, 2);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Weighing weighing(given, given[kGivenLse]);
    std::array<std::optional<NewArray>, kReceivedFields> made;
    const auto make = [&](ReceivedField field, DType type, std::int64_t last) {
      Shape shape = result_shape(weighing.query().view().shape(), -1);
      shape[shape.rank() - 1] = last;
      return with_rank_3(
          made[field].emplace(weighing.query(), Framework::kNumpy, type, shape).view());
    };
    ReceivedAttention received;
    if (given[kRecent] != nullptr) {
      received.recent_queries = integer(given[kRecent], "recent");
      if (received.recent_queries < 1 || received.recent_queries > weighing.q_len()) {
        raise_value_error("recent: expected 1 to q_len = {} queries, got {}", weighing.q_len(),
                          received.recent_queries);
      }
      received.recent = make(kReceivedRecent, weighing.sums(), weighing.kv_len());
    }
    if (given[kBins] != nullptr) {
      const std::int64_t bins = integer(given[kBins], "bins");
      if (bins < 1 || bins > kMaxWeightBins) {
        raise_value_error("bins: expected 1 to {}, got {}", kMaxWeightBins, bins);
      }
      received.histogram = make(kReceivedHistogram, DType::kInt64, bins);
    }
    received.sum = make(kReceivedSum, weighing.sums(), weighing.kv_len());
    received.largest = make(kReceivedLargest, weighing.sums(), weighing.kv_len());
    weighing.compute(weighing.whole(),
                     [&](const WeightInputs& inputs, const AttentionOptions& options) {
                       attention_received(inputs, options, received);
                     });
    std::array<nb::object, kReceivedFields> arrays;
    for (std::size_t i = 0; i < kReceivedFields; ++i) {
      if (made[i]) arrays[i] = nb::steal(made[i]->release());
    }
    return make_named_tuple(received_type, arrays);
  });
}

/// _observe(query, key, lenses, ...): returns the Seen of the lenses, or without lenses the lse.
PyObject* call_observe(PyObject*, PyObject* const* arguments, Py_ssize_t count,
                       PyObject* keywords) {
  enum : std::size_t { kLensesOf = 2, kOwn };
  return guarded([&] {
    static constexpr auto kNames =
        with_options(std::array<const char*, kOwn>{"query", "key", "lenses"});
    static const Signature signature("_observe", kNames, 2, kOwn);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Weighing weighing(given, nullptr);
    if (given[kLensesOf] == nullptr) {
      NewArray lse(weighing.query(), Framework::kNumpy, weighing.sums(),
                   result_shape(weighing.query().view().shape(), -1));
      weighing.observe({.lse = with_rank_3(lse.view())});
      return lse.release();
    }
    Seen seen(lenses_of(given[kLensesOf]), weighing.query(), weighing.kv_len());
    const Lenses lenses = seen.lenses();
    weighing.observe({.lenses = &lenses});
    return seen.release();
  });
}

PyObject* call_heads(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  enum : std::size_t { kBlocks = 2, kOwn };
  return guarded([&] {
    static constexpr auto kNames =
        with_options(std::array<const char*, kOwn>{"query", "key", "blocks"});
    static const Signature signature("heads", kNames, 2, 2);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    Weighing weighing(given, nullptr);
    const std::int64_t blocks =
        given[kBlocks] == nullptr ? HeadSummary().blocks : integer(given[kBlocks], "blocks");
    HeadArrays heads(weighing.query(), weighing.sums());
    weighing.compute_without_lse(weighing.whole(),
                                 [&](const WeightInputs& inputs, const AttentionOptions& options) {
                                   attention_heads(inputs, options, heads.summary(blocks));
                                 });
    return heads.release();
  });
}

/// _weights_shape(query, key, ...): returns (rank, batch, q_heads, q_len, kv_len) and checks the
/// types of the options.
PyObject* call_shape(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static constexpr auto kNames = with_options(std::array<const char*, 2>{"query", "key"});
    static const Signature signature("Weights", kNames, 2, 2);
    std::array<PyObject*, kNames.size()> given{};
    signature.bind(arguments, count, keywords, given);
    const Weighing weighing(given, nullptr);
    return nb::make_tuple(weighing.query().rank(), weighing.batch(), weighing.q_heads(),
                          weighing.q_len(), weighing.kv_len())
        .release()
        .ptr();
  });
}

template <class Function>
PyMethodDef method(const char* name, Function* function, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL | METH_KEYWORDS, doc};
}

}  // namespace

void add_weights(nb::module_& module) {
  static PyMethodDef weights = method("weights", call_tile<TileOf::kWeights>, weights_doc());
  static PyMethodDef received = method("received", call_received, received_doc());
  static PyMethodDef heads = method("heads", call_heads, heads_doc());
  static PyMethodDef scores = method("_scores", call_tile<TileOf::kScores>, "Scores of a head.");
  static PyMethodDef pooled = method("_pooled_weights", call_pooled, "Pooled weights of a head.");
  static PyMethodDef map = method("_map", call_map, "Pooled weights of heads.");
  static PyMethodDef observe = method("_observe", call_observe, "Lens results, or the lse.");
  static PyMethodDef shape = method("_weights_shape", call_shape, "Shape of the weights.");
  for (PyMethodDef* const own : {&weights, &received, &heads}) {
    add_function(module, own->ml_name, "fovea", *own);
  }
  for (PyMethodDef* const own : {&scores, &pooled, &map, &observe, &shape}) {
    add_function(module, own->ml_name, "fovea._fovea", *own);
  }

  static std::array<PyStructSequence_Field, kReceivedFields + 1> fields{
      {{"sum", "[batch, q_heads, kv_len], sum of a key's weights over all queries"},
       {"largest", "[batch, q_heads, kv_len], the largest of a key's weights"},
       {"recent", "[batch, q_heads, kv_len], sum of a key's weights over the last queries"},
       {"histogram", "[batch, q_heads, bins], number of visible weights per bin"},
       {nullptr, nullptr}}};
  static PyStructSequence_Desc description{"fovea.Received", kReceivedDoc, fields.data(),
                                           static_cast<int>(kReceivedFields)};
  received_type = add_named_tuple(module, "Received", description);
}

}  // namespace fovea::python
