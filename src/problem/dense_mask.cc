// SPDX-License-Identifier: Apache-2.0
//
// Dense masks (dense_mask.h). Elements are addressed by strides; contiguous runs are read eight
// elements at a time.

#include "problem/dense_mask.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "problem/broadcast.h"
#include "problem/part.h"

namespace fovea {
namespace {

/// The mask values found so far in a search.
struct Met {
  bool visible = false;
  bool hidden = false;

  bool both() const { return visible && hidden; }
};

/// Scans `count` contiguous elements, eight at a time, until both values have been found.
void look_at_run(const std::uint8_t* elements, std::int64_t count, Met& met) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  std::int64_t i = 0;
  for (; i + 8 <= count && !met.both(); i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, elements + i, sizeof eight);
    met.visible = met.visible || eight != 0;
    met.hidden = met.hidden || eight != kOnes;
  }
  for (; i < count && !met.both(); ++i) (elements[i] != 0 ? met.visible : met.hidden) = true;
}

/// The number of elements tested at once; constant, so that the compiler vectorises the test.
constexpr std::int64_t kRun = 64;

bool any_visible(const std::uint8_t* run) {
  std::uint8_t any = 0;
  for (std::int64_t i = 0; i < kRun; ++i) any |= run[i];
  return any != 0;
}
/// Returns the index of the first element that is not 0, or `count`.
std::int64_t first_visible(const std::uint8_t* elements, std::int64_t count) {
  if (count > 0 && elements[0] != 0) return 0;
  std::int64_t i = 0;
  while (i + kRun <= count && !any_visible(elements + i)) i += kRun;
  while (i < count && elements[i] == 0) ++i;
  return i;
}
/// Returns the index of the last element that is not 0, or -1.
std::int64_t last_visible(const std::uint8_t* elements, std::int64_t count) {
  if (count > 0 && elements[count - 1] != 0) return count - 1;
  std::int64_t i = count;
  while (i >= kRun && !any_visible(elements + i - kRun)) i -= kRun;
  while (i > 0 && elements[i - 1] == 0) --i;
  return i - 1;
}
bool all_visible(const std::uint8_t* elements, std::int64_t count) {
  return std::memchr(elements, 0, static_cast<std::size_t>(count)) == nullptr;
}

}  // namespace

DenseMask::DenseMask(TensorRef tensor)
    : tensor_(std::move(tensor)), strides_(broadcast_strides(tensor_)) {}

const std::uint8_t* DenseMask::element(const ScorePosition& at) const {
  return static_cast<const std::uint8_t*>(tensor_->data()) + at.batch * strides_[0] +
         at.head * strides_[1] + (at.query_start + at.query) * strides_[2] +
         (at.key_start + at.key) * strides_[3];
}

bool DenseMask::visible(const ScorePosition& at) const { return *element(at) != 0; }

Visibility DenseMask::classify(const ScoreBlock& block) const {
  const std::uint8_t* const first = element(block.first);
  std::int64_t line_stride = strides_[2];
  std::int64_t stride = strides_[3];
  std::int64_t lines = line_stride == 0 ? 1 : block.queries;
  std::int64_t count = stride == 0 ? 1 : block.keys;
  if (line_stride == 1 && stride != 1) {  // queries are contiguous: scan along queries
    std::swap(line_stride, stride);
    std::swap(lines, count);
  }
  Met met;
  for (std::int64_t line = 0; line < lines && !met.both(); ++line) {
    const std::uint8_t* const elements = first + line * line_stride;
    if (stride == 1) {
      look_at_run(elements, count, met);
    } else {
      for (std::int64_t i = 0; i < count && !met.both(); ++i) {
        look_at_run(elements + i * stride, 1, met);
      }
    }
  }
  if (met.both()) return Visibility::kSome;
  return met.visible ? Visibility::kAll : Visibility::kNone;
}

KeyRange DenseMask::key_range(const ScorePosition& first, std::int64_t count) const {
  const std::int64_t all = first.key + count;
  if (strides_[3] == 0) return {first.key, visible(first) ? all : first.key, true};
  if (strides_[3] != 1) return {first.key, all, false};
  const std::uint8_t* const elements = element(first);
  const std::int64_t end = last_visible(elements, count) + 1;
  const std::int64_t begin = first_visible(elements, end);
  return {first.key + begin, first.key + end, all_visible(elements + begin, end - begin)};
}

void DenseMask::fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const {
  const std::uint8_t* const elements = element(first);
  const std::int64_t stride = strides_[3];
  if (stride == 0) {
    std::memset(visible, *elements != 0 ? 1 : 0, static_cast<std::size_t>(count));
  } else if (stride == 1) {  // separate loop with constant stride, so that it is vectorised
    for (std::int64_t j = 0; j < count; ++j) visible[j] = elements[j] != 0 ? 1 : 0;
  } else {
    for (std::int64_t j = 0; j < count; ++j) visible[j] = elements[j * stride] != 0 ? 1 : 0;
  }
}

void DenseMask::validate(const ProblemShape& shape, std::span<const std::int64_t>) const {
  validate_broadcast(tensor_, shape, "dense mask");
}

DenseMask DenseMask::part(const PartSpan& span) const { return DenseMask(part_of(tensor_, span)); }

std::string DenseMask::to_string() const {
  return fmt::format("dense({})", fovea::to_string(tensor_->shape()));
}

}  // namespace fovea
