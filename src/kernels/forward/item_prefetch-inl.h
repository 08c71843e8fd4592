// SPDX-License-Identifier: Apache-2.0
//
// Prefetching while a work item of the forward pass is computed: the rows of the next block of
// keys and values, the next queries, and the rows of contexts that are written next.

#if defined(FOVEA_KERNELS_FORWARD_ITEM_PREFETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_FORWARD_ITEM_PREFETCH_INL_H_
#undef FOVEA_KERNELS_FORWARD_ITEM_PREFETCH_INL_H_
#else
#define FOVEA_KERNELS_FORWARD_ITEM_PREFETCH_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/forward/forward.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/tile/prefetcher.h"
#include "kernels/tile/scratch.h"
#include "kernels/tile/setup.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Prefetches rows that the start functions select. Each call of fetch_for_scores(), in the first
/// product, and of fetch_for_values(), in the second, prefetches a part of them.
class ItemPrefetch {
 public:
  /// `next`: the item that the thread computes next, or null.
  ItemPrefetch(const ForwardSetup& setup, const ForwardItem& item, const ForwardItem* next)
      : setup_(setup), head_(item.head), next_(next) {}

  /// Starts to prefetch the keys and values of the next block, which begins at key `block`. If no
  /// block is left before `keys_end`, prefetches the first block of the next item. `score_fetches`
  /// and `value_fetches` are the maximum numbers of calls of fetch_for_scores() and
  /// fetch_for_values() until then. They are 0 for products that prefetch their own rows.
  void start_block(std::int64_t block, std::int64_t keys_end, std::int64_t score_fetches,
                   std::int64_t value_fetches) {
    const bool ours = block < keys_end;
    if (!ours && next_ == nullptr) return;
    const ForwardHead& head = ours ? head_ : next_->head;
    const std::int64_t first = ours ? block : 0;
    const std::int64_t rows = std::min(setup_.block_keys, (ours ? keys_end : head.kv_len) - first);
    keys_.start(head.key, first, rows, setup_.head_dim, score_fetches);
    values_.start(head.value, first, rows, setup_.value_dim, value_fetches);
  }

  /// Prefetches the queries of the panel `next`, unless they are loaded.
  void start_queries(const Panel& next, std::int64_t tiles) {
    if (!next.loaded) start_queries(head_, next.first_query, next.rows, tiles);
  }
  /// Prefetches the first queries of the next item.
  void start_next_item(std::int64_t tiles) {
    if (next_ == nullptr) return;
    start_queries(next_->head, next_->q_begin, std::min(kPanelLanes, next_->q_end - next_->q_begin),
                  tiles);
  }

  /// If the block is the panel's `last`, prefetches the contexts of its rows; otherwise stops that.
  void start_contexts(const Panel& panel, bool last, std::int64_t value_fetches) {
    // Rows of several heads are usually too few to matter, unless they follow each other.
    const bool whole = last && head_.context_is_even();
    contexts_.start(head_.context, panel.first_query, whole ? panel.rows : 0, setup_.value_dim,
                    value_fetches);
  }

  void fetch_for_scores() {
    keys_.fetch();
    queries_.fetch();
  }
  void fetch_for_values() {
    values_.fetch();
    contexts_.fetch();
  }

 private:
  void start_queries(const ForwardHead& head, std::int64_t row, std::int64_t count,
                     std::int64_t tiles) {
    const std::int64_t query = head.query_of(row);
    if (head.heads > 1) count = std::min(count, head.q_len - query);
    queries_.start(head.query_rows(row), query, count, setup_.head_dim, tiles);
  }

  const ForwardSetup& setup_;
  const ForwardHead& head_;
  const ForwardItem* next_;
  Prefetcher<const void> keys_, values_, queries_;
  Prefetcher<void> contexts_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_FORWARD_ITEM_PREFETCH_INL_H_
