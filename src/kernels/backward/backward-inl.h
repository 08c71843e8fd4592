// SPDX-License-Identifier: Apache-2.0
//
// The fused backward pass: computes the gradients of one block of keys and values, and adds its
// contributions to the gradients of all queries that attend to it.
//
// The maths (Dao et al. 2022, FlashAttention). With the lse of each row known, a weight depends
// only on its own score:
//     p_j = 2^(s_j - log2(e) lse),  delta = sum_c o_c do_c - dlse
//     dv_j = sum_i p_ij do_i,  dp_j = do . v_j,  ds_j = p_j (dp_j - delta)
//     dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i
// where delta, one number per row, is the term that the derivative of the softmax subtracts.
//
// The order. A work item is one block of keys of one key head. Its keys and values are packed once,
// and their gradients are accumulated in scratch memory while the queries of all heads that share
// the block are processed, one group of panels at a time, last ones first. For each group: scores =
// Q K^T as in the forward pass, then dP = dO V^T, tile by tile; both are turned into P and dS while
// they are in the L1 cache; then the sums dV, dK and dQ. All items process groups in the same
// order, so concurrent items on adjacent blocks add to the same query gradients shortly after each
// other (turn.h). Each sum has a fixed order, and threads need no private copies. Last panels come
// first because under a causal mask the last queries attend to all blocks, so that no item has to
// wait for another one to reach its first panel.
//
// The products. Instructions that multiply vectors (row_products-inl.h) and tile units
// (tile_products-inl.h) have layouts of their own.
//
// NaN. A hidden key has weight 0, and its score gradient is 0 whatever dP is. Rows with a NaN or
// infinity are packed as zeros, because products would multiply them by the zeros of hidden pairs.
// For keys and queries, dS of the visible pairs is NaN already. Rows of dO are added afterwards to
// the gradients of the keys visible to them.

#if defined(FOVEA_KERNELS_BACKWARD_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_BACKWARD_BACKWARD_INL_H_
#undef FOVEA_KERNELS_BACKWARD_BACKWARD_INL_H_
#else
#define FOVEA_KERNELS_BACKWARD_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/backward/backward.h"
#include "kernels/backward/backward_head-inl.h"
#include "kernels/backward/backward_scratch.h"
#include "kernels/backward/bias_gradient-inl.h"
#include "kernels/backward/item_prefetch-inl.h"
#include "kernels/backward/relevance-inl.h"
#include "kernels/backward/turn.h"
#include "kernels/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// One work item: a block of keys against all queries of its heads.
template <class Products>
class BackwardPass {
 public:
  BackwardPass(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch)
      : setup_(setup), item_(item), products_(setup, scratch_) {
    scratch_.lay_out(scratch, backward_scratch_sizes<Products>(setup));
  }

  void run(const std::stop_token& stop) {
    Turn turn(item_.progress, item_.turn);
    Turn bias_turn(item_.bias_progress, item_.bias_turn);
    BiasGradient bias(setup_, scratch_);
    KeyRelevance relevance(setup_, scratch_);
    BackwardPrefetch prefetch(setup_, item_);
    std::int64_t keys = 0;
    // Positions count entries of `together` queries, the last ones first. Groups of other sizes
    // wait for all entries that they add to, and pass those that are complete.
    const std::int64_t together = setup_.queries_together;
    std::int64_t end = 0;  // of the positions of earlier heads
    for (std::int64_t i = 0; i < item_.group; ++i) {
      const BackwardHead head = item_.head(item_.heads_of, i);
      if (i == 0) {
        keys = std::min(setup_.forward.block_keys, head.forward.kv_len - item_.first_key);
        products_.pack_block(head.forward, item_.first_key, keys);
        prefetch.start_item(keys, head.q_len);
      }
      // If heads share a bias, their score gradients are summed before they are added to grad_bias.
      const bool one_bias = head.grad_bias_place.head_stride == 0;
      if (i == 0 || !one_bias) bias.clear_bias(keys, head);
      bias.clear_distances(head);
      relevance.clear();
      HeadPass<Products> pass(setup_, head, i, item_.first_key, scratch_, products_, bias,
                              relevance, prefetch);
      const std::int64_t entries = (head.q_len + together - 1) / together;
      for (std::int64_t g = pass.groups() - 1; g >= 0; --g) {
        if (stop.stop_requested()) return;
        const std::int64_t first = g * HeadPass<Products>::kQueries;
        if (pass.attend(g) && setup_.grad_query) {
          if (!turn.wait(end + entries - 1 - first / together, stop)) return;
          pass.add_query_gradients();
        }
        const std::int64_t left = (first + together - 1) / together;  // entries with queries before
        if (left < entries) turn.pass(end + entries - 1 - left);
      }
      end += entries;
      bias.write_buckets(head, item_.first_key);
      relevance.write(head, item_.first_key, keys);
      if (setup_.grad_bias && (!one_bias || i + 1 == item_.group)) {
        if (!bias_turn.wait(0, stop)) return;
        bias.add_bias_to(head, item_.first_key, keys);
      }
    }
    write(item_.grad_key, keys, setup_.forward.head_dim, setup_.forward.scale, scratch_.key_sums);
    write(item_.grad_value, keys, setup_.forward.value_dim, 1.0, scratch_.value_sums);
  }

 private:
  void write(const OutputRows& rows, std::int64_t count, std::int64_t dim, double factor,
             float* sums) {
    if (rows.data == nullptr) return;
    for (std::int64_t r = 0; r < count; ++r) {
      const float* const row = products_.finish_row(sums, r, dim, factor);
      with_element_type(rows.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        write_numbers(row, dim, rows.row_as<T>(r));
      });
    }
  }

  const BackwardSetup& setup_;
  const BackwardItem& item_;
  BackwardScratch scratch_;
  Products products_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_BACKWARD_INL_H_
