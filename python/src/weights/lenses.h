// SPDX-License-Identifier: Apache-2.0
//
// fovea.Lenses, what a call is asked to watch, and fovea.Seen, what it saw: a tuple with names,
// None where nothing was asked for.

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
  std::int64_t top = 0;  ///< 0: none
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< of the map; both 0: none
  Pool reduce = Pool::kSum;
  bool pairs = false;
};

/// A fovea.Lenses. Throws nb::type_error naming the argument lenses.
const LensRequest& lenses_of(PyObject* object);

/// "sum", "mean" or "max"; nb::type_error and nb::value_error name the argument.
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

/// The arrays of a Seen, NumPy's, which lenses write to.
class Seen {
 public:
  /// For a query of 2, 3 or 4 dimensions. Throws nb::value_error naming lenses where there is more
  /// to see than the problem has; nb::python_error.
  Seen(const LensRequest& request, const Array& query, std::int64_t kv_len);

  Lenses lenses() const;
  /// The fovea.Seen, a new reference.
  PyObject* release();

 private:
  std::array<std::optional<NewArray>, kSeenFields> made_;
  Pool reduce_;
};

}  // namespace fovea::python
