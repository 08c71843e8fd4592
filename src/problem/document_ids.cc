// SPDX-License-Identifier: Apache-2.0
//
// Groups of document ids (document_ids.h): their bounds, and a running count of descents.

#include "problem/document_ids.h"

#include <algorithm>

namespace fovea {
namespace {

DocumentIds::Bounds bounds_of(std::span<const std::int64_t> ids) {
  const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
  return {*least, *most};
}

std::span<const std::int64_t> part(std::span<const std::int64_t> ids, std::int64_t begin,
                                   std::int64_t end) {
  return ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace

DocumentIds::DocumentIds(const Tensor& ids) : shape_(ids.shape()) {
  // Ids are never read if the tensor is empty or if validate() rejects its rank.
  if (ids.size() == 0 || shape_.rank() < 1 || shape_.rank() > 2) return;
  const std::span<const std::int64_t> given = ids.span<std::int64_t>();
  ids_.assign(given.begin(), given.end());
  length_ = shape_[shape_.rank() - 1];
  const std::int64_t rows = shape_.rank() == 1 ? 1 : shape_[0];
  groups_.reserve(static_cast<std::size_t>(rows * ((length_ + kGroup - 1) / kGroup)));
  for (std::int64_t number = 0; number < rows; ++number) {
    const std::span<const std::int64_t> all = row(number);
    std::int64_t descents = 0;
    for (std::int64_t begin = 0; begin < length_; begin += kGroup) {
      const auto group = part(all, begin, std::min(begin + kGroup, length_));
      if (begin > 0 && group[0] < all[static_cast<std::size_t>(begin - 1)]) ++descents;
      groups_.push_back({bounds_of(group), descents});
      for (std::size_t i = 1; i < group.size(); ++i) descents += group[i] < group[i - 1] ? 1 : 0;
    }
  }
}

DocumentIds DocumentIds::cut(std::int64_t batch, std::int64_t begin, std::int64_t count) const {
  if (count == 0) return DocumentIds(Tensor(DType::kInt64, {0}));
  return DocumentIds(Tensor::from({count}, part(row(batch), begin, begin + count)));
}

DocumentIds DocumentIds::cut(std::int64_t begin, std::int64_t count) const {
  Shape shape = shape_;
  shape[shape.rank() - 1] = count;
  Tensor ids(DType::kInt64, shape);
  const std::int64_t rows = count == 0 ? 0 : element_count(shape) / count;
  for (std::int64_t number = 0; number < rows; ++number) {
    std::ranges::copy(part(row(number), begin, begin + count),
                      ids.span<std::int64_t>().begin() + number * count);
  }
  return DocumentIds(ids);
}

std::int64_t DocumentIds::row_number(std::int64_t batch) const {
  return shape_.rank() == 1 || shape_[0] == 1 ? 0 : batch;
}

std::span<const std::int64_t> DocumentIds::row(std::int64_t batch) const {
  const std::int64_t begin = row_number(batch) * length_;
  return part(ids_, begin, begin + length_);
}

std::span<const DocumentIds::Group> DocumentIds::groups(std::int64_t batch) const {
  const auto count = static_cast<std::size_t>((length_ + kGroup - 1) / kGroup);
  return std::span(groups_).subspan(static_cast<std::size_t>(row_number(batch)) * count, count);
}

DocumentIds::Bounds DocumentIds::bounds(std::int64_t batch, std::int64_t begin,
                                        std::int64_t count) const {
  const std::span<const std::int64_t> all = row(batch);
  const std::span<const Group> grouped = groups(batch);
  const std::int64_t end = begin + count;
  const auto first_id = all[static_cast<std::size_t>(begin)];
  Bounds result{first_id, first_id};
  const auto add = [&](const Bounds& more) {
    result = {std::min(result.least, more.least), std::max(result.most, more.most)};
  };
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t group_end = std::min((at / kGroup + 1) * kGroup, length_);
    if (at % kGroup == 0 && group_end <= end) {
      add(grouped[static_cast<std::size_t>(at / kGroup)].bounds);
    } else {
      add(bounds_of(part(all, at, std::min(group_end, end))));
    }
    at = group_end;
  }
  return result;
}

bool DocumentIds::sorted(std::int64_t batch, std::int64_t begin, std::int64_t count) const {
  const std::span<const std::int64_t> all = row(batch);
  const std::span<const Group> grouped = groups(batch);
  const std::int64_t end = begin + count;
  // The descent counts cover the ids from the first one of group `first` to the first one of group
  // `last`. Only the ids before and after this range are compared individually.
  const std::int64_t first = (begin + kGroup - 1) / kGroup;
  const std::int64_t last = (end - 1) / kGroup;
  if (first > last) return std::ranges::is_sorted(part(all, begin, end));
  return grouped[static_cast<std::size_t>(first)].descents ==
             grouped[static_cast<std::size_t>(last)].descents &&
         std::ranges::is_sorted(part(all, begin, first * kGroup + 1)) &&
         std::ranges::is_sorted(part(all, last * kGroup, end));
}

}  // namespace fovea
