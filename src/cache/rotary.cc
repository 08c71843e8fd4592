// SPDX-License-Identifier: Apache-2.0
//
// Validation for rotary embedding (fovea/rotary.h). The rotation itself is in rows.cc.

#include "fovea/rotary.h"

#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cache/rows.h"
#include "core/fail.h"
#include "core/tensor_memory.h"

namespace fovea {
namespace {

Memory check_rows(const TensorView& tensor, std::string_view name) {
  if (!tensor.defined() || tensor.rank() < 2) {
    fail_argument(name, "expected [..., length, dim], got {}",
                  tensor.defined() ? to_string(tensor.shape()) : "nothing");
  }
  if (!is_float(tensor.dtype())) {
    fail_argument(name, "expected float32, float64, float16 or bfloat16, got {}",
                  dtype_name(tensor.dtype()));
  }
  return memory_of(tensor, name);
}

/// Returns whether two tensors of the same shape view the same memory with the same layout.
bool same_elements(const TensorView& a, const TensorView& b) {
  if (a.data() != b.data() || a.dtype() != b.dtype()) return false;
  for (int dim = 0; dim < a.rank(); ++dim) {
    if (a.extent(dim) > 1 && a.strides()[dim] != b.strides()[dim]) return false;
  }
  return true;
}

/// Checks the tensors and returns the memory range of `target`.
Memory check_tensors(const TensorView& source, const TensorView& target) {
  const Memory read = check_rows(source, "source");
  const Memory written = check_rows(target, "target");
  if (target.shape() != source.shape()) {
    fail_argument("target", "expected the shape of source = {}, got {}", to_string(source.shape()),
                  to_string(target.shape()));
  }
  if (!elements_are_distinct(target)) {
    fail_argument("target",
                  "expected an element in memory for each index, got strides {} for shape {}",
                  to_string(target.strides()), to_string(target.shape()));
  }
  if (written.overlaps(read) && !same_elements(source, target)) {
    fail_argument("target",
                  "expected memory of its own, or source itself, got memory that overlaps source");
  }
  return written;
}

void check_position(std::int64_t position, std::string_view name) {
  if (position < -kMaxPosition || position > kMaxPosition) {
    fail_argument(name, "expected positions from {} to {}, got {}", -kMaxPosition, kMaxPosition,
                  position);
  }
}

void check_positions(const TensorView& positions, const TensorView& source, const Memory& written) {
  const std::int64_t length = source.extent(source.rank() - 2);
  const bool per_item = source.rank() > 2;
  const bool fits = positions.defined() && positions.dtype() == DType::kInt64 &&
                    (positions.shape() == Shape{length} ||
                     (per_item && positions.shape() == Shape{source.extent(0), length}));
  if (!fits) {
    const std::string expected =
        per_item ? fmt::format("[{}] or [{}, {}]", length, source.extent(0), length)
                 : fmt::format("[{}]", length);
    fail_argument("positions", "expected int64 {}, got {}", expected,
                  positions.defined() ? fmt::format("{} {}", dtype_name(positions.dtype()),
                                                    to_string(positions.shape()))
                                      : "nothing");
  }
  if (memory_of(positions, "positions").overlaps(written)) {
    fail_argument("target",
                  "expected memory of its own, or source itself, got memory that overlaps "
                  "positions");
  }
  for_each_index(positions.shape(), [&](const Index& at) {
    check_position(positions.at<std::int64_t>(at), "positions");
  });
}

}  // namespace

std::vector<double> rotary_inverse_frequencies(double base, std::int64_t dims) {
  if (dims < 0 || dims % 2 != 0) {
    fail_argument("rotary", "expected an even number of dims to rotate, got {}", dims);
  }
  if (!(base > 0.0) || !std::isfinite(base)) {
    fail_argument("rotary", "expected a base above 0, got {}", base);
  }
  std::vector<double> result(static_cast<std::size_t>(dims / 2));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  }
  return result;
}

void apply_rotary(const TensorView& source, std::int64_t first_position, const Rotary& rotary,
                  const MutableTensorView& target) {
  check_tensors(source, target);
  check_position(first_position, "first_position");
  // One past the last position. The sum cannot overflow: both terms are already checked.
  check_position(first_position + source.extent(source.rank() - 2), "first_position + length");
  Rotation rotation(rotary, source.extent(source.rank() - 1));
  write_rows(source, target, &rotation, {.first = first_position});
}

void apply_rotary(const TensorView& source, const TensorView& positions, const Rotary& rotary,
                  const MutableTensorView& target) {
  const Memory written = check_tensors(source, target);
  check_positions(positions, source, written);
  Rotation rotation(rotary, source.extent(source.rank() - 1));
  write_rows(source, target, &rotation, {.given = positions});
}

}  // namespace fovea
