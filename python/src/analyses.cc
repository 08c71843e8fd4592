// SPDX-License-Identifier: Apache-2.0
//
// Analyses of recordings: the methods of an open file on which python/fovea/_recording is built.
// Heads and keys of arguments are indices of the recorded tensors.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fovea/analysis.h"
#include "fovea/error.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "attention/options.h"
#include "engine/weights/head_names.h"
#include "functions.h"
#include "weights/lenses.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;

Execution execution_of(nb::handle threads) {
  Execution execution;
  if (!threads.is_none()) execution.threads = threads_of(threads.ptr());
  return execution;
}

/// Returns the cost of the products of queries and keys in flop.
double products_of(const RecordedAttention& attention) {
  const ProblemShape shape = attention.shape();
  const double pairs = static_cast<double>(shape.batch * shape.q_heads) *
                       static_cast<double>(shape.q_len) * static_cast<double>(shape.kv_len);
  return 2.0 * pairs * static_cast<double>(std::max<std::int64_t>(attention.query->extent(3), 1));
}

nb::object numpy_of(const Tensor& tensor) { return nb::steal(numpy_copy(tensor)); }

/// Returns (duplicate, induction, repeated), or None without tokens.
nb::object scores_of(const Recording& self, const std::string& name, nb::handle threads) {
  const RecordedAttention& attention = self.find(name);
  Execution execution = execution_of(threads);
  std::optional<TokenScores> scores;
  run(products_of(attention), execution,
      [&] { scores = token_scores(self, attention, execution); });
  if (!scores) return nb::none();
  return nb::make_tuple(numpy_of(scores->duplicate), numpy_of(scores->induction),
                        numpy_of(scores->repeated));
}

nb::object rollout_of(const Recording& self, const std::vector<std::string>& names, Pair place,
                      double residual, nb::handle threads) {
  std::vector<const RecordedAttention*> layers;
  double work = 0.0;
  for (const std::string& name : names) {
    layers.push_back(&self.find(name));
    work += products_of(*layers.back());
  }
  Execution execution = execution_of(threads);
  Tensor shares;
  run(work, execution, [&] {
    shares = attention_rollout(
        layers, {.batch = place.first, .query = place.second, .residual = residual}, execution);
  });
  return numpy_of(shares);
}

nb::object norms_of(const Recording& self, const std::string& name, nb::handle projection) {
  const RecordedAttention& attention = self.find(name);
  std::optional<Array> matrix;
  if (!projection.is_none()) matrix.emplace(projection.ptr(), ArrayRequest{.name = "projection"});
  Tensor norms;
  {
    const nb::gil_scoped_release released;
    norms = value_norms(attention, matrix ? matrix->view() : TensorView());
  }
  return numpy_of(norms);
}

/// `place` is a batch item and a head, `size` the rows and columns; ranges are half-open.
nb::object value_weighted_of(const Recording& self, const std::string& name, nb::handle norms,
                             Pair place, Pair size, nb::handle reduce, Pair queries, Pair keys,
                             nb::handle threads) {
  const RecordedAttention& attention = self.find(name);
  const Array of_values(norms.ptr(), {.name = "norms"});
  const MapRequest request = {.batch = place.first,
                              .head = place.second,
                              .queries = {queries.first, queries.second},
                              .keys = {keys.first, keys.second},
                              .rows = size.first,
                              .columns = size.second,
                              .pool = pool_of(reduce.ptr(), "reduce")};
  Execution execution = execution_of(threads);
  MapCells map;
  const auto heads = static_cast<double>(attention.shape().batch * attention.shape().q_heads);
  run(products_of(attention) / std::max(heads, 1.0), execution,
      [&] { map = value_weighted_map(attention, of_values.view(), request, execution); });
  return numpy_of(map.cells);
}

/// Throws unless the other recording has all attentions of this one, with the same tokens.
void require_counterparts(const Recording& self, const Recording& other) {
  for (const RecordedAttention& each : self.attentions()) find_counterpart(each, self, other);
}

/// Returns (mean, largest, largest_query).
nb::object divergence_of(const Recording& self, const std::string& name, const Recording& other,
                         nb::handle threads) {
  const RecordedAttention& first = self.find(name);
  const RecordedAttention& second = other.find(name);
  Execution execution = execution_of(threads);
  AttentionDivergence found;
  try {
    run(products_of(first) + products_of(second), execution,
        [&] { found = attention_divergence(first, second, execution); });
  } catch (const InvalidArgument& error) {
    // Shapes that differ, which tokens would have shown if there were any.
    raise_value_error("{}: {}: {}", other.path(), name, error.what());
  }
  return nb::make_tuple(numpy_of(found.mean), numpy_of(found.largest),
                        numpy_of(found.largest_query));
}

/// `numbers` are those of a HeadSummary, in its order.
std::string pattern_of(const std::vector<double>& numbers, double duplicate, double induction,
                       std::int64_t repeated) {
  engine::HeadTold head{.duplicate = duplicate, .induction = induction, .repeated = repeated};
  std::copy_n(numbers.begin(), std::min(numbers.size(), head.numbers.size()), head.numbers.begin());
  return std::string(head.name());
}

}  // namespace

void add_analyses(nb::module_& module) {
  nb::class_<Recording>(module, "_Recording")
      .def("token_scores", scores_of, "name"_a, "threads"_a.none())
      .def("rollout", rollout_of, "names"_a, "place"_a, "residual"_a, "threads"_a.none())
      .def("value_norms", norms_of, "name"_a, "projection"_a.none())
      .def("value_weighted", value_weighted_of, "name"_a, "norms"_a, "place"_a, "size"_a,
           "reduce"_a, "queries"_a, "keys"_a, "threads"_a.none())
      .def("require_counterparts", require_counterparts, "other"_a)
      .def("divergence", divergence_of, "name"_a, "other"_a, "threads"_a.none());
  module.def("_head_pattern", pattern_of, "numbers"_a, "duplicate"_a, "induction"_a, "repeated"_a);
}

}  // namespace fovea::python
