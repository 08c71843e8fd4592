// SPDX-License-Identifier: Apache-2.0
//
// Decoding: a few queries against a long cache. Computes the softmax over one part of the cache.
//
// The limit is memory bandwidth. Each element of a key or value is read once and takes part in two
// flop per query, so one query uses a tenth of the FMA throughput. Only the order of the loads
// matters: it is strictly sequential in memory, one row after the other (rows-inl.h). So nothing is
// packed, and keys are not laid out across lanes. A score is a horizontal sum, reduced for four
// keys at a time (store_sums_of_4). A context is accumulated in registers, over whole vectors of
// columns.
//
// The order. Per chunk of keys, some megabytes at most: scores of all queries that share the head
// -> softcap, biases, masks -> weights, with the running maximum of forward-inl.h -> sums of
// values. Two queries at a time (four in bfloat16, with AVX2 if they do not fit in registers, and
// with DecodeSetup::four_rows) are multiplied with a few keys, which stay in the L1 cache for the
// next queries. kDecodeRowsTogether queries at a time are processed for a chunk, which stays in the
// L2 cache. In a paged cache, an item has several heads, because they are adjacent within a block.
//
// Measurements on Zen 4. Software prefetch hurts where the hardware prefetchers already cover the
// addresses, except with AVX2 (runs-inl.h), and helps from one block of a paged cache to the next.
// On Zen 5 it helps three or more queries (DecodeSetup::four_rows), because the CPU otherwise
// requests the next keys too late.
// When the compiler interleaves the loads of several rows, decoding takes three times as long.
// Other loads between short runs reduce the speed by up to half, and storing the KV cache in 4 KB
// pages reduces it by a third. docs/benchmarks.md has the figures.
//
// Hidden keys. A key with a score of -inf, for whatever reason, has weight 0, and its value is not
// read. If a chunk has hidden keys, the rows of a head sum the keys that all of them see together,
// and each row sums its other runs of visible keys separately.

#if defined(FOVEA_KERNELS_DECODE_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_KERNELS_DECODE_DECODE_INL_H_
#undef FOVEA_KERNELS_DECODE_DECODE_INL_H_
#else
#define FOVEA_KERNELS_DECODE_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "fovea/simd_math-inl.h"

#include "kernels/decode/decode.h"
#include "kernels/decode/row_stages-inl.h"
#include "kernels/decode/rows-inl.h"
#include "kernels/decode/scratch-inl.h"
#include "kernels/simd/simd-inl.h"
#include "kernels/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Arithmetic in float32, for tensors of any type. DecodePass is parameterised by an arithmetic
/// with this interface; Bf16Rows (bf16_rows-inl.h) is the other one.
struct FloatRows {
  /// True if queries are multiplied by the scale when they are loaded; otherwise scores are
  /// multiplied by it later.
  static constexpr bool kScalesQueries = true;
  /// Padded sizes of a query and of a context, in floats.
  static std::int64_t query_size(std::int64_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }
  static std::int64_t context_size(std::int64_t dim) { return query_size(dim); }

  static void load_query(const InputRows& rows, std::int64_t row, std::int64_t offset,
                         std::int64_t dim, float factor, float* to) {
    with_element_type(rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      const T* const from = rows.row_as<T>(row) + offset;
      const Floats d;
      std::int64_t c = 0;
      for (; c + kLanes <= dim; c += kLanes) {
        hn::StoreU(hn::Mul(hn::Set(d, factor), load_floats(d, from + c)), d, to + c);
      }
      for (; c < dim; ++c) to[c] = factor * static_cast<float>(from[c]);
    });
  }

  /// Calls act(static_cast<const T*>(nullptr)), where T is the element type of keys or values.
  template <class Act>
  static HWY_INLINE void with_type(DType dtype, const Act& act) {
    with_element_type(dtype, act);
  }
  template <class T>
  static RunLoop<T>* score_loop(std::int64_t dim, bool four_rows) {
    return HWY_NAMESPACE::score_loop<T>(dim, four_rows);
  }
  template <class T>
  static RunLoop<T>* value_loop(std::int64_t dim, bool four_rows) {
    return HWY_NAMESPACE::value_loop<T>(dim, four_rows);
  }

  static void store_context(const float* context, std::int64_t dim, float* to) {
    std::copy_n(context, dim, to);
  }
};

/// Rows [first, first + count) of the query rows of each key head. The scores of these rows are
/// laid out as [heads][count]; a slot is a row's index in that layout.
struct RowsOfHeads {
  std::int64_t of_head = 0;  // query rows per key head
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t row(std::int64_t head) const { return head * of_head + first; }
  std::int64_t slot(std::int64_t head) const { return head * count; }
};

/// One work item: a range of keys of one or a few heads, with all queries that attend to them.
template <class Arithmetic>
class DecodePass {
 public:
  DecodePass(const DecodeSetup& setup, const DecodeItem& item, std::byte* scratch)
      : setup_(setup),
        item_(item),
        mask_(setup.options->mask),
        rows_of_head_(item.rows_of_head(setup.group)),
        rows_(item.heads * rows_of_head_),
        stages_(setup, item, scratch_, Arithmetic::kScalesQueries) {
    scratch_.template lay_out<Arithmetic>(scratch, setup);
  }

  void run(const DecodePart& part, const std::stop_token& stop) {
    begin();
    const bool done = for_each_chunk(stop, [&](const RowsOfHeads& rows, std::int64_t first,
                                               std::int64_t count) { attend(rows, first, count); });
    if (done) finish(part);
  }

  void find_weights(const DecodeWeights& to, const std::stop_token& stop) {
    begin();
    const float hidden = to.logarithms ? kHidden : 0.0f;
    for (std::int64_t row = 0; row < rows_; ++row) {
      float* const weights = to.weights + row * to.stride;
      std::fill(weights, weights + (keys_begin_ - item_.key_begin), hidden);
      std::fill(weights + (keys_end_ - item_.key_begin),
                weights + (item_.key_end - item_.key_begin), hidden);
    }
    for_each_chunk(stop, [&](const RowsOfHeads& rows, std::int64_t first, std::int64_t count) {
      score(rows, first, count);
      for_each_row(rows, [&](std::int64_t row, const float* scores) {
        write_weights(scores, count, to.log2_sum[row], to.logarithms,
                      to.weights + row * to.stride + (first - item_.key_begin));
      });
    });
  }

 private:
  /// Calls visit(rows, first_key, key_count) for all rows and keys. Returns false if stopped early
  /// by `stop`.
  template <class Visit>
  bool for_each_chunk(const std::stop_token& stop, const Visit& visit) {
    const std::int64_t chunk = setup_.chunk_keys;
    // Chunk boundaries are multiples of chunk_keys, however keys are divided into items.
    for (std::int64_t k = keys_begin_ / chunk * chunk; k < keys_end_; k += chunk) {
      const std::int64_t first = std::max(k, keys_begin_);
      const std::int64_t count = std::min(k + chunk, keys_end_) - first;
      for (std::int64_t row = 0; row < rows_of_head_; row += kDecodeRowsTogether) {
        if (stop.stop_requested()) return false;
        visit(RowsOfHeads{rows_of_head_, row, std::min(kDecodeRowsTogether, rows_of_head_ - row)},
              first, count);
      }
    }
    return true;
  }

  /// Calls visit(row, scores) for each of `rows` in all heads.
  template <class Visit>
  void for_each_row(const RowsOfHeads& rows, const Visit& visit) {
    for (std::int64_t head = 0; head < item_.heads; ++head) {
      for (std::int64_t r = 0; r < rows.count; ++r) {
        visit(rows.row(head) + r, scores_of(rows.slot(head) + r));
      }
    }
  }

  float* scores_of(std::int64_t slot) const { return scratch_.scores + slot * setup_.chunk_keys; }
  float* query_of(std::int64_t row) const { return scratch_.queries + row * scratch_.query_stride; }
  float* context_of(std::int64_t row) const {
    return scratch_.context + row * scratch_.context_stride;
  }

  /// Returns Run::ahead for keys or values of `dim` elements, or 0 for the loops without
  /// prefetching: for one or two rows, cached keys, and short runs of a paged cache, which are
  /// prefetched as a whole (next_run.h).
  template <class T>
  std::int64_t elements_ahead(const CacheRows& cache, std::int64_t rows, std::int64_t dim) const {
    const std::int64_t bytes = dim * static_cast<std::int64_t>(sizeof(T));
    const bool is_short = cache.blocks != nullptr && cache.block_size * bytes < kMinRunBytes;
    if (!setup_.four_rows || rows <= 2 || dim == 0 || is_short || item_.cached) return 0;
    return (kAheadBytes + bytes - 1) / bytes * cache.rows.stride;
  }

  void begin() {
    const float factor = Arithmetic::kScalesQueries ? stages_.query_factor() : 1.0f;
    std::fill_n(scratch_.queries, rows_ * scratch_.query_stride, 0.0f);
    std::fill_n(scratch_.context, rows_ * scratch_.context_stride, 0.0f);
    for (std::int64_t row = 0; row < rows_; ++row) {
      Arithmetic::load_query(item_.query, row % item_.q_len,
                             row / item_.q_len * item_.query_head_stride, setup_.head_dim, factor,
                             query_of(row));
      scratch_.maximum[row] = kLowestScore;
      scratch_.sum[row] = 0.0f;
      see_keys(row);
    }
  }

  void see_keys(std::int64_t row) {
    const std::int64_t begin = item_.key_begin, end = item_.key_end;
    KeyRange seen{begin, end, true};
    if (!mask_.allows_all()) seen = mask_.key_range(item_.place(row, begin), end - begin);
    scratch_.ranges[row] = seen;
    if (seen.begin >= seen.end) return;
    const bool is_first = keys_begin_ == keys_end_;
    keys_begin_ = is_first ? seen.begin : std::min(keys_begin_, seen.begin);
    keys_end_ = is_first ? seen.end : std::max(keys_end_, seen.end);
  }

  /// Computes the scores of `rows` and `count` keys, starting at key `first`. Scores of hidden keys
  /// are -inf.
  void score(const RowsOfHeads& rows, std::int64_t first, std::int64_t count) {
    const CacheRows& keys = item_.key;
    const std::int64_t dim = setup_.head_dim;
    Arithmetic::with_type(keys.rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      const std::int64_t ahead = elements_ahead<T>(keys, rows.count, dim);
      auto* const loop = Arithmetic::template score_loop<T>(dim, ahead != 0);
      keys.for_each_run<T>(
          item_.heads, first, first + count, dim,
          [&](const T* run, const NextRun& next, std::int64_t key, std::int64_t several) {
            loop({.cache = {run, keys.rows.stride, keys.head_stride},
                  .next = next,
                  .heads = item_.heads,
                  .rows = rows.count,
                  .count = several,
                  .dim = dim,
                  .from = {query_of(rows.row(0)), scratch_.query_stride,
                           rows.of_head * scratch_.query_stride},
                  .to = {scores_of(0) + (key - first), setup_.chunk_keys,
                         rows.count * setup_.chunk_keys},
                  .ahead = ahead});
          });
    });
    for_each_row(rows,
                 [&](std::int64_t row, float* scores) { stages_.run(scores, row, first, count); });
  }

  void attend(const RowsOfHeads& rows, std::int64_t first, std::int64_t count) {
    score(rows, first, count);
    bool any_hidden = false;
    for_each_row(rows, [&](std::int64_t row, float* scores) {
      const bool hidden = weigh(scores, row, count);
      any_hidden = any_hidden || hidden;
    });
    if (setup_.value_dim == 0) return;
    if (!any_hidden) {
      return add_values(rows, 0, item_.heads, scratch_.scores, first, first + count);
    }
    // Keys that all rows of a head see are multiplied for these rows together. Each row adds its
    // keys in order. The heads of an item depend on the number of threads, so they are kept apart.
    for (std::int64_t head = 0; head < item_.heads; ++head) {
      const KeysOfChunk common = seen_by_all(rows, head, first, count);
      const auto add_rows = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = 0; r < rows.count; ++r) {
          add_visible(scores_of(rows.slot(head) + r) + begin, rows.row(head) + r, first + begin,
                      first + end);
        }
      };
      add_rows(0, common.begin);
      if (common.begin < common.end) {
        add_values(rows, head, 1, scores_of(rows.slot(head)) + common.begin, first + common.begin,
                   first + common.end);
      }
      add_rows(common.end, count);
    }
  }

  struct KeysOfChunk {
    std::int64_t begin, end;
  };
  /// Returns a range of keys, relative to `first`, that no weight of the head's rows hides.
  KeysOfChunk seen_by_all(const RowsOfHeads& rows, std::int64_t head, std::int64_t first,
                          std::int64_t count) {
    KeysOfChunk all{0, count};
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const KeyRange& seen = scratch_.ranges[rows.row(head) + r];
      all.begin = std::max(all.begin, seen.begin - first);
      all.end = std::min(all.end, seen.end - first);
    }
    for (std::int64_t r = 0; r < rows.count && all.begin < all.end; ++r) {
      const float* const weights = scores_of(rows.slot(head) + r);
      if (is_any_hidden(weights + all.begin, all.end - all.begin)) all.end = all.begin;
    }
    return all.begin < all.end ? all : KeysOfChunk{0, 0};
  }
  static bool is_any_hidden(const float* weights, std::int64_t count) {
    const Floats d;
    const Vector hidden = hn::Set(d, kHidden);
    std::int64_t k = 0;
    for (; k + kLanes <= count; k += kLanes) {
      if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, weights + k), hidden))) return true;
    }
    return k < count && std::find(weights + k, weights + count, kHidden) != weights + count;
  }

  // ---- softmax ----------------------------------------------------------------------------------

  /// Replaces scores by weights 2^(score - maximum); hidden keys keep -inf. Returns whether the row
  /// has hidden keys in this chunk.
  bool weigh(float* scores, std::int64_t row, std::int64_t count) {
    const Floats d;
    const std::int64_t whole = count / kLanes * kLanes;
    // If one argument is NaN, hn::Max and hn::Min return the second one on x86 and either one
    // elsewhere. A NaN that is lost here reappears when the maximum is subtracted.
    Vector most = hn::Set(d, scratch_.maximum[row]);
    Vector least = most;
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      const Vector x = hn::Load(d, scores + k);
      most = hn::Max(x, most);
      least = hn::Min(x, least);
    }
    float maximum = hn::GetLane(hn::MaxOfLanes(d, most));
    bool hidden = hn::GetLane(hn::MinOfLanes(d, least)) == kHidden;
    for (std::int64_t k = whole; k < count; ++k) {
      maximum = std::max(maximum, scores[k]);
      hidden = hidden || scores[k] == kHidden;
    }
    shrink(row, maximum);

    const Vector top = hn::Set(d, maximum);
    Vector total = hn::Zero(d);
    const auto weight = [&](Vector x) HWY_ATTR {
      return fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, hn::Sub(x, top));
    };
    const auto keep = [&](Vector x, Vector w) HWY_ATTR {
      return hidden ? hn::IfThenElse(hn::Eq(x, hn::Set(d, kHidden)), x, w) : w;
    };
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      const Vector x = hn::Load(d, scores + k);
      const Vector w = weight(x);
      total = hn::Add(total, w);
      hn::Store(keep(x, w), d, scores + k);
    }
    if (whole < count) {
      std::fill(scores + count, scores + whole + kLanes, kHidden);
      const Vector x = hn::Load(d, scores + whole);
      const Vector w = weight(x);
      total = hn::Add(total, w);
      hn::Store(keep(x, w), d, scores + whole);
    }
    scratch_.sum[row] += hn::GetLane(hn::SumOfLanes(d, total));
    return hidden;
  }

  /// Writes weights from a known sum: 2^(score - log2_sum), or their base-2 logarithms.
  void write_weights(const float* scores, std::int64_t count, float log2_sum, bool logarithms,
                     float* weights) const {
    const Floats d;
    const Vector sum = hn::Set(d, log2_sum);
    const auto weight = [&](std::int64_t k) HWY_ATTR {
      const Vector score = hn::Load(d, scores + k);
      const Vector below = hn::Sub(score, sum);
      // Hidden keys stay hidden even if the row's lse is NaN or -inf.
      const auto hidden = hn::Eq(score, hn::Set(d, kHidden));
      if (logarithms) return hn::IfThenElse(hidden, score, below);
      return hn::IfThenZeroElse(hidden, fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, below));
    };
    const std::int64_t whole = count / kLanes * kLanes;
    for (std::int64_t k = 0; k < whole; k += kLanes) hn::StoreU(weight(k), d, weights + k);
    if (whole == count) return;
    alignas(64) float last[kLanes];
    hn::Store(weight(whole), d, last);
    std::copy_n(last, count - whole, weights + whole);
  }

  /// Raises the running maximum of a row, and rescales its sum and context.
  void shrink(std::int64_t row, float maximum) {
    const Floats d;
    const float before = scratch_.maximum[row];
    if (before == maximum) return;
    scratch_.maximum[row] = maximum;
    const Vector factor =
        fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, hn::Set(d, before - maximum));
    scratch_.sum[row] *= hn::GetLane(factor);
    float* const context = context_of(row);
    for (std::int64_t c = 0; c < scratch_.context_stride; c += kLanes) {
      hn::Store(hn::Mul(factor, hn::Load(d, context + c)), d, context + c);
    }
  }

  // ---- context ----------------------------------------------------------------------------------

  /// Adds the weighted values of keys [begin, end) to the contexts of `rows`, for heads
  /// [head, head + heads). Weights have the layout of scores; `weights` points to the first row's
  /// weight of key `begin`.
  void add_values(const RowsOfHeads& rows, std::int64_t head, std::int64_t heads,
                  const float* weights, std::int64_t begin, std::int64_t end) {
    const CacheRows values = item_.value.of_head(head);
    const std::int64_t dim = setup_.value_dim;
    Arithmetic::with_type(values.rows.dtype, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      const std::int64_t ahead = elements_ahead<T>(values, rows.count, dim);
      auto* const loop = Arithmetic::template value_loop<T>(dim, ahead != 0);
      values.for_each_run<T>(
          heads, begin, end, dim,
          [&](const T* run, const NextRun& next, std::int64_t key, std::int64_t several) {
            loop({.cache = {run, values.rows.stride, values.head_stride},
                  .next = next,
                  .heads = heads,
                  .rows = rows.count,
                  .count = several,
                  .dim = dim,
                  .from = {weights + (key - begin), setup_.chunk_keys,
                           rows.count * setup_.chunk_keys},
                  .to = {context_of(rows.row(head)), scratch_.context_stride,
                         rows.of_head * scratch_.context_stride},
                  .ahead = ahead});
          });
    });
  }

  /// Same for one row, but only for the row's runs of visible keys.
  void add_visible(const float* weights, std::int64_t row, std::int64_t first, std::int64_t last) {
    const std::int64_t head = row / rows_of_head_;
    const RowsOfHeads one{rows_of_head_, row % rows_of_head_, 1};
    const std::int64_t count = last - first;
    for (std::int64_t k = 0; k < count;) {
      if (weights[k] == kHidden) {
        ++k;
        continue;
      }
      const std::int64_t begin = k;
      while (k < count && weights[k] != kHidden) ++k;
      add_values(one, head, 1, weights + begin, first + begin, first + k);
    }
  }

  void finish(const DecodePart& part) const {
    for (std::int64_t row = 0; row < rows_; ++row) {
      part.maximum[row] = scratch_.maximum[row];
      part.sum[row] = scratch_.sum[row];
      Arithmetic::store_context(context_of(row), setup_.value_dim,
                                part.context + row * setup_.value_dim);
    }
  }

  // 4, 16 and 32 KB ahead are slower on Zen 5, and so are shorter runs (docs/benchmarks.md).
  static constexpr std::int64_t kAheadBytes = 8 << 10, kMinRunBytes = 16 << 10;

  const DecodeSetup& setup_;
  const DecodeItem& item_;
  const Mask& mask_;
  const std::int64_t rows_of_head_;
  const std::int64_t rows_;
  DecodeScratch scratch_;
  const RowStages stages_;
  // Range that contains all keys of the item that are visible to any row.
  std::int64_t keys_begin_ = item_.key_begin;
  std::int64_t keys_end_ = item_.key_begin;
};

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FOVEA_KERNELS_DECODE_DECODE_INL_H_
