// SPDX-License-Identifier: Apache-2.0
//
// Attention, one query at a time, in the order of the textbook. Read attend() from top to bottom:
// each paragraph is one step. `Real` is double for the oracle and float for the naive computation
// in single precision; sums run over keys and dimensions from first to last, every operation
// rounded to Real.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/reference.h"

#include "core/broadcast.h"
#include "core/problem_shape.h"

namespace fovea::reference {
namespace {

/// A problem whose shapes have been checked.
struct Problem {
  const Inputs& in;
  const AttentionOptions& options;
  const ReferenceOptions& how;
  ProblemShape shape;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t hidden_dim = 0;  // 0 unless the score is additive

  double scale() const { return score_scale(options.score, head_dim); }
  bool has_bias() const {
    return options.score.bias.defined() || options.score.alibi || options.score.relative;
  }
};

/// Every step of one row, for the keys of its batch item or packed sequence, of which the first is
/// number `key_start` of the tensor. `visible[j]` is false where key j takes no part.
template <class Real>
struct RowSteps {
  std::int64_t key_start = 0;
  std::vector<Real> hidden;  // [kv_len * hidden_dim]
  std::vector<Real> scores, scaled, softcapped, custom, biased, masked, weights;
  std::vector<bool> visible;
  Real row_sum = 0;
  Real lse = 0;
  std::vector<Real> context;
};

/// The elements of a view as Real, without gaps: where they are if they are so, else in a copy.
template <class Real>
class Contiguous {
 public:
  Contiguous() = default;
  explicit Contiguous(const TensorView& source) : view_(source) {
    const bool ready = source.dtype() == dtype_of<Real>() &&
                       source.strides() == contiguous_strides(source.shape());
    if (!ready) *this = Contiguous(convert(source, dtype_of<Real>()));
  }
  explicit Contiguous(Tensor&& owner)
      : owner_(std::make_shared<const Tensor>(std::move(owner))), view_(owner_->view()) {}

  const Shape& shape() const { return view_.shape(); }
  std::span<const Real> span() const {
    return {static_cast<const Real*>(view_.data()), static_cast<std::size_t>(view_.size())};
  }

 private:
  std::shared_ptr<const Tensor> owner_;  // null where the elements are the caller's
  TensorView view_;
};

/// One row of a contiguous [batch, heads, length, dim] tensor.
template <class Real>
std::span<const Real> row_of(const Contiguous<Real>& tensor, std::int64_t batch, std::int64_t head,
                             std::int64_t position) {
  const Shape& shape = tensor.shape();
  const std::int64_t number = (batch * shape[1] + head) * shape[2] + position;
  return tensor.span().subspan(static_cast<std::size_t>(number * shape[3]),
                               static_cast<std::size_t>(shape[3]));
}

/// rows times weights; see project().
template <class Real>
Tensor multiply(const Contiguous<Real>& rows, const Contiguous<Real>& weights) {
  const auto dim = static_cast<std::size_t>(weights.shape()[0]);
  const auto columns = static_cast<std::size_t>(weights.shape()[1]);
  Shape shape = rows.shape();
  shape[shape.rank() - 1] = weights.shape()[1];
  Tensor result(dtype_of<Real>(), shape);
  const std::span<const Real> w = weights.span();
  const std::span<const Real> x = rows.span();
  const std::span<Real> y = result.span<Real>();
  for (std::size_t row = 0; row * dim < x.size(); ++row) {
    for (std::size_t d = 0; d < dim; ++d) {
      // Column by column each sum still runs from the first dimension to the last.
      for (std::size_t column = 0; column < columns; ++column) {
        y[row * columns + column] += x[row * dim + d] * w[d * columns + column];
      }
    }
  }
  return result;
}

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

  /// The whole of attention, for one query.
  RowSteps<Real> attend(const Row& row) const {
    const std::int64_t item = item_of(row);
    const SequenceSpan span = sequence_span(problem_.options, problem_.shape, item);
    const auto kv_len = static_cast<std::size_t>(span.kv_len);
    const std::int64_t kv_head = row.head / (problem_.shape.q_heads / problem_.shape.kv_heads);
    const ScoreOptions& score = problem_.options.score;
    const std::int64_t offset = query_offset(problem_.options, problem_.shape, item);
    const ScorePosition first_key{
        item, row.head, row.query - span.query_start, 0, offset, span.query_start, span.key_start};
    const auto place = [&](std::size_t j) {
      ScorePosition at = first_key;
      at.key = static_cast<std::int64_t>(j);
      return at;
    };
    const auto key_row = [&](const Contiguous<Real>& tensor, std::size_t j) {
      return row_of<Real>(tensor, row.batch, kv_head,
                          span.key_start + static_cast<std::int64_t>(j));
    };
    RowSteps<Real> s;
    s.key_start = span.key_start;

    // How well does the query match each key?
    const auto query = row_of<Real>(query_, row.batch, row.head, row.query);
    s.scores.resize(kv_len);
    for (std::size_t j = 0; j < kv_len; ++j) s.scores[j] = match(query, key_row(key_, j), s.hidden);

    // Scale, so that long vectors do not make large scores.
    s.scaled = s.scores;
    for (Real& x : s.scaled) x *= static_cast<Real>(problem_.scale());

    // Softcap: squash into (-c, c).
    s.softcapped = s.scaled;
    if (score.softcap > 0) {
      const Real c = static_cast<Real>(score.softcap);
      for (Real& x : s.softcapped) x = c * std::tanh(x / c);
    }

    // A custom function, of the caller's own.
    s.custom = s.softcapped;
    for (std::size_t j = 0; score.custom.one != nullptr && j < kv_len; ++j) {
      const double x = static_cast<double>(s.custom[j]);
      s.custom[j] = static_cast<Real>(score.custom.one(score.custom.state.get(), x, place(j)));
    }

    // Bias: what the positions say.
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    s.biased = s.custom;
    for (std::size_t j = 0; problem_.has_bias() && j < kv_len; ++j) {
      const auto bias = position_bias(place(j));
      if (s.biased[j] != -kInfinity) s.biased[j] = bias ? s.biased[j] + *bias : -kInfinity;
    }

    // Mask: what may not be seen takes no part from here on, nor does what has a score of -inf.
    s.masked = s.biased;
    s.visible.resize(kv_len);
    for (std::size_t j = 0; j < kv_len; ++j) {
      s.visible[j] = problem_.options.mask.visible(place(j)) && s.biased[j] != -kInfinity;
      if (!s.visible[j]) s.masked[j] = -kInfinity;
    }

    // Weights: positive numbers that add up to one.
    normalize(row, s);
    for (const Real weight : s.weights) s.row_sum += weight;
    round_as_stored(s.weights);

    // Context: the values, mixed by their weights.
    s.context.assign(static_cast<std::size_t>(problem_.value_dim), Real(0));
    for (std::size_t j = 0; j < kv_len; ++j) {
      if (!s.visible[j]) continue;
      const std::span<const Real> value = key_row(value_, j);
      for (std::size_t d = 0; d < value.size(); ++d) s.context[d] += s.weights[j] * value[d];
    }
    round_as_stored(s.context);
    return s;
  }

 private:
  /// To the type of 16 bits that the arithmetic is of, if it is.
  void round_as_stored(std::vector<Real>& numbers) const {
    const DType type = problem_.how.arithmetic;
    if (type == DType::kBFloat16) {
      for (Real& x : numbers) x = static_cast<Real>(static_cast<float>(BFloat16(x)));
    } else if (type == DType::kFloat16) {
      for (Real& x : numbers) x = static_cast<Real>(static_cast<float>(Float16(x)));
    }
  }

  /// The batch item or packed sequence that a query belongs to.
  std::int64_t item_of(const Row& row) const {
    if (problem_.shape.sequences == 0) return row.batch;
    // The last one that begins at or before it: those before that begin there too are empty.
    const auto& starts = problem_.options.sequences.query_starts;
    return std::upper_bound(starts.begin(), starts.end(), row.query) - starts.begin() - 1;
  }

  static Contiguous<Real> times(const Contiguous<Real>& rows, const TensorView& weights) {
    return Contiguous<Real>(multiply(rows, Contiguous<Real>(weights)));
  }

  /// The score of one key before scaling; an additive score appends its hidden layer to `hidden`.
  Real match(std::span<const Real> query, std::span<const Real> key,
             std::vector<Real>& hidden) const {
    Real sum = 0;
    if (problem_.hidden_dim > 0) {
      const std::span<const Real> v = v_.span();
      for (std::size_t h = 0; h < key.size(); ++h) {
        hidden.push_back(std::tanh(query[h] + key[h]));
        sum += v[h] * hidden.back();
      }
    } else {
      for (std::size_t d = 0; d < key.size(); ++d) sum += query[d] * key[d];
    }
    return sum;
  }

  /// The sum of all biases; nothing where one of them is -inf, which masks whatever the others are.
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

  /// Fills weights and lse from the masked scores.
  void normalize(const Row& row, RowSteps<Real>& s) const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    const auto& sinks = problem_.options.score.sinks;
    // Without a sink it is -inf, whose exponential adds nothing.
    const Real sink =
        sinks.empty() ? -kInfinity : static_cast<Real>(sinks[static_cast<std::size_t>(row.head)]);
    const Normalization kind = problem_.how.normalization;
    s.weights.assign(s.masked.size(), Real(0));
    s.lse = kind == Normalization::kSum ? std::numeric_limits<Real>::quiet_NaN() : sink;

    // Subtracting the largest score changes no weight, but keeps exp() from overflowing.
    Real shift = 0;
    bool empty = true;
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      if (!s.visible[j]) continue;
      if (kind == Normalization::kSoftmax && (empty || !(s.masked[j] <= shift)))
        shift = s.masked[j];
      empty = false;
    }
    if (empty) return;  // a fully masked row: weights 0, lse the sink or -inf
    if (kind == Normalization::kSoftmax && sink > shift) shift = sink;

    Real sum = 0;
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      if (!s.visible[j]) continue;
      s.weights[j] = kind == Normalization::kSum ? s.masked[j] : std::exp(s.masked[j] - shift);
      sum += s.weights[j];
    }
    if (!sinks.empty()) sum += std::exp(sink - shift);
    for (std::size_t j = 0; j < s.masked.size(); ++j) {
      if (s.visible[j]) s.weights[j] /= sum;
    }
    if (kind != Normalization::kSum) s.lse = shift + std::log(sum);
  }

  const Problem& problem_;
  // Contiguous, of type Real. What is compared: q and k; q W and k for the general score; q W and k
  // U for the additive one.
  Contiguous<Real> query_, key_, value_;
  Contiguous<Real> v_;          // of the additive score only
  std::vector<double> slopes_;  // of ALiBi only
};

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidArgument(message);
}

void require_shape(const TensorView& tensor, const char* name, const Shape& expected) {
  require(tensor.defined() && tensor.shape() == expected,
          fmt::format("{}: expected shape {}, got {}", name, to_string(expected),
                      tensor.defined() ? to_string(tensor.shape()) : "nothing"));
}

/// Checks everything before anything is computed.
Problem make_problem(const Inputs& in, const AttentionOptions& options,
                     const ReferenceOptions& how) {
  validate_input(in.query, "query");
  validate_input(in.key, "key");
  validate_input(in.value, "value");
  const ProblemShape shape = problem_shape(in.query, in.key, in.value, options);
  Problem problem{in, options, how, shape, in.query.extent(3), in.value.extent(3), 0};
  require(is_float(how.arithmetic),
          fmt::format("arithmetic: expected float64, float32, float16 or bfloat16, got {}",
                      dtype_name(how.arithmetic)));
  require(how.normalization != Normalization::kSum || options.score.sinks.empty(),
          "sinks: a sink is a logit; division by the sum has none");

  const std::int64_t key_dim = in.key.extent(3);
  if (const auto* general = std::get_if<GeneralScore>(&how.score_kind)) {
    require_shape(general->weights, "general score weights", {problem.head_dim, key_dim});
  } else if (const auto* additive = std::get_if<AdditiveScore>(&how.score_kind)) {
    require(additive->v.defined() && additive->v->rank() == 1,
            fmt::format("additive score v: expected [hidden_dim], got {}",
                        additive->v.defined() ? to_string(additive->v->shape()) : "nothing"));
    problem.hidden_dim = additive->v->extent(0);
    require_shape(additive->query_weights, "additive score query weights",
                  {problem.head_dim, problem.hidden_dim});
    require_shape(additive->key_weights, "additive score key weights",
                  {key_dim, problem.hidden_dim});
  } else {
    require(key_dim == problem.head_dim,
            fmt::format("key: expected dim {} as query has, got {}", problem.head_dim, key_dim));
  }
  validate(options, shape);
  if (how.arithmetic != DType::kFloat64) {
    // What float64 holds may be nothing or everything in float32.
    const auto scale = static_cast<float>(problem.scale());
    const auto softcap = static_cast<float>(options.score.softcap);
    require(std::isfinite(scale),
            fmt::format("scale: expected a number that float32 holds, got {}", problem.scale()));
    require(std::isfinite(softcap) && (softcap > 0 || options.score.softcap == 0),
            fmt::format("softcap: expected a number that float32 holds, got {}",
                        options.score.softcap));
  }
  return problem;
}

/// Copies numbers to their place in a tensor, from element number `first` on.
template <class Real>
void store(Tensor& tensor, std::int64_t first, const std::vector<Real>& numbers) {
  if (!tensor.defined()) return;
  std::copy(numbers.begin(), numbers.end(), tensor.span<Real>().begin() + first);
}

template <class Real>
Steps all_steps(const Problem& problem) {
  const ProblemShape& p = problem.shape;
  const Shape per_row{p.batch, p.q_heads, p.q_len};
  const auto make = [&](bool present, std::int64_t last, std::int64_t after = -1) {
    if (!present) return Tensor();
    Shape shape = per_row;
    shape.push_back(last);
    if (after >= 0) shape.push_back(after);
    return Tensor(dtype_of<Real>(), shape);
  };
  // Scores of keys of other sequences do not exist.
  const auto make_scores = [&](bool present) {
    Tensor scores = make(present, p.kv_len);
    if (present && p.sequences > 0) {
      std::ranges::fill(scores.span<Real>(), -std::numeric_limits<Real>::infinity());
    }
    return scores;
  };
  const bool masks = !problem.options.mask.allows_all() || p.sequences > 0;
  Steps steps;
  steps.hidden = make(problem.hidden_dim > 0, p.kv_len, problem.hidden_dim);
  steps.scores = make_scores(true);
  steps.scaled_scores = make_scores(problem.scale() != 1.0);
  steps.softcapped_scores = make_scores(problem.options.score.softcap > 0);
  steps.custom_scores = make_scores(problem.options.score.custom.one != nullptr);
  steps.biased_scores = make_scores(problem.has_bias());
  steps.masked_scores = make_scores(masks);
  steps.weights = make(true, p.kv_len);
  steps.row_sums = Tensor(dtype_of<Real>(), per_row);
  steps.lse = Tensor(dtype_of<Real>(), per_row);
  Shape pairs = per_row;
  pairs.push_back(p.kv_len);
  steps.visible = Tensor(DType::kBool, pairs);
  steps.context = make(true, problem.value_dim);

  const RowAttention<Real> attention(problem);
  std::int64_t number = 0;
  for_each_index(per_row, [&](const Index& at) {
    const RowSteps<Real> row = attention.attend({at[0], at[1], at[2]});
    const std::int64_t first_key = number * p.kv_len + row.key_start;
    store(steps.hidden, first_key * problem.hidden_dim, row.hidden);
    store(steps.scores, first_key, row.scores);
    store(steps.scaled_scores, first_key, row.scaled);
    store(steps.softcapped_scores, first_key, row.softcapped);
    store(steps.custom_scores, first_key, row.custom);
    store(steps.biased_scores, first_key, row.biased);
    store(steps.masked_scores, first_key, row.masked);
    store(steps.weights, first_key, row.weights);
    std::copy(row.visible.begin(), row.visible.end(),
              steps.visible.span<bool>().begin() + first_key);
    store(steps.context, number * problem.value_dim, row.context);
    steps.row_sums.at<Real>(at) = row.row_sum;
    steps.lse.at<Real>(at) = row.lse;
    ++number;
  });
  return steps;
}

template <class Real>
Rows selected_rows(const Problem& problem, std::span<const Row> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  Rows result{Tensor(dtype_of<Real>(), {count, problem.value_dim}),
              Tensor(dtype_of<Real>(), {count}),
              Tensor(dtype_of<Real>(), {count, problem.shape.kv_len})};
  const RowAttention<Real> attention(problem);
  for (std::int64_t number = 0; number < count; ++number) {
    const RowSteps<Real> row = attention.attend(rows[static_cast<std::size_t>(number)]);
    store(result.context, number * problem.value_dim, row.context);
    store(result.weights, number * problem.shape.kv_len + row.key_start, row.weights);
    result.lse.at<Real>({number}) = row.lse;
  }
  return result;
}

}  // namespace

Tensor project(const TensorView& rows, const TensorView& weights, DType arithmetic) {
  require(rows.defined() && rows.rank() > 0 && weights.defined() && weights.rank() == 2 &&
              weights.shape()[0] == rows.extent(rows.rank() - 1),
          fmt::format("project: expected rows [..., dim] and weights [dim, columns], got {} and {}",
                      rows.defined() ? to_string(rows.shape()) : "nothing",
                      weights.defined() ? to_string(weights.shape()) : "nothing"));
  require(arithmetic == DType::kFloat64 || arithmetic == DType::kFloat32,
          fmt::format("arithmetic: expected float64 or float32, got {}", dtype_name(arithmetic)));
  return arithmetic == DType::kFloat64
             ? multiply(Contiguous<double>(rows), Contiguous<double>(weights))
             : multiply(Contiguous<float>(rows), Contiguous<float>(weights));
}

Steps attention_steps(const Inputs& inputs, const AttentionOptions& options,
                      const ReferenceOptions& how) {
  const Problem problem = make_problem(inputs, options, how);
  return how.arithmetic == DType::kFloat64 ? all_steps<double>(problem) : all_steps<float>(problem);
}

Rows attention_rows(const Inputs& inputs, const AttentionOptions& options,
                    std::span<const Row> rows, const ReferenceOptions& how) {
  const Problem problem = make_problem(inputs, options, how);
  const ProblemShape& shape = problem.shape;
  for (const Row& row : rows) {
    require(row.batch >= 0 && row.batch < shape.batch && row.head >= 0 &&
                row.head < shape.q_heads && row.query >= 0 && row.query < shape.q_len,
            fmt::format("row: expected [batch, head, query] within [{}, {}, {}], got [{}, {}, {}]",
                        shape.batch, shape.q_heads, shape.q_len, row.batch, row.head, row.query));
  }
  return how.arithmetic == DType::kFloat64 ? selected_rows<double>(problem, rows)
                                           : selected_rows<float>(problem, rows);
}

}  // namespace fovea::reference
