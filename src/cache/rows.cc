// SPDX-License-Identifier: Apache-2.0
//
// Conversion and rotation of rows (rows.h), in a buffer of one row in float32 or float64. With the
// buffer, one loop per source type and one per target type replace a loop per pair of types. The
// buffer also makes it possible to rotate a row in place.

#include "cache/rows.h"

#include <cmath>
#include <cstring>
#include <span>

#include "core/element_type.h"
#include "core/fail.h"

namespace fovea {
namespace {

template <class T>
void load(const void* from, DType dtype, std::int64_t stride, std::span<T> row) {
  with_element(dtype, [&](auto zero) {
    using Element = decltype(zero);
    const auto* at = static_cast<const Element*>(from);
    for (T& x : row) {
      x = static_cast<T>(*at);
      at += stride;
    }
  });
}

template <class T>
void store(std::span<const T> row, void* to, DType dtype, std::int64_t stride) {
  with_element(dtype, [&](auto zero) {
    using Element = decltype(zero);
    auto* at = static_cast<Element*>(to);
    for (const T x : row) {
      *at = static_cast<Element>(x);
      at += stride;
    }
  });
}

template <class T>
void write_rows_as(const TensorView& source, const MutableTensorView& target, Rotation* rotation,
                   const Positions& positions) {
  const int rank = source.rank();
  const std::int64_t dim = source.extent(rank - 1);
  const std::int64_t source_stride = source.strides()[rank - 1];
  const std::int64_t target_stride = target.strides()[rank - 1];
  const bool same = rotation == nullptr && source.dtype() == target.dtype() &&
                    (dim == 1 || (source_stride == 1 && target_stride == 1));
  const Shape heads(std::span(source.shape().begin(), static_cast<std::size_t>(rank - 2)));
  std::vector<T> row(static_cast<std::size_t>(dim));
  // Heads are the inner loop, so that the angles of a position are computed once.
  for (std::int64_t token = 0; token < source.extent(rank - 2); ++token) {
    for_each_index(heads, [&](const Index& head) {
      Index at = head;
      at.push_back(token);
      at.push_back(0);
      if (same) {
        std::memcpy(target.address(at), source.address(at),
                    static_cast<std::size_t>(dim) * dtype_size(source.dtype()));
        return;
      }
      load(source.address(at), source.dtype(), source_stride, std::span<T>(row));
      if (rotation != nullptr) {
        rotation->move_to(positions.at(head.rank() > 0 ? head[0] : 0, token));
        rotation->rotate(row.data());
      }
      store(std::span<const T>(row), target.address(at), target.dtype(), target_stride);
    });
  }
}

}  // namespace

Rotation::Rotation(const Rotary& rotary, std::int64_t head_dim) {
  if (rotary.dims < 0 || rotary.dims > head_dim) {
    fail_argument("rotary", "expected dims from 0 (all) to head_dim = {}, got {}", head_dim,
                  rotary.dims);
  }
  const std::int64_t dims = rotary.dims == 0 ? head_dim : rotary.dims;
  if (dims % 2 != 0) {
    fail_argument("rotary", "expected an even number of dims to rotate, got {}{}", dims,
                  rotary.dims == 0 ? ", all of head_dim" : "");
  }
  if (rotary.inverse_frequencies.empty()) {
    frequencies_ = rotary_inverse_frequencies(rotary.base, dims);
  } else {
    frequencies_ = rotary.inverse_frequencies;
    if (static_cast<std::int64_t>(frequencies_.size()) != dims / 2) {
      fail_argument("rotary", "expected {} inverse_frequencies for {} dims, got {}", dims / 2, dims,
                    frequencies_.size());
    }
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      if (!std::isfinite(frequencies_[i])) {
        fail_argument("rotary", "expected finite inverse_frequencies, got {} at {}",
                      frequencies_[i], i);
      }
    }
  }
  cosines_.resize(frequencies_.size());
  sines_.resize(frequencies_.size());
  if (rotary.pairs == Rotary::Pairs::kHalves) {
    partner_ = dims / 2;
    step_ = 1;
  }
}

void Rotation::move_to(std::int64_t position) {
  if (position_ == position) return;
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cosines_[i] = std::cos(angle);
    sines_[i] = std::sin(angle);
  }
  position_ = position;
}

template <class T>
void Rotation::rotate(T* row) const {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    T& first = row[static_cast<std::int64_t>(i) * step_];
    T& second = row[static_cast<std::int64_t>(i) * step_ + partner_];
    const auto cosine = static_cast<T>(cosines_[i]);
    const auto sine = static_cast<T>(sines_[i]);
    const T a = first;
    const T b = second;
    first = a * cosine - b * sine;
    second = b * cosine + a * sine;
  }
}

void write_rows(const TensorView& source, const MutableTensorView& target, Rotation* rotation,
                const Positions& positions) {
  if (source.size() == 0) return;
  if (source.dtype() == DType::kFloat64 || target.dtype() == DType::kFloat64) {
    write_rows_as<double>(source, target, rotation, positions);
  } else {
    write_rows_as<float>(source, target, rotation, positions);
  }
}

}  // namespace fovea
