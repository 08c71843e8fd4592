// SPDX-License-Identifier: Apache-2.0
//
// Contiguous tensors in the dtype that the reference computes in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "fovea/tensor.h"

namespace fovea::reference {

/// The elements of a view as contiguous numbers of type Real. Copies them only if necessary.
template <class Real>
class Contiguous {
 public:
  Contiguous() = default;
  explicit Contiguous(const TensorView& source) : view_(source) {
    const bool ready = source.dtype() == dtype_of<Real>() &&
                       source.strides() == contiguous_strides(source.shape());
    if (!ready) {
      owner_ = std::make_shared<const Tensor>(convert(source, dtype_of<Real>()));
      view_ = owner_->view();
    }
    elements_ = {static_cast<const Real*>(view_.data()), static_cast<std::size_t>(view_.size())};
  }
  explicit Contiguous(Tensor&& owner) : Contiguous(owner.view()) {
    if (owner_ == nullptr) owner_ = std::make_shared<const Tensor>(std::move(owner));
  }

  /// Returns false if this object was constructed without a tensor or from an undefined view.
  bool defined() const { return view_.defined(); }
  const Shape& shape() const { return view_.shape(); }
  std::span<const Real> span() const { return elements_; }

 private:
  std::shared_ptr<const Tensor> owner_;  // null if the elements belong to the caller
  TensorView view_;
  std::span<const Real> elements_;  // stored, so that its size is not computed again for every row
};

/// Returns one row of a contiguous [batch, heads, length, dim] tensor.
template <class Real>
std::span<Real> row_of(std::span<Real> elements, const Shape& shape, std::int64_t batch,
                       std::int64_t head, std::int64_t position) {
  const std::int64_t number = (batch * shape[1] + head) * shape[2] + position;
  return elements.subspan(static_cast<std::size_t>(number * shape[3]),
                          static_cast<std::size_t>(shape[3]));
}
template <class Real>
std::span<const Real> row_of(const Contiguous<Real>& tensor, std::int64_t batch, std::int64_t head,
                             std::int64_t position) {
  return row_of(tensor.span(), tensor.shape(), batch, head, position);
}

/// Returns rows times weights; see project().
template <class Real>
Tensor multiply(const Contiguous<Real>& rows, const Contiguous<Real>& weights) {
  const auto dim = static_cast<std::size_t>(weights.shape()[0]);
  const auto columns = static_cast<std::size_t>(weights.shape()[1]);
  Shape shape = rows.shape();
  shape[shape.rank() - 1] = weights.shape()[1];
  Tensor result(dtype_of<Real>(), shape);
  const std::span<const Real> w = weights.span();
  const std::span<const Real> x = rows.span();
  const std::span<Real> y = result.span<Real>();
  for (std::size_t row = 0; row * dim < x.size(); ++row) {
    for (std::size_t d = 0; d < dim; ++d) {
      // Despite the loop order, each column's sum is accumulated from the first dimension to the
      // last.
      for (std::size_t column = 0; column < columns; ++column) {
        y[row * columns + column] += x[row * dim + d] * w[d * columns + column];
      }
    }
  }
  return result;
}

}  // namespace fovea::reference
