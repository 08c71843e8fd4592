// SPDX-License-Identifier: Apache-2.0
//
// Decoding token by token (fovea/nn/transformer_decoding.h).

#include "fovea/nn/transformer_decoding.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "fovea/error.h"

#include "core/fail.h"

namespace fovea::nn {
namespace {

/// Returns batch items `rows` of the tensor `of`, [batch, heads, ...]. `of` may have any strides in
/// its first two dimensions but must be contiguous in the others.
Tensor items(const TensorView& of, std::span<const std::int64_t> rows) {
  Shape shape = of.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor result(of.dtype(), shape);
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const TensorView item = of[rows[static_cast<std::size_t>(i)]];
    const MutableTensorView to = result.view()[i];
    for (std::int64_t head = 0; head < item.extent(0); ++head) {
      std::memcpy(to[head].data(), item[head].data(),
                  static_cast<std::size_t>(item[head].size()) * dtype_size(of.dtype()));
    }
  }
  return result;
}

}  // namespace

TransformerDecoding::TransformerDecoding(Transformer& transformer, const TensorView& memory,
                                         std::int64_t sequences,
                                         const std::vector<std::int64_t>& source_lengths)
    : transformer_(transformer) {
  if (memory.rank() != 3 || (memory.extent(0) != sequences && memory.extent(0) != 1)) {
    fail("memory: expected [{} or 1, kv_len, width], got {}", sequences, to_string(memory.shape()));
  }
  if (!source_lengths.empty()) memory_mask_ = key_lengths(source_lengths);
  for (TransformerDecoderLayer& layer : transformer.decoder_layers()) {
    caches_.push_back(layer.begin(memory, sequences));
  }
}

MutableTensorView TransformerDecoding::step(const TensorView& x) {
  TensorView y = x;
  std::size_t number = 0;
  for (TransformerDecoderLayer& layer : transformer_.decoder_layers()) {
    y = layer.step(y, caches_[number++], memory_mask_);
  }
  length_ += x.extent(1);
  return transformer_.decoder_norm().forward(y);
}

void TransformerDecoding::reorder(std::span<const std::int64_t> rows) {
  for (TransformerDecoderLayer::Caches& caches : caches_) {
    if (caches.memory.options().batch != 1) {
      throw InvalidArgument("rows: expected a memory of one item to reorder sequences over");
    }
    KvCacheOptions options = caches.own.options();
    for (const std::int64_t row : rows) {
      if (row < 0 || row >= options.batch) {
        fail("rows: expected 0 to {}, got {}", options.batch - 1, row);
      }
    }
    options.batch = static_cast<std::int64_t>(rows.size());
    KvCache chosen(options);
    chosen.append(items(caches.own.key(), rows), items(caches.own.value(), rows));
    caches.own = std::move(chosen);
  }
}

Tensor TransformerDecoding::weights() const {
  Tensor mean;
  double count = 0.0;
  for (const TransformerDecoderLayer& layer : std::as_const(transformer_).decoder_layers()) {
    const Tensor weights = layer.cross_attention().weights();  // [sequences, heads, 1, kv_len]
    if (!mean.defined()) {
      mean = Tensor(DType::kFloat32, {weights.extent(0), weights.extent(3)});
    }
    count += static_cast<double>(weights.extent(1));
    for_each_index(weights.shape(), [&](const Index& at) {
      mean.at<float>({at[0], at[3]}) += weights.at<float>(at);
    });
  }
  if (mean.defined()) {
    for (float& weight : mean.span<float>()) weight = static_cast<float>(weight / count);
  }
  return mean;
}

}  // namespace fovea::nn
