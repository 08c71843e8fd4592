// SPDX-License-Identifier: Apache-2.0
//
// The query, key and value of `fovea attend`: read, checked against each other, and seen as
// [batch, heads, length, dim], whatever their rank and layout.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/mask.h"
#include "fovea/tensor.h"

#include "cli/problem/arguments.h"

namespace fovea::cli {

/// How tensors lie in files: how many dimensions they have, and which.
struct TensorLayout {
  int rank = 4;               ///< 2: no batch and no heads; 3: no batch
  bool length_first = false;  ///< "blhd": length before heads

  /// The shape in a file of a tensor [batch, heads, length, dim].
  Shape shape(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t dim) const;
  /// The same without a dim: [batch, heads, length] and less, in either layout.
  Shape shape(std::int64_t batch, std::int64_t heads, std::int64_t length) const;

  /// A tensor of a file as [batch, heads, length, dim]; no element is moved.
  template <class Pointee>
  BasicTensorView<Pointee> seen(const BasicTensorView<Pointee>& tensor) const;
  /// "[batch, heads, length, dim]", as it lies in a file.
  std::string words() const;
};

/// One of the three.
struct AttendTensor {
  std::string name;   ///< where it is: "q.npy", "model.safetensors:query"
  std::string place;  ///< the option as well, for messages: "--query: q.npy"
  TensorRef tensor;   ///< as the file has it, in the type that is computed with
  TensorView view;    ///< [batch, heads, length, dim]
};

struct AttendInputs {
  AttendTensor query;
  AttendTensor key;
  AttendTensor value;
  TensorLayout layout;
  ProblemShape shape;

  std::int64_t head_dim() const { return query.view.extent(3); }
  std::int64_t value_dim() const { return value.view.extent(3); }
  bool is_float64() const { return query.view.dtype() == DType::kFloat64; }
};

/// Whether values are needed. Where only weights are, keys stand for values that were not given.
enum class ValueWish : std::uint8_t { kNeeded, kIfGiven };

/// Throws InvalidArgument and IoError, naming option and file, what was expected and what came.
AttendInputs read_inputs(const AttendArguments& arguments, ValueWish wish = ValueWish::kNeeded);

template <class Pointee>
BasicTensorView<Pointee> TensorLayout::seen(const BasicTensorView<Pointee>& tensor) const {
  const BasicTensorView<Pointee> heads_first =
      length_first && rank > 2 ? tensor.transposed(rank - 3, rank - 2) : tensor;
  // What is not there has one element, and the strides of a tensor without gaps.
  Shape shape = {1, 1, 1, 1};
  Strides strides = shape;
  for (int dim = 3; dim >= 0; --dim) {
    const int own = dim - (4 - rank);
    shape[dim] = own >= 0 ? heads_first.extent(own) : 1;
    strides[dim] = own >= 0 ? heads_first.strides()[own] : strides[dim + 1] * shape[dim + 1];
  }
  return {tensor.data(), tensor.dtype(), shape, strides};
}

}  // namespace fovea::cli
