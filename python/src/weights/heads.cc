// SPDX-License-Identifier: Apache-2.0
//
// fovea.HeadSummary (heads.h).

#include "weights/heads.h"

#include <array>

#include <nanobind/nanobind.h>

#include "functions.h"
#include "weights/named_tuple.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

constexpr const char* kHeadSummaryDoc =
    "Results of heads(): means over the rows (queries) with a weight above 0, named NumPy arrays\n"
    "[batch, q_heads], float32 (float64 for float64 inputs). The arrays lack the batch and head\n"
    "dimensions that query lacks. All values are NaN for a head without such a row or with NaN\n"
    "or infinity among its scores.";

PyTypeObject* summary_type = nullptr;  // never released

}  // namespace

HeadArrays::HeadArrays(const Array& query, DType dtype) {
  const Shape& rows = query.view().shape();
  Shape shape;
  for (int dim = 0; dim + 2 < rows.rank(); ++dim) shape.push_back(rows[dim]);
  for (std::size_t field = 0; field < kHeadNumbers.size(); ++field) {
    made_.emplace_back(query, Framework::kNumpy, dtype, shape);
  }
}

MutableTensorView HeadArrays::view(std::size_t field) const {
  const MutableTensorView& of = made_[field].view();
  Shape shape{1, 1};
  Strides strides{1, 1};
  for (int dim = 0; dim < of.rank(); ++dim) {
    shape[dim + 2 - of.rank()] = of.extent(dim);
    strides[dim + 2 - of.rank()] = of.strides()[dim];
  }
  return {of.data(), of.dtype(), shape, strides};
}

HeadSummary HeadArrays::summary(std::int64_t blocks) const {
  HeadSummary all{.blocks = blocks};
  for (std::size_t i = 0; i < kHeadNumbers.size(); ++i) all.*kHeadNumbers[i].output = view(i);
  return all;
}

PyObject* HeadArrays::release() {
  std::array<nb::object, kHeadNumbers.size()> arrays;
  for (std::size_t i = 0; i < kHeadNumbers.size(); ++i) arrays[i] = nb::steal(made_[i].release());
  return make_named_tuple(summary_type, arrays);
}

void add_heads(nb::module_& module) {
  static std::array<PyStructSequence_Field, kHeadNumbers.size() + 1> fields{
      {{"entropy", "[batch, q_heads], mean of -sum_j w_j ln(w_j), in nats"},
       {"even_entropy",
        "[batch, q_heads], mean of the entropy of equal weights on all visible keys"},
       {"maximum", "[batch, q_heads], mean of the largest weight"},
       {"mean_distance", "[batch, q_heads], mean of the weighted mean of i + offset - j"},
       {"first_key", "[batch, q_heads], mean weight of key 0"},
       {"previous_key", "[batch, q_heads], mean weight of key i + offset - 1"},
       {"own_key", "[batch, q_heads], mean weight of key i + offset"},
       {"next_key", "[batch, q_heads], mean weight of key i + offset + 1"},
       {"block_diagonal",
        "[batch, q_heads], mean weight of all keys in the block that contains i + offset"},
       {nullptr, nullptr}}};
  static PyStructSequence_Desc description{"fovea.HeadSummary", kHeadSummaryDoc, fields.data(),
                                           static_cast<int>(kHeadNumbers.size())};
  summary_type = add_named_tuple(module, "HeadSummary", description);
}

}  // namespace fovea::python
