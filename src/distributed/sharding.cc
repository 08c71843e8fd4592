// SPDX-License-Identifier: Apache-2.0
//
// Sharding (fovea/distributed.h): which rank owns which positions.

#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "fovea/distributed.h"

#include "core/fail.h"

namespace fovea::distributed {
namespace {

void check_division(std::int64_t length, int ranks) {
  if (length < 0) fail_argument("length", "expected 0 or more, got {}", length);
  if (ranks < 1) fail_argument("ranks", "expected 1 or more, got {}", ranks);
}

/// Returns floor(part * length / parts), without overflow.
std::int64_t cut(std::int64_t length, std::int64_t part, std::int64_t parts) {
  return length / parts * part + length % parts * part / parts;
}

}  // namespace

Sharding Sharding::contiguous(std::int64_t length, int ranks) {
  check_division(length, ranks);
  Sharding result;
  result.ranges_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    result.add(rank, {cut(length, rank, ranks), cut(length, rank + 1, ranks)});
  }
  result.text_ = fmt::format("contiguous({}, {})", length, ranks);
  return result;
}

Sharding Sharding::zigzag(std::int64_t length, int ranks) {
  check_division(length, ranks);
  Sharding result;
  result.ranges_.resize(static_cast<std::size_t>(ranks));
  const std::int64_t chunks = std::int64_t{2} * ranks;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    result.add(static_cast<int>(std::min(chunk, chunks - 1 - chunk)),
               {cut(length, chunk, chunks), cut(length, chunk + 1, chunks)});
  }
  result.text_ = fmt::format("zigzag({}, {})", length, ranks);
  return result;
}

Sharding Sharding::lengths(const std::vector<std::int64_t>& lengths) {
  if (lengths.empty()) fail_argument("lengths", "expected one per rank, got none");
  Sharding result;
  result.ranges_.resize(lengths.size());
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    check_division(lengths[rank], 1);
    if (lengths[rank] > std::numeric_limits<std::int64_t>::max() - result.length_) {
      fail_argument("lengths", "expected a sum that int64 holds, got {} after {}", lengths[rank],
                    result.length_);
    }
    result.add(static_cast<int>(rank), {result.length_, result.length_ + lengths[rank]});
  }
  result.text_ = fmt::format("lengths({})", fmt::join(lengths, ", "));
  return result;
}

Sharding Sharding::part(PositionRange range) const {
  if (range.begin < 0 || range.begin > range.end || range.end > length_) {
    fail_argument("range", "expected one within {} positions, got {} to before {}", length_,
                  range.begin, range.end);
  }
  Sharding result;
  result.ranges_.resize(ranges_.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    for (const PositionRange& own : ranges(rank)) {
      const std::int64_t begin = std::max(own.begin, range.begin);
      const std::int64_t end = std::min(own.end, range.end);
      if (begin < end) result.add(rank, {begin - range.begin, end - range.begin});
    }
  }
  result.text_ = fmt::format("positions {} to before {} of {}", range.begin, range.end, text_);
  return result;
}

void Sharding::add(int rank, PositionRange range) {
  length_ += range.size();
  if (range.size() == 0) return;
  auto& own = ranges_[static_cast<std::size_t>(rank)];
  if (!own.empty() && own.back().end == range.begin) {
    own.back().end = range.end;
  } else {
    own.push_back(range);
  }
}

const std::vector<PositionRange>& Sharding::ranges(int rank) const {
  if (rank < 0 || rank >= ranks()) {
    fail_argument("rank", "expected 0 or more and less than {}, got {}", ranks(), rank);
  }
  return ranges_[static_cast<std::size_t>(rank)];
}

std::int64_t Sharding::length(int rank) const {
  std::int64_t sum = 0;
  for (const PositionRange& range : ranges(rank)) sum += range.size();
  return sum;
}

int Sharding::owner(std::int64_t position) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    for (const PositionRange& range : ranges(rank)) {
      if (range.begin <= position && position < range.end) return rank;
    }
  }
  fail_argument("position", "expected 0 or more and less than {}, got {}", length_, position);
}

std::int64_t Sharding::index(std::int64_t position) const {
  std::int64_t before = 0;
  for (const PositionRange& range : ranges(owner(position))) {
    if (position < range.end) return before + position - range.begin;
    before += range.size();
  }
  return before;  // not reached: the owner's ranges contain the position
}

}  // namespace fovea::distributed
