// SPDX-License-Identifier: Apache-2.0
//
// Attention, one query at a time, in textbook order. Read attend() from top to bottom: each
// paragraph is one step. `Real` is double for the oracle and float for the naive computation in
// single precision. Sums run over keys and dimensions from first to last, and every operation is
// rounded to Real.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/half.h"
#include "fovea/reference.h"
#include "fovea/tensor.h"

#include "problem/broadcast.h"
#include "problem/dropout.h"
#include "reference/contiguous.h"
#include "reference/problem.h"

namespace fovea::reference {

/// The position of a query, with the keys of its batch item or packed sequence.
struct RowPlace {
  Row row;
  std::int64_t kv_head = 0;
  std::size_t kv_len = 0;
  ScorePosition first;  // the position of the first key

  ScorePosition at(std::size_t j) const {
    ScorePosition at = first;
    at.key = static_cast<std::int64_t>(j);
    return at;
  }
  /// Returns the index of key j in the tensors.
  std::int64_t number(std::size_t j) const {
    return first.key_start + static_cast<std::int64_t>(j);
  }
};

/// All steps of one row, for the keys of its RowPlace. `visible[j]` is false if key j is masked.
/// `weights` and `dropped` are rounded to the storage type (ReferenceOptions::arithmetic),
/// `unrounded` is not. Dropout multiplies the weights by `kept`.
template <class Real>
struct RowSteps {
  RowPlace place;
  std::vector<Real> hidden;  // [kv_len * hidden_dim]
  std::vector<Real> scores, scaled, softcapped, custom, biased, masked;
  std::vector<Real> unrounded, weights, dropped;
  std::vector<Real> kept;  // all 1 without dropout
  std::vector<bool> visible;
  Real row_sum = 0;
  Real lse = 0;
  std::vector<Real> context;
};

/// Rounds the numbers to bfloat16 or float16 if the arithmetic is one of these types.
template <class Real>
void round_as_stored(DType arithmetic, std::span<Real> numbers) {
  if (arithmetic == DType::kBFloat16) {
    for (Real& x : numbers) x = static_cast<Real>(static_cast<float>(BFloat16(x)));
  } else if (arithmetic == DType::kFloat16) {
    for (Real& x : numbers) x = static_cast<Real>(static_cast<float>(Float16(x)));
  }
}

/// Computes attention for single rows of a problem. The problem must outlive this object.
template <class Real>
class RowAttention {
 public:
  explicit RowAttention(const Problem& problem)
      : problem_(problem),
        query_(problem.in.query),
        key_(problem.in.key),
        value_(problem.in.value) {
    if (const auto* general = std::get_if<GeneralScore>(&problem.how.score_kind)) {
      query_ = times(query_, general->weights);
    } else if (const auto* additive = std::get_if<AdditiveScore>(&problem.how.score_kind)) {
      query_ = times(query_, additive->query_weights);
      key_ = times(key_, additive->key_weights);
      v_ = Contiguous<Real>(additive->v);
    }
    if (problem.options.score.alibi) {
      slopes_ = problem.options.score.alibi->slopes;
      if (slopes_.empty()) slopes_ = default_alibi_slopes(problem.shape.q_heads);
    }
  }

  RowPlace place_of(const Row& row) const {
    const std::int64_t item = item_of(row);
    const SequenceSpan span = sequence_span(problem_.options, problem_.shape, item);
    const std::int64_t offset = query_offset(problem_.options, problem_.shape, item);
    return {.row = row,
            .kv_head = row.head / (problem_.shape.q_heads / problem_.shape.kv_heads),
            .kv_len = static_cast<std::size_t>(span.kv_len),
            .first = {item, row.head, row.query - span.query_start, 0, offset, span.query_start,
                      span.key_start}};
  }

  std::span<const Real> query(const RowPlace& place) const {
    return row_of(query_, place.row.batch, place.row.head, place.row.query);
  }
  std::span<const Real> key(const RowPlace& place, std::size_t j) const {
    return row_of(key_, place.row.batch, place.kv_head, place.number(j));
  }
  std::span<const Real> value(const RowPlace& place, std::size_t j) const {
    return row_of(value_, place.row.batch, place.kv_head, place.number(j));
  }

  /// Returns all steps of attention for one query.
  RowSteps<Real> attend(const Row& row) const {
    const RowPlace place = place_of(row);
    const std::size_t kv_len = place.kv_len;
    const ScoreOptions& score = problem_.options.score;
    RowSteps<Real> s;
    s.place = place;

    // Scores: the similarity of the query to each key.
    s.scores.resize(kv_len);
    match(s);

    // Scale, so that long vectors do not make large scores.
    s.scaled = s.scores;
    const Real scale = static_cast<Real>(problem_.scale());
    for (Real& x : s.scaled) x *= scale;

    // Softcap: squash into (-c, c).
    s.softcapped = s.scaled;
    if (score.softcap > 0) {
      const Real c = static_cast<Real>(score.softcap);
      for (Real& x : s.softcapped) x = c * std::tanh(x / c);
    }

    // Custom function: supplied by the caller.
    s.custom = s.softcapped;
    for (std::size_t j = 0; score.custom.one != nullptr && j < kv_len; ++j) {
      const double x = static_cast<double>(s.custom[j]);
      s.custom[j] = static_cast<Real>(score.custom.one(score.custom.state.get(), x, place.at(j)));
    }

    // Bias: a term that depends on the positions of query and key.
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    s.biased = s.custom;
    for (std::size_t j = 0; has_bias(problem_.options.score) && j < kv_len; ++j) {
      const auto bias = position_bias(place.at(j));
      if (s.biased[j] != -kInfinity) s.biased[j] = bias ? s.biased[j] + *bias : -kInfinity;
    }

    // Mask: masked keys are excluded from here on, and so are keys with a score of -inf.
    s.masked = s.biased;
    s.visible.resize(kv_len);
    for (std::size_t j = 0; j < kv_len; ++j) {
      s.visible[j] = problem_.options.mask.visible(place.at(j)) && s.biased[j] != -kInfinity;
      if (!s.visible[j]) s.masked[j] = -kInfinity;
    }

    // Weights: positive numbers that sum to one.
    normalize(row, s);
    for (const Real weight : s.unrounded) s.row_sum += weight;
    s.weights = s.unrounded;
    round_as_stored<Real>(problem_.how.arithmetic, s.weights);

    // Dropout: set some weights to 0, and scale up the others to compensate.
    s.kept = kept(place);
    s.dropped = s.unrounded;
    for (std::size_t j = 0; j < kv_len; ++j) s.dropped[j] *= s.kept[j];
    round_as_stored<Real>(problem_.how.arithmetic, s.dropped);

    // Context: the sum of the values, multiplied by their weights after dropout.
    s.context.assign(static_cast<std::size_t>(problem_.value_dim), Real(0));
    for (std::size_t j = 0; j < kv_len; ++j) {
      if (!s.visible[j]) continue;
      const std::span<const Real> v = value(place, j);
      for (std::size_t d = 0; d < v.size(); ++d) s.context[d] += s.dropped[j] * v[d];
    }
    round_as_stored<Real>(problem_.how.arithmetic, s.context);
    return s;
  }

 private:
  /// Returns the batch item or packed sequence that a query belongs to.
  std::int64_t item_of(const Row& row) const {
    if (problem_.shape.sequences == 0) return row.batch;
    // The last sequence that starts at or before the query. Earlier sequences with the same start
    // are empty.
    const auto& starts = problem_.options.sequences.query_starts;
    return std::upper_bound(starts.begin(), starts.end(), row.query) - starts.begin() - 1;
  }

  static Contiguous<Real> times(const Contiguous<Real>& rows, const TensorView& weights) {
    return Contiguous<Real>(multiply(rows, Contiguous<Real>(weights)));
  }

  /// Computes the scores before scaling. An additive score also keeps its hidden layer.
  void match(RowSteps<Real>& s) const {
    const std::span<const Real> q = query(s.place);
    const std::size_t kv_len = s.place.kv_len;
    if (problem_.hidden_dim > 0) {
      const std::span<const Real> v = v_.span();
      for (std::size_t j = 0; j < kv_len; ++j) {
        const std::span<const Real> k = key(s.place, j);
        for (std::size_t h = 0; h < k.size(); ++h) {
          s.hidden.push_back(std::tanh(q[h] + k[h]));
          s.scores[j] += v[h] * s.hidden.back();
        }
      }
      return;
    }
    // Several keys at a time, because each addition to a sum waits for the one before it. After the
    // last key, it is read again.
    constexpr std::size_t kTogether = 4;
    for (std::size_t j = 0; j < kv_len; j += kTogether) {
      std::array<const Real*, kTogether> keys;
      for (std::size_t i = 0; i < kTogether; ++i) {
        keys[i] = key(s.place, std::min(j + i, kv_len - 1)).data();
      }
      std::array<Real, kTogether> sums{};
      for (std::size_t d = 0; d < q.size(); ++d) {
        for (std::size_t i = 0; i < kTogether; ++i) sums[i] += q[d] * keys[i][d];
      }
      const auto count = static_cast<std::ptrdiff_t>(std::min(kTogether, kv_len - j));
      std::copy_n(sums.begin(), count, s.scores.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }

  /// Returns the sum of all biases, or nothing if one of them is -inf, which masks the key
  /// regardless of the other biases.
  std::optional<Real> position_bias(const ScorePosition& at) const {
    const ScoreOptions& score = problem_.options.score;
    const std::int64_t distance = at.key - (at.query + at.offset);
    Real sum = 0;
    bool masked = false;
    const auto add = [&](Real bias) {
      masked = masked || bias == -std::numeric_limits<Real>::infinity();
      sum += bias;
    };
    if (score.bias.defined()) add(static_cast<Real>(broadcast_value(score.bias, at)));
    if (score.alibi) {
      const double slope = slopes_[static_cast<std::size_t>(at.head)];
      add(-static_cast<Real>(slope) * static_cast<Real>(std::abs(distance)));
    }
    if (score.relative) {
      const std::int64_t bucket = relative_bucket(distance, *score.relative);
      add(static_cast<Real>(score.relative->table->value({bucket, at.head})));
    }
    return masked ? std::nullopt : std::optional(sum);
  }

  /// Returns the factors by which dropout multiplies the weights.
  std::vector<Real> kept(const RowPlace& place) const {
    std::vector<Real> factors(place.kv_len, Real(1));
    if (!problem_.has_dropout()) return factors;
    const DropoutRule rule(problem_.options.dropout, place.first.batch, place.first.head,
                           problem_.shape.q_heads);
    for (std::size_t j = 0; j < place.kv_len; ++j) {
      const bool keeps = rule.keeps(place.first.query, static_cast<std::int64_t>(j));
      factors[j] = keeps ? static_cast<Real>(rule.factor()) : Real(0);
    }
    return factors;
  }

  /// Computes the unrounded weights and lse from the masked scores.
  void normalize(const Row& row, RowSteps<Real>& s) const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    const auto& sinks = problem_.options.score.sinks;
    // A missing sink is -inf, whose exponential is 0.
    const Real sink =
        sinks.empty() ? -kInfinity : static_cast<Real>(sinks[static_cast<std::size_t>(row.head)]);
    const Normalization kind = problem_.how.normalization;
    s.unrounded.assign(s.masked.size(), Real(0));
    s.lse = kind == Normalization::kSum ? std::numeric_limits<Real>::quiet_NaN() : sink;

    // Subtracting the maximum score changes no weight, but keeps exp() from overflowing.
    Real shift = 0;
    bool empty = true;
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      if (!s.visible[j]) continue;
      if (kind == Normalization::kSoftmax && (empty || !(s.masked[j] <= shift)))
        shift = s.masked[j];
      empty = false;
    }
    if (empty) return;  // a fully masked row: its weights are 0, its lse is the sink or -inf
    if (kind == Normalization::kSoftmax && sink > shift) shift = sink;

    Real sum = 0;
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      if (!s.visible[j]) continue;
      s.unrounded[j] = kind == Normalization::kSum ? s.masked[j] : std::exp(s.masked[j] - shift);
      sum += s.unrounded[j];
    }
    if (!sinks.empty()) sum += std::exp(sink - shift);
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      if (s.visible[j]) s.unrounded[j] /= sum;
    }
    if (kind != Normalization::kSum) s.lse = shift + std::log(sum);
  }

  const Problem& problem_;
  // query_ and key_ hold q and k; q W and k for the general score; q W and k U for the additive
  // score.
  Contiguous<Real> query_, key_, value_;
  Contiguous<Real> v_;          // only for the additive score
  std::vector<double> slopes_;  // only for ALiBi
};

}  // namespace fovea::reference
