// SPDX-License-Identifier: Apache-2.0
//
// The query, key and value of `fovea attend`: read from tensor files or a recording, validated, and
// viewed as [batch, heads, length, dim] for any rank and layout.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/mask.h"
#include "fovea/recording.h"
#include "fovea/tensor.h"

#include "cli/problem/arguments.h"

namespace fovea::cli {

/// The dimensions of tensors in files and their order.
struct TensorLayout {
  int rank = 4;               ///< 2: no batch and no heads; 3: no batch
  bool length_first = false;  ///< "blhd": length before heads

  /// Returns the shape in a file of a tensor [batch, heads, length, dim].
  Shape shape(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t dim) const;
  /// Returns the shape that a tensor [batch, heads, length] has in a file. The layout does not
  /// affect it.
  Shape shape(std::int64_t batch, std::int64_t heads, std::int64_t length) const;

  /// Returns a view of a tensor in a file as [batch, heads, length, dim].
  template <class Pointee>
  BasicTensorView<Pointee> seen(const BasicTensorView<Pointee>& tensor) const;
  /// Returns the dimensions in a file, for example "[batch, heads, length, dim]".
  std::string words() const;
};

/// A query, key or value.
struct AttendTensor {
  std::string name;   ///< "q.npy", "model.safetensors:query"
  std::string place;  ///< the name with the option, for messages: "--query: q.npy"
  TensorRef tensor;   ///< in the layout of the file and the type of the computation
  TensorView view;    ///< [batch, heads, length, dim]
};

/// A recording, and one of its attentions.
struct RecordedSource {
  Recording recording;
  RecordedAttention attention;

  /// Returns the texts of the tokens along the queries or keys; empty if there are none.
  std::vector<std::string> query_tokens(std::int64_t batch) const;
  std::vector<std::string> key_tokens(std::int64_t batch) const;
};

struct AttendInputs {
  AttendTensor query;
  AttendTensor key;
  AttendTensor value;
  TensorLayout layout;
  ProblemShape shape;
  TensorView lse = {};  ///< [batch, q_heads, q_len], of a recording; otherwise undefined
  std::optional<RecordedSource> source = {};  ///< set if the inputs come from a recording

  /// Returns "q.npy to k.npy", or "layers.3 of run.safetensors".
  std::string words() const;
  /// Returns the index in the model of a query head.
  std::int64_t model_head(std::int64_t head) const {
    return source ? source->attention.model_head(head) : head;
  }
  /// Returns the inputs for a map of `keys` keys. The lse of a recording saves nothing if these are
  /// all keys: one fused pass, which computes it, is faster than recomputed rectangles. Weights of
  /// 16-bit numbers keep it, because a recording may have rounded query and key, but not lse.
  WeightInputs for_map(std::int64_t keys) const {
    const bool rounded = dtype_size(query.view.dtype()) < 4;
    return {query.view, key.view, keys == shape.kv_len && !rounded ? TensorView() : lse};
  }
  std::int64_t head_dim() const { return query.view.extent(3); }
  std::int64_t value_dim() const { return value.view.extent(3); }
  bool is_float64() const { return query.view.dtype() == DType::kFloat64; }
};

/// Whether the value tensor is required. If only weights are computed, the value is optional, and
/// the key tensor stands in for a missing one.
enum class ValueWish : std::uint8_t { kNeeded, kIfGiven };

/// Returns an attention of a recording as inputs. Throws InvalidArgument if values are needed, but
/// were not recorded.
AttendInputs recorded_inputs(const Recording& recording, const RecordedAttention& attention,
                             ValueWish wish = ValueWish::kIfGiven);

/// Reads and validates the inputs. Throws InvalidArgument or IoError with a message that names the
/// option and file, the expected and the actual value.
AttendInputs read_inputs(const AttendArguments& arguments, ValueWish wish = ValueWish::kNeeded);

template <class Pointee>
BasicTensorView<Pointee> TensorLayout::seen(const BasicTensorView<Pointee>& tensor) const {
  const BasicTensorView<Pointee> heads_first =
      length_first && rank > 2 ? tensor.transposed(rank - 3, rank - 2) : tensor;
  // Missing dimensions have extent 1 and the strides of a contiguous tensor.
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
