// SPDX-License-Identifier: Apache-2.0
//
// fovea.Lenses, the statistics that a call requests, and fovea.Seen, their results. A Seen is a
// named tuple with None for fields that were not requested.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <Python.h>

#include "fovea/lenses.h"

#include "arrays/arrays.h"
#include "arrays/new_arrays.h"

namespace fovea::python {

struct LensRequest {
  bool statistics = false;
  std::int64_t top = 0;  ///< number of largest weights per row; 0: none
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< extents of the map; both 0: no map
  Pool reduce = Pool::kSum;
  bool pairs = false;
};

/// Returns the request of a fovea.Lenses. Throws nb::type_error naming the argument lenses.
const LensRequest& lenses_of(PyObject* object);

/// Converts "sum", "mean" or "max". Throws nb::type_error and nb::value_error naming the argument.
Pool pool_of(PyObject* object, const char* name);

enum SeenField : std::size_t {
  kSeenEntropy,
  kSeenMaximum,
  kSeenMaximumKey,
  kSeenMeanDistance,
  kSeenDistanceVariance,
  kSeenFirstKey,
  kSeenTopKeys,
  kSeenTopWeights,
  kSeenMap,
  kSeenPairs,
  kSeenFields
};

/// The NumPy arrays of a Seen, which lenses write to.
class Seen {
 public:
  /// `query` has 2, 3 or 4 dimensions. Throws nb::value_error naming lenses if the request exceeds
  /// the problem's size, and nb::python_error.
  Seen(const LensRequest& request, const Array& query, std::int64_t kv_len);

  Lenses lenses() const;
  /// Returns the fovea.Seen, a new reference.
  PyObject* release();

 private:
  std::array<std::optional<NewArray>, kSeenFields> made_;
  Pool reduce_;
};

}  // namespace fovea::python
