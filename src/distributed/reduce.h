// SPDX-License-Identifier: Apache-2.0
//
// Numbers of all ranks combined into one set of numbers, which all ranks get.

#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "fovea/distributed.h"

namespace fovea::distributed {

/// Returns the bytes of a contiguous tensor.
inline std::span<std::byte> bytes_in(Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.view().data()),
          static_cast<std::size_t>(tensor.size()) * dtype_size(tensor.dtype())};
}

/// Waits for an exchange.
inline void exchange_now(Transport& transport, const Exchange& exchange) {
  transport.begin_exchange(exchange);
  while (!transport.wait(std::chrono::hours(1))) {
  }
}

/// Replaces the numbers of every rank by combine(... combine(combine(rank 0, rank 1), rank 2) ...).
/// The order is fixed, so that rounding is. All ranks have as many numbers. Collective.
template <class T, class Combine>
void reduce(Transport& transport, std::span<T> numbers, const Combine& combine) {
  const int rank = transport.rank(), last = transport.size() - 1;
  if (last == 0 || numbers.empty()) return;
  const std::span<std::byte> bytes = std::as_writable_bytes(numbers);
  if (rank > 0) {
    std::vector<T> before(numbers.size());
    exchange_now(transport,
                 {.from = rank - 1, .receive = std::as_writable_bytes(std::span(before))});
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = combine(before[i], numbers[i]);
  }
  // The result returns on the same way.
  if (rank < last) {
    exchange_now(transport, {.to = rank + 1, .send = bytes});
    exchange_now(transport, {.from = rank + 1, .receive = bytes});
  }
  if (rank > 0) exchange_now(transport, {.to = rank - 1, .send = bytes});
}

}  // namespace fovea::distributed
