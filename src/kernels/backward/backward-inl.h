// SPDX-License-Identifier: Apache-2.0
//
// The fused backward pass: gradients of one block of keys and values and, added to in turn, of all
// queries that look at it.
//
// The maths (Dao et al. 2022, FlashAttention). With the lse of each row known, its weights need no
// second look at the other keys:
//     p_j = 2^(s_j - log2(e) lse),  delta = sum_c o_c do_c - dlse
//     dv_j = sum_i p_ij do_i,  dp_j = do . v_j,  ds_j = p_j (dp_j - delta)
//     dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i
// where delta, a number per row, stands for what a softmax takes off every score's gradient.
//
// The order. A work item is a block of keys of one head of keys. Its keys and values are packed
// once, its gradients gather in scratch memory, and the queries of all heads that share it come by,
// a panel at a time and last ones first. For each panel: scores = Q K^T as in the forward pass,
// then dP = dO V^T, tile by tile, and both become P and dS while they are in the first cache; then
// the three sums. Panels come in the same order for every item, so that items at work on
// neighbouring blocks add to the same gradients of queries one shortly after the other (turn.h):
// each sum has one order, and no thread a copy. Last ones first, because under a causal mask all
// blocks are seen by the last queries, and items so have no need to wait for each other's
// beginning.
//
// The products. Scores, dP and dQ have queries along the lanes, as in the forward pass
// (tile-inl.h); dQ gathers transposed, with keys packed as the forward pass packs values. dK and dV
// sum over queries; they have dimensions along the lanes and take the rows of P and dS as they are
// (row_tile-inl.h). So no product needs a transpose of weights.
//
// Nan. A hidden key has weight 0, and so has its gradient whatever dP is. What may hide a nan in
// rows that products multiply by zeros is packed as zeros: keys (where they are seen, ds is nan
// already), queries (likewise), and rows of dO, which are added afterwards to the keys they see.

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
#include "kernels/backward/relevance-inl.h"
#include "kernels/backward/turn.h"
#include "kernels/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// One work item: a block of keys against all queries of its heads.
template <class Arithmetic>
class BackwardPass {
 public:
  BackwardPass(const BackwardSetup& setup, const BackwardItem& item, std::byte* scratch)
      : setup_(setup),
        item_(item),
        key_width_(whole_vectors(setup.forward.head_dim)),
        value_width_(whole_vectors(setup.forward.value_dim)) {
    scratch_.lay_out(scratch, backward_scratch_sizes<Arithmetic>(setup));
  }

  void run(const std::stop_token& stop) {
    Turn turn(item_.progress, item_.turn);
    Turn bias_turn(item_.bias_progress, item_.bias_turn);
    BiasGradient bias(setup_, scratch_);
    KeyRelevance relevance(setup_, scratch_);
    std::int64_t keys = 0;
    std::int64_t position = 0;
    for (std::int64_t i = 0; i < item_.group; ++i) {
      const BackwardHead head = item_.head(item_.heads_of, i);
      if (i == 0) keys = pack(head.forward);
      // Heads that share a bias have their gradients summed before they are added to it.
      const bool one_bias = head.grad_bias_place.head_stride == 0;
      if (i == 0 || !one_bias) bias.clear_bias(keys, head);
      bias.clear_distances(head);
      relevance.clear();
      HeadPass<Arithmetic> pass(setup_, head, item_.first_key, scratch_, bias, relevance);
      for (std::int64_t p = pass.panels() - 1; p >= 0; --p, ++position) {
        if (stop.stop_requested()) return;
        if (pass.attend(p) && setup_.grad_query) {
          if (!turn.wait(position, stop)) return;
          pass.add_query_gradients();
        }
        turn.pass(position);
      }
      bias.write_buckets(head, item_.first_key);
      relevance.write(head, item_.first_key, keys);
      if (setup_.grad_bias && (!one_bias || i + 1 == item_.group)) {
        if (!bias_turn.wait(0, stop)) return;
        bias.add_bias_to(head, item_.first_key, keys);
      }
    }
    write(item_.grad_key, keys, setup_.forward.head_dim, setup_.forward.scale, scratch_.key_sums,
          key_width_);
    write(item_.grad_value, keys, setup_.forward.value_dim, 1.0, scratch_.value_sums, value_width_);
  }

 private:
  /// Packs the block's keys and values, for every query head of the group the same; returns how
  /// many there are.
  std::int64_t pack(const ForwardHead& head) {
    const std::int64_t count = std::min(setup_.forward.block_keys, head.kv_len - item_.first_key);
    const std::int64_t tiles = (count + kTileRows - 1) / kTileRows;
    Arithmetic::pack_keys(head.key, item_.first_key, count, setup_.forward.head_dim,
                          scratch_.forward.keys);
    if (setup_.grad_query) {
      pack_finite_rows<Arithmetic>(head.key, item_.first_key, count, tiles * kTileRows,
                                   setup_.forward.head_dim, scratch_.key_rows, key_width_, nullptr);
    }
    if (setup_.of_scores()) {
      Arithmetic::pack_keys(head.value, item_.first_key, count, setup_.forward.value_dim,
                            scratch_.value_keys);
    }
    std::fill_n(scratch_.key_sums, tiles * kTileRows * key_width_, 0.0f);
    std::fill_n(scratch_.value_sums, tiles * kTileRows * value_width_, 0.0f);
    return count;
  }

  static void write(const OutputRows& rows, std::int64_t count, std::int64_t dim, double factor,
                    float* sums, std::int64_t width) {
    if (rows.data == nullptr) return;
    const Floats d;
    const Vector f = hn::Set(d, static_cast<float>(factor));
    for (std::int64_t r = 0; r < count; ++r) {
      float* const from = sums + r * width;
      for (std::int64_t c = 0; c < width; c += kLanes) {
        hn::Store(hn::Mul(f, hn::Load(d, from + c)), d, from + c);
      }
      with_element_type(rows.dtype, [&](auto* type) {
        using T = std::remove_cvref_t<decltype(*type)>;
        write_numbers(from, dim, rows.row_as<T>(r));
      });
    }
  }

  const BackwardSetup& setup_;
  const BackwardItem& item_;
  const std::int64_t key_width_, value_width_;
  BackwardScratch scratch_;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_BACKWARD_BACKWARD_INL_H_
