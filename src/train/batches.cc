// SPDX-License-Identifier: Apache-2.0
//
// Batches of examples (batches.h).

#include "train/batches.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "fovea/random.h"

#include "train/vocabulary.h"

namespace fovea::train {
namespace {

constexpr std::int64_t kWindow = 20;  // batches

template <class Item>
void shuffle(std::span<Item> items, RandomState& random) {  // Fisher-Yates
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1],
              items[static_cast<std::size_t>(random.randint(0, static_cast<std::int64_t>(i)))]);
  }
}

/// Returns the maximum of length(number) over all `numbers`.
template <class Length>
std::int64_t longest(std::span<const std::int64_t> numbers, const Length& length) {
  std::size_t most = 0;
  for (const std::int64_t number : numbers) most = std::max(most, length(number));
  return static_cast<std::int64_t>(most);
}

}  // namespace

Batch make_batch(std::span<const Example> examples, std::span<const std::int64_t> numbers) {
  const auto at = [&](std::int64_t number) -> const Example& {
    return examples[static_cast<std::size_t>(number)];
  };
  const auto count = static_cast<std::int64_t>(numbers.size());
  const std::int64_t source = longest(numbers, [&](std::int64_t n) { return at(n).source.size(); });
  const std::int64_t target = longest(numbers, [&](std::int64_t n) { return at(n).target.size(); });
  Batch batch{Tensor(DType::kInt64, {count, source}),
              {},
              Tensor(DType::kInt64, {count, target}),
              Tensor(DType::kInt64, {count, target})};
  static_assert(kPadding == 0);  // new tensors are zero
  for (std::int64_t b = 0; b < count; ++b) {
    const Example& example = at(numbers[static_cast<std::size_t>(b)]);
    const auto length = static_cast<std::int64_t>(example.source.size());
    std::ranges::copy(example.source, batch.source.span<std::int64_t>().begin() + b * source);
    std::ranges::copy(example.target, batch.next.span<std::int64_t>().begin() + b * target);
    batch.target.at<std::int64_t>({b, 0}) = kBegin;
    std::copy(example.target.begin(), example.target.end() - 1,
              batch.target.span<std::int64_t>().begin() + b * target + 1);
    batch.source_lengths.push_back(length);
    batch.tokens += length + static_cast<std::int64_t>(example.target.size());
  }
  return batch;
}

std::vector<std::vector<std::int64_t>> batches_of_epoch(std::span<const Example> examples,
                                                        std::int64_t size, std::uint64_t seed,
                                                        std::int64_t epoch) {
  RandomState random((seed * 1'000'003 + static_cast<std::uint64_t>(epoch)) & 0xFFFFFFFF);
  std::vector<std::int64_t> order(examples.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(std::span(order), random);
  const auto length = [&](std::int64_t number) {
    const Example& example = examples[static_cast<std::size_t>(number)];
    return std::pair(example.source.size(), example.target.size());
  };
  std::vector<std::vector<std::int64_t>> batches;
  const auto step = static_cast<std::size_t>(size),
             window = static_cast<std::size_t>(size * kWindow);
  for (std::size_t begin = 0; begin < order.size(); begin += window) {
    const auto part = std::span(order).subspan(begin, std::min(window, order.size() - begin));
    std::ranges::stable_sort(part, {}, length);
    for (std::size_t first = 0; first < part.size(); first += step) {
      const auto numbers = part.subspan(first, std::min(step, part.size() - first));
      batches.emplace_back(numbers.begin(), numbers.end());
    }
  }
  shuffle(std::span(batches), random);
  return batches;
}

}  // namespace fovea::train
