// SPDX-License-Identifier: Apache-2.0
//
// Converts keyword arguments to AttentionOptions (options.h).

#include "attention/options.h"

#include <limits>

#include "fovea/error.h"

#include "arrays/calls.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

RelativeTable relative_of(PyObject* object) {
  RelativeTable* table = nullptr;
  if (!nb::try_cast<RelativeTable*>(nb::handle(object), table) || table == nullptr) {
    raise_type_error("relative: expected a fovea.RelativeTable, got {}", describe(object));
  }
  return *table;
}

Dropout dropout_of(PyObject* object) {
  Dropout* dropout = nullptr;
  if (!nb::try_cast<Dropout*>(nb::handle(object), dropout) || dropout == nullptr) {
    raise_type_error(
        "dropout: expected a fovea.Dropout, which says what is left out, forward and backward "
        "alike, got {}",
        describe(object));
  }
  return *dropout;
}

std::optional<Alibi> alibi_of(PyObject* object) {
  if (object == Py_False) return std::nullopt;
  if (object == Py_True) return Alibi{};
  std::vector<double> slopes = numbers(object, "alibi");
  // The engine would interpret an empty list as the paper's default slopes.
  if (slopes.empty())
    raise_value_error("alibi: expected True, or a slope per query head, got none");
  return Alibi{std::move(slopes)};
}

}  // namespace

Mask mask_of(PyObject* object) {
  Mask* mask = nullptr;
  if (nb::try_cast<Mask*>(nb::handle(object), mask) && mask != nullptr) return *mask;
  if (PyObject_HasAttrString(object, "__dlpack__") == 0 && PyObject_CheckBuffer(object) == 0) {
    raise_type_error(
        "mask: expected a fovea.Mask, such as fovea.causal(), or an array of bool, got {}",
        describe(object));
  }
  return dense(keep_array(object, {.name = "mask", .elements = Elements::kBools}));
}

int threads_of(PyObject* object) {
  const std::int64_t threads = integer(object, "threads");
  if (threads < 1 || threads > std::numeric_limits<int>::max()) {
    raise_value_error("threads: expected 1 or more (None: as many as OpenMP says), got {}",
                      threads);
  }
  return static_cast<int>(threads);
}

Alignment alignment_of(PyObject* object) {
  if (PyUnicode_Check(object)) {
    if (PyUnicode_CompareWithASCIIString(object, "bottom-right") == 0)
      return Alignment::bottom_right();
    if (PyUnicode_CompareWithASCIIString(object, "top-left") == 0) return Alignment::top_left();
    raise_value_error(
        "alignment: expected \"bottom-right\", \"top-left\", an offset or one per batch "
        "item, got \"{}\"",
        text_of(object));
  }
  if (is_integer(object)) {
    return Alignment::offset(integer(object, "alignment"));
  }
  return Alignment::offsets(integers(object, "alignment"));
}

ProblemOptions::ProblemOptions(const Parameters& given) {
  if (given[kMask] != nullptr) options.mask = mask_of(given[kMask]);
  ScoreOptions& score = options.score;
  if (given[kScale] != nullptr) score.scale = number(given[kScale], "scale");
  if (given[kSoftcap] != nullptr) score.softcap = number(given[kSoftcap], "softcap");
  if (given[kBias] != nullptr) {
    bias = std::make_unique<Array>(given[kBias], ArrayRequest{.name = "bias"});
    score.bias = bias->view();
  }
  if (given[kAlibi] != nullptr) score.alibi = alibi_of(given[kAlibi]);
  if (given[kRelative] != nullptr) score.relative = relative_of(given[kRelative]);
  if (given[kSinks] != nullptr) {
    score.sinks = numbers(given[kSinks], "sinks");
    if (score.sinks.empty()) raise_value_error("sinks: expected one per query head, got none");
  }
  if (given[kAlignment] != nullptr) options.alignment = alignment_of(given[kAlignment]);
  if ((given[kQueryStarts] != nullptr) != (given[kKeyStarts] != nullptr)) {
    raise_value_error("{}: expected both query_starts and key_starts, or neither",
                      given[kQueryStarts] == nullptr ? "query_starts" : "key_starts");
  }
  if (given[kQueryStarts] != nullptr) {
    options.sequences = {integers(given[kQueryStarts], "query_starts"),
                         integers(given[kKeyStarts], "key_starts")};
    if (options.sequences.query_starts.empty()) {
      raise_value_error("query_starts: expected 2 starts or more, got none");
    }
  }
  if (given[kDropout] != nullptr) options.dropout = dropout_of(given[kDropout]);
  if (given[kThreads] != nullptr) options.execution.threads = threads_of(given[kThreads]);
}

}  // namespace fovea::python
