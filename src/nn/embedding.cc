// SPDX-License-Identifier: Apache-2.0
//
// Token embeddings and position embeddings (fovea/nn/embedding.h).

#include "fovea/nn/embedding.h"

#include <cmath>
#include <cstddef>
#include <cstring>

#include "fovea/error.h"

#include "core/fail.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

/// Throws InvalidArgument unless the tokens are contiguous int64 from 0 to count - 1.
void check(const TensorView& tokens, std::int64_t count) {
  if (!tokens.defined() || tokens.dtype() != DType::kInt64) {
    fail("tokens: expected int64, got {}", tokens.defined() ? dtype_name(tokens.dtype()) : "none");
  }
  if (tokens.size() > 0 && tokens.strides() != contiguous_strides(tokens.shape())) {
    throw InvalidArgument("tokens: expected contiguous rows");
  }
  const auto* const numbers = static_cast<const std::int64_t*>(tokens.data());
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    if (numbers[i] < 0 || numbers[i] >= count) {
      fail("tokens: expected 0 to {}, got {}", count - 1, numbers[i]);
    }
  }
}

}  // namespace

Embedding::Embedding(const Scope& scope, std::int64_t count, std::int64_t width,
                     std::optional<std::int64_t> padding)
    : width_(width), padding_(padding), weight_(scope.add_normal("weight", {count, width}, 1.0)) {
  if (!padding) return;
  if (*padding < 0 || *padding >= count) {
    fail("padding: expected 0 to {}, got {}", count - 1, *padding);
  }
  for (std::int64_t c = 0; c < width; ++c) set_value(weight_.value, {*padding, c}, 0.0);
}

MutableTensorView Embedding::forward(const TensorView& tokens) {
  check(tokens, weight_.value.extent(0));
  const std::int64_t* const numbers = copy_numbers(tokens, tokens_);
  Shape shape = tokens.shape();
  shape.push_back(width_);
  const MutableTensorView y = y_.of(weight_.value.dtype(), shape);
  const std::size_t bytes = static_cast<std::size_t>(width_) * dtype_size(y.dtype());
  const auto* const table = static_cast<const std::byte*>(TensorView(weight_.value).data());
  for_each_rows(tokens.size(), width_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<std::byte*>(y.data()) + static_cast<std::size_t>(i) * bytes,
                  table + static_cast<std::size_t>(numbers[i]) * bytes, bytes);
    }
  });
  return y;
}

void Embedding::backward(const TensorView& grad_y) {
  const DType dtype = weight_.value.dtype();
  const TensorView grad = as_rows_of(grad_y, dtype, y_.last().shape(), "grad_y");
  const auto* const numbers = static_cast<const std::int64_t*>(tokens_.last().data());
  with_real(dtype, [&](auto zero) {
    using Real = decltype(zero);
    Real* const sums = weight_.gradient.span<Real>().data();
    // Columns, not rows, are distributed over threads, because many rows may hold the same token.
    for_each_range(width_, 32, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < grad.extent(0); ++i) {
        if (numbers[i] == padding_) continue;
        Real* const to = sums + numbers[i] * width_;
        const Real* const from = row<Real>(grad, i);
        for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
      }
    });
  });
}

Tensor sinusoidal_positions(std::int64_t length, std::int64_t width, DType dtype) {
  if (!is_float(dtype)) fail("dtype: expected a type of floats, got {}", dtype_name(dtype));
  Tensor table(dtype, {length, width});
  for_each_index(table.shape(), [&](const Index& at) {
    const double angle =
        static_cast<double>(at[0]) /
        std::pow(10000.0, static_cast<double>(at[1] / 2 * 2) / static_cast<double>(width));
    set_value(table, at, at[1] % 2 == 0 ? std::sin(angle) : std::cos(angle));
  });
  return table;
}

Positions::Positions(const Scope& scope, PositionKind kind, std::int64_t max_length,
                     std::int64_t width)
    : kind_(kind), max_length_(max_length), width_(width) {
  if (kind == PositionKind::kSinusoidal) {
    table_ = sinusoidal_positions(max_length, width, scope.dtype());
  } else if (kind == PositionKind::kLearned) {
    weight_ = &scope.add_normal("weight", {max_length, width}, 0.02);
  }
}

void Positions::forward(const MutableTensorView& x, std::int64_t first) {
  if (kind_ == PositionKind::kNone) return;
  const TensorView table = weight_ != nullptr ? TensorView(weight_->value) : TensorView(table_);
  as_rows(x, table.dtype(), width_, "x");
  if (x.rank() != 3) {
    fail("x: expected [batch, length, width], got {}", to_string(x.shape()));
  }
  const std::int64_t length = x.extent(1);
  if (first < 0 || length > max_length_ - first) {
    fail("x: expected positions within {}, got {} from {} on", max_length_, length, first);
  }
  shape_ = x.shape();
  first_ = first;
  with_real(x.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    Real* const to = static_cast<Real*>(x.data());
    const Real* const from = row<Real>(table, first);
    for_each_rows(x.extent(0), length * width_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        Real* const rows = to + b * length * width_;
        for (std::int64_t i = 0; i < length * width_; ++i) rows[i] += from[i];
      }
    });
  });
}

void Positions::backward(const TensorView& grad_y) {
  if (weight_ == nullptr) return;
  as_rows_of(grad_y, weight_->value.dtype(), shape_, "grad_y");
  // Each element of each position is one column; each column is summed over the batch.
  const std::int64_t numbers = grad_y.extent(1) * width_;
  add_column_sums({grad_y.data(), grad_y.dtype(), {grad_y.extent(0), numbers}, {numbers, 1}},
                  MutableTensorView(weight_->gradient.view().address({first_, 0}), grad_y.dtype(),
                                    {numbers}, {1}));
}

}  // namespace fovea::nn
