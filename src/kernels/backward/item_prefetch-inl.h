// SPDX-License-Identifier: Apache-2.0
//
// Prefetching during a work item of the backward pass: the inputs of the next group of queries and
// of the next item, and the gradients that the item updates.

#if defined(FOVEA_KERNELS_BACKWARD_ITEM_PREFETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_ITEM_PREFETCH_INL_H_
#undef FOVEA_KERNELS_BACKWARD_ITEM_PREFETCH_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_ITEM_PREFETCH_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "kernels/backward/backward.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/prefetcher.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Prefetches rows that start_item() and start_group() select. Each call of fetch() prefetches a
/// part of them. Call it once per panel of queries and visible tile of keys.
class BackwardPrefetch {
 public:
  BackwardPrefetch(const BackwardSetup& setup, const BackwardItem& item)
      : setup_(setup), item_(item) {}

  /// Starts to prefetch the keys and values of the next item, and the gradients of this item's
  /// `keys` keys. Each head of the item has `q_len` queries.
  void start_item(std::int64_t keys, std::int64_t q_len) {
    if (!setup_.forward.prefetches) return;
    const std::int64_t calls = item_.group * tiles_of(keys) * panels_of(q_len);
    const BackwardInputRows& next = item_.next;
    keys_.start(next.key, 0, next.keys, setup_.forward.head_dim, calls);
    values_.start(next.value, 0, next.keys, setup_.forward.value_dim, calls);
    key_sums_.start(item_.grad_key, 0, keys, setup_.forward.head_dim, calls);
    value_sums_.start(item_.grad_value, 0, keys, setup_.forward.value_dim, calls);
  }

  /// Starts to prefetch the query gradients of a group, and the queries of the next group. The
  /// group consists of `rows` queries of head `number` of the item, from query `first` on, and
  /// `tiles` tiles of keys. The next group consists of the `together` queries before `first`. If
  /// there are none, it is the first group of the next head or item.
  void start_group(const BackwardHead& head, std::int64_t number, std::int64_t first,
                   std::int64_t rows, std::int64_t together, std::int64_t tiles) {
    const std::int64_t calls = tiles * panels_of(rows);
    if (first >= together) {
      start_queries(head.forward.query, head.grad_context, first - together, together, calls);
    } else if (number + 1 < item_.group) {
      const BackwardHead next = item_.head(item_.heads_of, number + 1);
      const std::int64_t last = (next.q_len - 1) / together * together;
      start_queries(next.forward.query, next.grad_context, last, next.q_len - last, calls);
    } else {
      start_queries(item_.next.query, item_.next.grad_context, 0, item_.next.queries, calls);
    }
    const OutputRows sums{head.grad_query, head.grad_query_stride, DType::kFloat32};
    query_sums_.start(sums, first, rows, setup_.forward.head_dim, calls);
  }

  void fetch() {
    keys_.fetch();
    values_.fetch();
    queries_.fetch();
    grads_.fetch();
    query_sums_.fetch();
    key_sums_.fetch();
    value_sums_.fetch();
  }

 private:
  static std::int64_t panels_of(std::int64_t rows) {
    return (rows + kPanelLanes - 1) / kPanelLanes;
  }
  void start_queries(const InputRows& queries, const InputRows& grads, std::int64_t first,
                     std::int64_t rows, std::int64_t calls) {
    queries_.start(queries, first, rows, setup_.forward.head_dim, calls);
    grads_.start(grads, first, rows, setup_.forward.value_dim, calls);
  }

  const BackwardSetup& setup_;
  const BackwardItem& item_;
  Prefetcher<const void> keys_, values_, queries_, grads_;
  Prefetcher<void> query_sums_, key_sums_, value_sums_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_ITEM_PREFETCH_INL_H_
