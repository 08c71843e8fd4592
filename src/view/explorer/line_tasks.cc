// SPDX-License-Identifier: Apache-2.0
//
// Cells, rows and columns (tasks.h).

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <span>
#include <utility>

#include "problem/visible_pairs.h"
#include "reference/lenses.h"
#include "view/explorer/block_worker.h"
#include "view/explorer/tasks.h"

namespace fovea::view {
namespace {

using Clock = std::chrono::steady_clock;

/// At most so many entries of RowAnswer::powers; the last one also counts smaller weights.
constexpr std::int64_t kPowers = 64;
/// The queries of a column are computed in parts, each in some milliseconds.
constexpr std::int64_t kColumnPart = 1 << 15;
/// The time after which a unit of many small calls ends.
constexpr std::chrono::milliseconds kUnit(40);

/// The largest weights so far, in descending order; ties are broken by the lower position.
class LargestWeights {
 public:
  explicit LargestWeights(std::int64_t most) : most_(static_cast<std::size_t>(most)) {}

  /// Positions must ascend.
  void add(std::int64_t position, double weight) {
    if (!(weight > 0.0) || most_ == 0) return;
    if (found_.size() == most_ && !(weight > found_.back().weight)) return;
    const auto place =
        std::upper_bound(found_.begin(), found_.end(), weight,
                         [](double value, const KeyWeight& other) { return value > other.weight; });
    found_.insert(place, {position, weight});
    if (found_.size() > most_) found_.pop_back();
  }
  const std::vector<KeyWeight>& found() const { return found_; }

 private:
  std::size_t most_;
  std::vector<KeyWeight> found_;
};

/// Counts the visible pairs of a row.
std::int64_t visible_keys(const HeadStore& head, std::int64_t query) {
  const VisiblePairs pairs_seen(head.options());
  const KeyRange range = pairs_seen.key_range(head.at(query, 0), head.pyramid().keys());
  if (range.begin >= range.end) return 0;
  if (range.exact) return range.end - range.begin;
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(range.end - range.begin));
  pairs_seen.fill(head.at(query, range.begin), range.end - range.begin, visible.data());
  return std::count(visible.begin(), visible.end(), std::uint8_t{1});
}

/// Returns n with 2^-(n + 1) < weight <= 2^-n.
std::int64_t power_of(double weight) {
  int exponent = 0;
  const double fraction = std::frexp(weight, &exponent);
  return std::max(0, fraction == 0.5 ? 1 - exponent : -exponent);
}

RowAnswer describe_row(const HeadStore& head, std::int64_t query, double lse, std::int64_t top,
                       std::span<const double> weights) {
  RowAnswer answer;
  answer.lse = lse;
  answer.visible = visible_keys(head, query);
  const reference::RowNumbers numbers = reference::row_numbers(weights, head.at(query, 0));
  answer.entropy = numbers.entropy;
  answer.maximum = numbers.maximum;
  answer.maximum_key = numbers.maximum_key;
  answer.mean_distance = numbers.mean_distance;
  answer.first_key = numbers.first_key;
  if (std::isnan(numbers.maximum)) return answer;
  LargestWeights largest(top);
  std::int64_t positive = 0;
  answer.powers.resize(kPowers);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0.0)) continue;
    ++positive;
    ++answer.powers[static_cast<std::size_t>(std::min(power_of(weights[i]), kPowers - 1))];
    largest.add(static_cast<std::int64_t>(i), weights[i]);
  }
  answer.powers.back() += answer.visible - positive;
  while (!answer.powers.empty() && answer.powers.back() == 0) answer.powers.pop_back();
  answer.top = largest.found();
  return answer;
}

/// A question about weights whose rows must have lse first.
class LineTask : public BlockWorker {
 protected:
  LineTask(ExplorerParts& parts, std::shared_ptr<HeadStore> head)
      : parts_(parts), head_(std::move(head)) {}

  /// Computes the next row block without lse that has one of these queries and may see one of the
  /// keys. Returns whether there was none.
  bool has_lse(const IndexRange& queries, const IndexRange& keys, const Execution& execution) {
    const Pyramid& pyramid = head_->pyramid();
    for (std::int64_t block = queries.begin >> kBlockLevel;
         block < cells_of(queries.end, kBlockLevel); ++block) {
      const IndexRange& seen = pyramid.keys_of(block);
      const bool meets = seen.begin < keys.end && keys.begin < seen.end;
      if (!meets || head_->has_lse(block)) continue;
      const bool cells = parts_.make_room(*head_, block);
      work(*head_, block, cells ? BlockPart::kCells : BlockPart::kLse, execution);
      const std::lock_guard lock(parts_.mutex);
      ++parts_.counts.blocks;
      return false;
    }
    return true;
  }

  /// Returns a column of weights.
  Tensor column(std::int64_t key, const IndexRange& queries, const Execution& execution) const {
    Tensor weights(head_->dtype(), {queries.size(), 1});
    attention_weights(
        head_->inputs(),
        {.first_query = queries.begin, .queries = queries.size(), .first_key = key, .keys = 1},
        head_->options(execution), weights);
    return weights;
  }

  ExplorerParts& parts_;
  const std::shared_ptr<HeadStore> head_;
};

class CellTask : public RequestTask<CellAnswer> {
 public:
  CellTask(std::shared_ptr<HeadStore> head, std::int64_t query, std::int64_t key)
      : RequestTask(Urgency::kLine), head_(std::move(head)), query_(query), key_(key) {}

  bool step(const Execution& execution) override {
    const RowProblem row(*head_, query_, execution);
    const WeightTile tile = {.queries = 1, .first_key = key_, .keys = 1};
    Tensor score(head_->dtype(), {1, 1}), weight(head_->dtype(), {1, 1});
    attention_scores(row.inputs(), tile, row.options(), score);
    attention_weights(row.inputs(), tile, row.options(), weight);
    answer({.score = score.value({0, 0}),
            .weight = weight.value({0, 0}),
            .lse = row.lse(),
            .hidden = !VisiblePairs(head_->options()).visible(head_->at(query_, key_))});
    return true;
  }

 private:
  const std::shared_ptr<HeadStore> head_;
  const std::int64_t query_, key_;
};

class RowTask : public RequestTask<RowAnswer> {
 public:
  RowTask(std::shared_ptr<HeadStore> head, std::int64_t query, std::int64_t top)
      : RequestTask(Urgency::kLine), head_(std::move(head)), query_(query), top_(top) {}

  bool step(const Execution& execution) override {
    const RowProblem row(*head_, query_, execution);
    Tensor weights(head_->dtype(), {head_->pyramid().keys()});
    attention_row(row.inputs(), {.head = 0}, row.options(), weights);
    const Tensor numbers = convert(weights, DType::kFloat64);
    answer(describe_row(*head_, query_, row.lse(), top_, numbers.span<double>()));
    return true;
  }

 private:
  const std::shared_ptr<HeadStore> head_;
  const std::int64_t query_, top_;
};

/// Sums a column in parts. attention_received() would compute all columns.
class ColumnTask : public RequestTask<ColumnAnswer>, public LineTask {
 public:
  ColumnTask(ExplorerParts& parts, std::shared_ptr<HeadStore> head, std::int64_t key,
             std::int64_t top)
      : RequestTask(Urgency::kLine), LineTask(parts, std::move(head)), key_(key), largest_(top) {}

  bool step(const Execution& execution) override {
    const std::int64_t all = head_->pyramid().queries();
    const IndexRange queries = {next_, std::min(next_ + kColumnPart, all)};
    if (!has_lse(queries, {key_, key_ + 1}, execution)) return false;
    if (head_->classify(queries, {key_, key_ + 1}) != Visibility::kNone) {
      const Tensor weights = column(key_, queries, execution);
      for (std::int64_t i = 0; i < queries.size(); ++i) {
        const double weight = weights.value({i, 0});
        answer_.sum += weight;
        if (!(weight <= answer_.largest) && !std::isnan(answer_.largest)) answer_.largest = weight;
        largest_.add(queries.begin + i, weight);
      }
    }
    next_ = queries.end;
    if (next_ < all) return false;
    answer_.top = largest_.found();
    answer(std::move(answer_));
    return true;
  }

 private:
  const std::int64_t key_;
  std::int64_t next_ = 0;
  LargestWeights largest_;
  ColumnAnswer answer_;
};

class LinesTask : public RequestTask<std::vector<float>>, public LineTask {
 public:
  LinesTask(ExplorerParts& parts, std::shared_ptr<HeadStore> head, LineRequest request)
      : RequestTask(Urgency::kLine),
        LineTask(parts, std::move(head)),
        request_(std::move(request)),
        sums_(static_cast<std::size_t>(request_.range.size())),
        seen_(sums_.size()) {}

  bool step(const Execution& execution) override {
    const auto start = Clock::now();
    const IndexRange& range = request_.range;
    for (; next_ < request_.lines.size(); ++next_) {
      if (Clock::now() - start > kUnit) return false;
      const std::int64_t line = request_.lines[next_];
      const IndexRange one = {line, line + 1};
      const IndexRange& queries = request_.of_keys ? one : range;
      const IndexRange& keys = request_.of_keys ? range : one;
      if (!has_lse(queries, keys, execution)) return false;
      Tensor weights(head_->dtype(), {queries.size(), keys.size()});
      attention_weights(head_->inputs(),
                        {.first_query = queries.begin,
                         .queries = queries.size(),
                         .first_key = keys.begin,
                         .keys = keys.size()},
                        head_->options(execution), weights);
      add(std::move(weights).reshaped({range.size()}), line);
    }
    const auto lines = static_cast<double>(request_.lines.size());
    std::vector<float> means(sums_.size(), -1.0f);
    for (std::size_t i = 0; i < means.size(); ++i) {
      if (seen_[i] != 0) means[i] = static_cast<float>(sums_[i] / lines);
    }
    answer(std::move(means));
    return true;
  }

 private:
  void add(const Tensor& weights, std::int64_t line) {
    const VisiblePairs pairs_seen(head_->options());
    const IndexRange& range = request_.range;
    std::vector<std::uint8_t> visible(sums_.size());
    if (request_.of_keys) {
      pairs_seen.fill(head_->at(line, range.begin), range.size(), visible.data());
    } else {
      for (std::size_t i = 0; i < visible.size(); ++i) {
        const bool sees =
            pairs_seen.visible(head_->at(range.begin + static_cast<std::int64_t>(i), line));
        visible[i] = sees ? 1 : 0;
      }
    }
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i] += weights.value({static_cast<std::int64_t>(i)});
      seen_[i] = static_cast<std::uint8_t>(seen_[i] | visible[i]);
    }
  }

  const LineRequest request_;
  std::size_t next_ = 0;
  std::vector<double> sums_;
  std::vector<std::uint8_t> seen_;
};

}  // namespace

TaskOf<CellAnswer> make_cell_task(std::shared_ptr<HeadStore> head, std::int64_t query,
                                  std::int64_t key) {
  return std::make_shared<CellTask>(std::move(head), query, key);
}

TaskOf<RowAnswer> make_row_task(std::shared_ptr<HeadStore> head, std::int64_t query,
                                std::int64_t top) {
  return std::make_shared<RowTask>(std::move(head), query, top);
}

TaskOf<ColumnAnswer> make_column_task(ExplorerParts& parts, std::shared_ptr<HeadStore> head,
                                      std::int64_t key, std::int64_t top) {
  return std::make_shared<ColumnTask>(parts, std::move(head), key, top);
}

TaskOf<std::vector<float>> make_lines_task(ExplorerParts& parts, std::shared_ptr<HeadStore> head,
                                           LineRequest request) {
  return std::make_shared<LinesTask>(parts, std::move(head), std::move(request));
}

}  // namespace fovea::view
