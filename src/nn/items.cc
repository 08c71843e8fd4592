// SPDX-License-Identifier: Apache-2.0
//
// Batches of sequences: checks, and copies of rows (items.h).

#include "nn/items.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "core/fail.h"
#include "nn/rows.h"

namespace fovea::nn {

TensorView as_rows_of_items(const TensorView& tensor, DType dtype, std::int64_t batch,
                            std::int64_t width, std::string_view name) {
  const TensorView rows = as_rows(tensor, dtype, width, name);
  if (tensor.rank() != 3 || (batch >= 0 && tensor.extent(0) != batch)) {
    fail("{}: expected [{}, length, {}], got {}", name, batch < 0 ? "batch" : fmt::to_string(batch),
         width, to_string(tensor.shape()));
  }
  return rows;
}

void keep_lengths(std::span<const std::int64_t> lengths, std::int64_t batch, std::int64_t longest,
                  std::vector<std::int64_t>& kept) {
  if (lengths.empty()) {
    kept.assign(static_cast<std::size_t>(batch), longest);
    return;
  }
  if (static_cast<std::int64_t>(lengths.size()) != batch) {
    fail("lengths: expected none or one for each of {} items, got {}", batch, lengths.size());
  }
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > longest) {
      fail("lengths: expected lengths from 0 to {}, got {}", longest, length);
    }
  }
  kept.assign(lengths.begin(), lengths.end());
}

namespace {

/// Calls work(row of from, row of to) for every row, in parallel.
template <class Work>
void for_each_pair(const TensorView& from, const MutableTensorView& to, const Work& work) {
  with_real(to.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    for_each_rows(to.extent(0), to.extent(1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) work(row<Real>(from, r), row<Real>(to, r));
    });
  });
}

}  // namespace

void copy_rows(const TensorView& from, const MutableTensorView& to) {
  for_each_pair(from, to, [&](const auto* source, auto* target) {
    std::copy_n(source, to.extent(1), target);
  });
}

void add_rows(const TensorView& from, const MutableTensorView& to) {
  for_each_pair(from, to, [&](const auto* source, auto* target) {
    for (std::int64_t i = 0; i < to.extent(1); ++i) target[i] += source[i];
  });
}

void zero_rows(const MutableTensorView& rows) {
  for_each_pair(rows, rows, [&](const auto*, auto* target) {
    std::fill_n(target, rows.extent(1), std::remove_pointer_t<decltype(target)>{0});
  });
}

}  // namespace fovea::nn
