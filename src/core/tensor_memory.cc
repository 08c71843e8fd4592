// SPDX-License-Identifier: Apache-2.0
//
// Memory ranges of tensors (tensor_memory.h).

#include "core/tensor_memory.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <numeric>

#include "core/fail.h"

namespace fovea {
namespace {

/// Extent and absolute stride of one dimension.
struct Step {
  std::int64_t stride;
  std::int64_t extent;
};

/// The dimensions sorted by increasing absolute stride, without those of extent 1, whose stride has
/// no meaning.
class Steps {
 public:
  explicit Steps(const TensorView& tensor) {
    // From the last dimension, whose stride is usually the smallest: then nothing moves.
    for (int dim = tensor.rank() - 1; dim >= 0; --dim) {
      if (tensor.extent(dim) == 1) continue;
      const Step step = {std::abs(tensor.strides()[dim]), tensor.extent(dim)};
      std::size_t at = count_++;
      for (; at > 0 && steps_[at - 1].stride > step.stride; --at) steps_[at] = steps_[at - 1];
      steps_[at] = step;
    }
  }
  const Step* begin() const { return steps_.data(); }
  const Step* end() const { return steps_.data() + count_; }

 private:
  std::array<Step, kMaxRank> steps_;
  std::size_t count_ = 0;
};

/// Returns the size in bytes of a tensor in row-major order without gaps, which needs no other
/// check. Returns 0 for any other tensor.
std::int64_t row_major_bytes(const TensorView& tensor) {
  auto bytes = static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  std::int64_t step = 1;
  for (int dim = tensor.rank() - 1; dim >= 0; --dim) {
    const std::int64_t extent = tensor.extent(dim);
    if (extent == 1) continue;
    if (extent < 1 || tensor.strides()[dim] != step) return 0;
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxTensorBytes) return 0;
    step *= extent;
  }
  return tensor.data() == nullptr ? 0 : bytes;
}

}  // namespace

Memory memory_of(const TensorView& tensor, std::string_view name) {
  const auto at = reinterpret_cast<std::intptr_t>(tensor.data());
  if (const std::int64_t bytes = row_major_bytes(tensor); bytes > 0) {
    return {at, at + bytes, bytes, 0, true};
  }
  const std::int64_t elements = element_count(tensor.shape());
  for (const std::int64_t extent : tensor.shape()) {
    if (extent > kMaxTensorBytes) {
      fail_argument(name, "expected extents up to {}, got {}", kMaxTensorBytes,
                    to_string(tensor.shape()));
    }
  }
  if (elements == 0) return {};
  const auto size = static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  std::int64_t before = 0;
  std::int64_t after = size;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    std::int64_t reach = 0;
    const bool overflows =
        __builtin_mul_overflow(tensor.extent(dim) - 1, tensor.strides()[dim], &reach) ||
        __builtin_mul_overflow(reach, size, &reach) || reach > kMaxTensorBytes ||
        reach < -kMaxTensorBytes;
    if (overflows) {
      fail_argument(name, "expected strides that stay within memory, got {} for shape {}",
                    to_string(tensor.strides()), to_string(tensor.shape()));
    }
    (reach < 0 ? before : after) += reach;
  }
  if (tensor.data() == nullptr) {
    fail_argument(name, "expected data for shape {}, got a null pointer",
                  to_string(tensor.shape()));
  }
  Memory memory{at + before, at + after, size, 0, false};
  if ((after - before) / size == elements) {  // elements * size may overflow
    memory.run = after - before;              // a contiguous tensor
    return memory;
  }
  for (const Step& step : Steps(tensor)) {
    if (memory.period == 0 && step.stride * size == memory.run) {
      memory.run *= step.extent;
    } else {
      memory.period = std::gcd(memory.period, step.stride * size);
    }
  }
  return memory;
}

bool elements_are_distinct(const TensorView& tensor) {
  if (element_count(tensor.shape()) == 0) return true;
  std::int64_t reach = 0;
  for (const Step& step : Steps(tensor)) {
    if (step.stride <= reach) return false;
    reach += (step.extent - 1) * step.stride;
  }
  return true;
}

bool Memory::overlaps(const Memory& other) const {
  if (begin >= other.end || other.begin >= end) return false;
  const std::int64_t common = std::gcd(period, other.period);
  if (common == 0) return true;
  // Both patterns repeat every `common` bytes, so it suffices to compare their runs in one period.
  const std::int64_t apart = ((other.begin - begin) % common + common) % common;
  return run > apart || apart + other.run > common;
}

}  // namespace fovea
