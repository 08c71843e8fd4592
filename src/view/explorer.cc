// SPDX-License-Identifier: Apache-2.0
//
// The requests of the page as tasks (explorer.h). Tensors, lse and cells of heads are touched by
// the scheduler's thread alone; the lock protects what requests share: heads, the cache, and tasks
// that further requests may join.

#include "view/explorer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

#include "fovea/analysis.h"
#include "fovea/error.h"
#include "fovea/heads.h"

#include "core/fail.h"
#include "problem/part.h"
#include "recording/head_statistics.h"
#include "reference/lenses.h"
#include "view/cache.h"
#include "view/head_store.h"
#include "view/pass.h"
#include "view/scheduler.h"

namespace fovea::view {
namespace {

using Clock = std::chrono::steady_clock;

/// At most so many entries of RowAnswer::powers; the last one also counts smaller weights.
constexpr std::int64_t kPowers = 64;
constexpr std::int64_t kThumbnailSide = 64;
/// The queries of a column are computed in parts, each in some milliseconds.
constexpr std::int64_t kColumnPart = 1 << 15;
/// The time after which a unit of many small calls ends.
constexpr std::chrono::milliseconds kUnit(40);
/// The cells of a head are not dropped for the pass of another for so long after it was viewed.
constexpr std::chrono::seconds kViewed(10);
constexpr std::int64_t kMinMemory = std::int64_t{4} << 20;

void check_index(const char* name, std::int64_t index, std::int64_t count) {
  if (index < 0 || index >= count) {
    fail_argument(name, "expected 0 to {}, got {}", count - 1, index);
  }
}

void check_top(std::int64_t top) {
  if (top < 0 || top > kMaxTopKeys) {
    fail_argument("top", "expected 0 to {}, got {}", kMaxTopKeys, top);
  }
}

void check_range(const char* name, const IndexRange& range, std::int64_t length) {
  if (range.begin < 0 || range.begin >= range.end || range.end > length) {
    fail_argument(name, "expected a range within 0 to {} of at least 1, got {} to before {}",
                  length, range.begin, range.end);
  }
}

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

/// Computes and stores row blocks of one head at a time.
class BlockWorker {
 public:
  virtual ~BlockWorker() = default;
  /// Returns the head of the block that is being computed, or null. Any thread.
  const HeadStore* head_in_work() const { return head_; }
  std::int64_t block_in_work() const { return block_; }

 protected:
  void work(HeadStore& head, std::int64_t block, bool cells, const Execution& execution) {
    block_ = block;
    head_ = &head;
    try {
      compute_block(head, block, cells, execution);
    } catch (...) {
      head_ = nullptr;
      throw;
    }
    head_ = nullptr;
  }

 private:
  std::atomic<const HeadStore*> head_ = nullptr;
  std::atomic<std::int64_t> block_ = 0;
};

/// Returns the frame of a tile of which no pair is visible; null if some may be.
FrameBytes hidden_tile(const HeadStore& head, const FrameHeader& header, const TilePlace& tile) {
  const Pyramid& pyramid = head.pyramid();
  if (head.classify(pyramid.queries_of(tile), pyramid.keys_of(tile)) != Visibility::kNone)
    return {};
  const std::vector<Code> codes(static_cast<std::size_t>(header.rows * header.columns));
  return std::make_shared<const std::string>(encode_frame(header, codes));
}

/// Returns the place of a thumbnail in the cache, which no tile has.
TileKey thumbnail_key(const HeadPlace& head, Pool reduce) {
  return {head, {.reduce = reduce, .level = -1}};
}

FrameHeader header_of(const Pyramid& pyramid, const TilePlace& tile) {
  return {.reduce = tile.reduce,
          .level = tile.level,
          .x = tile.x,
          .y = tile.y,
          .columns = cells_of(pyramid.keys_of(tile).size(), tile.level),
          .rows = cells_of(pyramid.queries_of(tile).size(), tile.level)};
}

/// Counts the pairs of a row that the mask shows.
std::int64_t visible_keys(const HeadStore& head, std::int64_t query) {
  const Mask& mask = head.options().mask;
  const KeyRange range = mask.key_range(head.at(query, 0), head.pyramid().keys());
  if (range.begin >= range.end) return 0;
  if (range.exact) return range.end - range.begin;
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(range.end - range.begin));
  mask.fill(head.at(query, range.begin), range.end - range.begin, visible.data());
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

}  // namespace

struct Explorer::Parts {
  using HeadKey = std::tuple<std::size_t, std::size_t, std::int64_t>;
  using LayerKey = std::tuple<std::size_t, std::size_t>;
  using ThumbKey = std::tuple<std::size_t, std::size_t, Pool>;
  struct KnownHead {
    std::shared_ptr<HeadStore> store;
    Clock::time_point viewed;
    bool wants_pass = false;
    // The queries whose blocks come first: those of the last tile, or of start_pass().
    IndexRange asked = {};
  };
  class TileTask;
  class LineTask;
  class CellTask;
  class RowTask;
  class ColumnTask;
  class LinesTask;
  class HeadsTask;
  class ThumbnailsTask;
  class MapTask;
  class PassTask;

  Parts(std::vector<Input> given, const ExplorerOptions& with);
  ~Parts() { scheduler.close(); }

  const Layer& layer_of(const HeadPlace& head) const;
  std::int64_t cell_budget() const { return settings.memory / 2; }
  /// Returns the head, which counts as viewed now. Call with the lock.
  KnownHead& known(const HeadPlace& head);
  /// Forgets the heads viewed longest ago until the lse of the others fits. Call with the lock.
  void forget_heads(const HeadPlace& except);
  /// Adds the task of the pass if it is not in the queue. Call with the lock.
  void queue_pass();
  /// Takes the head out of the pass. Call with the lock.
  void end_pass(HeadStore& head);
  static void require_memory(const std::vector<Input>& inputs, std::int64_t memory);
  /// Drops the cells of heads that were viewed longest ago until those of the row block fit. Unless
  /// forced, spares heads that were viewed a moment ago. Returns whether the cells fit. Called from
  /// the scheduler's thread.
  bool make_room(const HeadStore& head, std::int64_t block, bool forced);

  /// Returns the frames of all heads of a layer if the cache has them. Call with the lock.
  std::optional<std::vector<FrameBytes>> find_thumbnails(HeadPlace place, Pool reduce);

  /// Starts a task for the request, or lets it join one with the same key.
  template <class Key, class Made, class Result, class Make>
  void join_or_add(std::map<Key, std::weak_ptr<Made>>& tasks, const Key& key, std::stop_token stop,
                   Reply<Result> reply, const Make& make);
  template <class Made, class Result>
  void add(std::shared_ptr<Made> task, std::stop_token stop, Reply<Result> reply);

  const std::vector<Input> opened;
  const ExplorerOptions settings;
  mutable std::mutex mutex;
  std::map<HeadKey, KnownHead> heads;
  FrameCache cache;
  std::map<TileKey, std::weak_ptr<TileTask>> tiles;
  std::map<LayerKey, std::weak_ptr<HeadsTask>> head_tasks;
  std::map<LayerKey, std::vector<HeadNumbers>> head_numbers;
  std::map<ThumbKey, std::weak_ptr<ThumbnailsTask>> thumbnail_tasks;
  Counters counts;
  bool pass_queued = false;
  Scheduler scheduler;  // last: its thread uses all other members
};

/// A tile, with the row blocks that it needs.
class Explorer::Parts::TileTask : public RequestTask<FrameBytes>, public BlockWorker {
 public:
  TileTask(Parts& parts, std::shared_ptr<HeadStore> head, const TilePlace& tile)
      : RequestTask(Urgency::kTile), parts_(parts), head_(std::move(head)), tile_(tile) {}

  bool step(const Execution& execution) override {
    const Pyramid& pyramid = head_->pyramid();
    const IndexRange queries = pyramid.queries_of(tile_);
    for (std::int64_t block = queries.begin >> kBlockLevel;
         block < cells_of(queries.end, kBlockLevel); ++block) {
      if (!pyramid.meets(block, tile_)) continue;
      if (stored() ? head_->has_cells(block) : head_->has_lse(block)) continue;
      if (stored() && head_->paused()) {
        throw PassPaused("the pass over the rows of this head is paused");
      }
      work(*head_, block, parts_.make_room(*head_, block, stored()), execution);
      const std::lock_guard lock(parts_.mutex);
      ++parts_.counts.blocks;
      return false;
    }
    const std::vector<Code> codes = stored() ? tile_of_blocks(pyramid, tile_, head_->cells())
                                             : compute_tile(*head_, tile_, execution);
    if (tile_.reduce == Pool::kMax) head_->note_cells(tile_.level, codes);
    auto frame =
        std::make_shared<const std::string>(encode_frame(header_of(pyramid, tile_), codes));
    {
      const std::lock_guard lock(parts_.mutex);
      parts_.cache.store(key(), frame);
      ++parts_.counts.computed;
      forget();
    }
    answer(std::move(frame));
    return true;
  }

  void fail(std::exception_ptr error) override {
    {
      const std::lock_guard lock(parts_.mutex);
      forget();
    }
    RequestTask::fail(std::move(error));
  }

  void cancel() override {
    const std::lock_guard lock(parts_.mutex);
    ++parts_.counts.cancelled;
    forget();
  }

  /// The coarsest tiles need many row blocks, and each may take most of a second.
  bool yields() const override { return stored() && head_in_work() != nullptr; }

  bool gains_from(const Task& other) const override {
    const auto* const worker = dynamic_cast<const BlockWorker*>(&other);
    return worker != nullptr && worker->head_in_work() == head_.get() &&
           head_->pyramid().meets(worker->block_in_work(), tile_);
  }

 private:
  bool stored() const { return head_->pyramid().stored(tile_.level); }
  TileKey key() const { return {head_->place(), tile_}; }

  void forget() {
    const auto found = parts_.tiles.find(key());
    if (found != parts_.tiles.end() && found->second.lock().get() == this) {
      parts_.tiles.erase(found);
    }
  }

  Parts& parts_;
  const std::shared_ptr<HeadStore> head_;
  const TilePlace tile_;
};

/// A question about weights whose rows must have lse first.
class Explorer::Parts::LineTask : public BlockWorker {
 protected:
  LineTask(Parts& parts, std::shared_ptr<HeadStore> head) : parts_(parts), head_(std::move(head)) {}

  /// Computes the next row block without lse that has one of these queries and may see one of the
  /// keys. Returns whether there was none.
  bool has_lse(const IndexRange& queries, const IndexRange& keys, const Execution& execution) {
    const Pyramid& pyramid = head_->pyramid();
    for (std::int64_t block = queries.begin >> kBlockLevel;
         block < cells_of(queries.end, kBlockLevel); ++block) {
      const IndexRange& seen = pyramid.keys_of(block);
      const bool meets = seen.begin < keys.end && keys.begin < seen.end;
      if (!meets || head_->has_lse(block)) continue;
      work(*head_, block, parts_.make_room(*head_, block, false), execution);
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

  Parts& parts_;
  const std::shared_ptr<HeadStore> head_;
};

class Explorer::Parts::CellTask : public RequestTask<CellAnswer> {
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
            .hidden = !head_->options().mask.visible(head_->at(query_, key_))});
    return true;
  }

 private:
  const std::shared_ptr<HeadStore> head_;
  const std::int64_t query_, key_;
};

class Explorer::Parts::RowTask : public RequestTask<RowAnswer> {
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
class Explorer::Parts::ColumnTask : public RequestTask<ColumnAnswer>, public LineTask {
 public:
  ColumnTask(Parts& parts, std::shared_ptr<HeadStore> head, std::int64_t key, std::int64_t top)
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

class Explorer::Parts::LinesTask : public RequestTask<std::vector<float>>, public LineTask {
 public:
  LinesTask(Parts& parts, std::shared_ptr<HeadStore> head, LineRequest request)
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
    const Mask& mask = head_->options().mask;
    const IndexRange& range = request_.range;
    std::vector<std::uint8_t> visible(sums_.size());
    if (request_.of_keys) {
      mask.fill(head_->at(line, range.begin), range.size(), visible.data());
    } else {
      for (std::size_t i = 0; i < visible.size(); ++i) {
        const bool sees = mask.visible(head_->at(range.begin + static_cast<std::int64_t>(i), line));
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

/// One head per unit.
class Explorer::Parts::HeadsTask : public RequestTask<std::vector<HeadNumbers>> {
 public:
  HeadsTask(Parts& parts, const HeadPlace& place)
      : RequestTask(Urgency::kOverview), parts_(parts), place_(place) {}

  bool step(const Execution& execution) override {
    const Layer& layer = parts_.layer_of(place_);
    const RecordedAttention& attention = layer.attention;
    if (std::ssize(told_) < layer.heads()) {
      AttentionOptions options = attention.options;
      options.execution = execution;
      const auto head = std::ssize(told_);
      const ProblemPart part(options, attention.shape(),
                             {.item = layer.batch, .head = head, .queries = layer.queries()});
      told_.push_back(
          recording::tell_heads({part.queries_of(attention.query), part.keys_of(attention.key)},
                                part.options(), recording::kHeadBlocks)[0]);
      told_.back().batch = layer.batch;
      return false;
    }
    const std::shared_ptr<const Recording>& recording = parts_.opened[place_.input].recording;
    std::optional<TokenScores> scores;
    if (recording) scores = token_scores(*recording, attention, execution);
    std::vector<HeadNumbers> numbers;
    for (std::int64_t head = 0; head < layer.heads(); ++head) {
      engine::HeadTold& told = told_[static_cast<std::size_t>(head)];
      if (scores) recording::add_token_scores(*scores, head, told);
      HeadNumbers& one = numbers.emplace_back();
      one.head = attention.model_head(head);
      one.name = told.name();
      one.numbers.assign(told.numbers.begin(), told.numbers.end());
      one.numbers.push_back(told.induction);
      one.numbers.push_back(told.duplicate);
    }
    {
      const std::lock_guard lock(parts_.mutex);
      parts_.head_numbers[{place_.input, place_.layer}] = numbers;
    }
    answer(std::move(numbers));
    return true;
  }

 private:
  Parts& parts_;
  const HeadPlace place_;
  std::vector<engine::HeadTold> told_;
};

/// One head per unit.
class Explorer::Parts::ThumbnailsTask : public RequestTask<std::vector<FrameBytes>> {
 public:
  ThumbnailsTask(Parts& parts, const HeadPlace& place, Pool reduce)
      : RequestTask(Urgency::kOverview), parts_(parts), place_(place), reduce_(reduce) {}

  bool step(const Execution& execution) override {
    const Layer& layer = parts_.layer_of(place_);
    const RecordedAttention& attention = layer.attention;
    AttentionOptions options = attention.options;
    options.execution = execution;
    const auto head = std::ssize(frames_);
    const AttentionMap map = attention_map(attention.inputs(),
                                           {.batch = layer.batch,
                                            .head = head,
                                            .queries = {0, layer.queries()},
                                            .keys = {0, layer.keys()},
                                            .rows = std::min(kThumbnailSide, layer.queries()),
                                            .columns = std::min(kThumbnailSide, layer.keys()),
                                            .pool = reduce_},
                                           options);
    const FrameHeader header = {.reduce = reduce_,
                                .x = attention.model_head(head),
                                .y = static_cast<std::int64_t>(place_.layer),
                                .columns = map.map.columns(),
                                .rows = map.map.rows()};
    frames_.push_back(std::make_shared<const std::string>(
        encode_frame(header, encode_cells(map.map.cells, map.map.pairs))));
    if (std::ssize(frames_) < layer.heads()) return false;
    {
      const std::lock_guard lock(parts_.mutex);
      HeadPlace place = place_;
      for (place.head = 0; place.head < layer.heads(); ++place.head) {
        parts_.cache.store(thumbnail_key(place, reduce_),
                           frames_[static_cast<std::size_t>(place.head)]);
      }
    }
    answer(std::move(frames_));
    return true;
  }

 private:
  Parts& parts_;
  const HeadPlace place_;
  const Pool reduce_;
  std::vector<FrameBytes> frames_;
};

class Explorer::Parts::MapTask : public RequestTask<AttentionMap> {
 public:
  MapTask(Parts& parts, const HeadPlace& place, const MapRequest& request)
      : RequestTask(Urgency::kExport), parts_(parts), place_(place), request_(request) {
    request_.batch = parts.layer_of(place).batch;
    request_.head = place.head;
  }

  bool step(const Execution& execution) override {
    const RecordedAttention& attention = parts_.layer_of(place_).attention;
    AttentionOptions options = attention.options;
    options.execution = execution;
    answer(attention_map(attention.inputs(), request_, options));
    return true;
  }

 private:
  Parts& parts_;
  const HeadPlace place_;
  MapRequest request_;
};

/// The pass over the rows of all heads that want it, the one viewed last first.
class Explorer::Parts::PassTask : public Task, public BlockWorker {
 public:
  explicit PassTask(Parts& parts) : Task(Urgency::kPass), parts_(parts) {}

  bool step(const Execution& execution) override {
    std::shared_ptr<HeadStore> head;
    std::int64_t block = 0;
    {
      const std::lock_guard lock(parts_.mutex);
      const auto chosen = choose();
      if (!chosen) {
        parts_.pass_queued = false;
        return true;
      }
      head = chosen->store;
      block = *next_block(*head, chosen->asked);
    }
    const bool cells = parts_.make_room(*head, block, false);
    if (!cells && head->has_lse(block)) {
      // Another head needs the memory now. The next request for this head tries again.
      const std::lock_guard lock(parts_.mutex);
      parts_.end_pass(*head);
      return false;
    }
    work(*head, block, cells, execution);
    const std::lock_guard lock(parts_.mutex);
    ++parts_.counts.blocks;
    return false;
  }

  void fail(std::exception_ptr) override {
    // Whoever asks for a tile of the block gets the error. Without a pass, the rest still works.
    const std::lock_guard lock(parts_.mutex);
    for (auto& [key, head] : parts_.heads) parts_.end_pass(*head.store);
    parts_.pass_queued = false;
  }

 private:
  /// Returns the head viewed last of those that want the pass, or null.
  const KnownHead* choose() {
    const KnownHead* best = nullptr;
    for (auto& [key, head] : parts_.heads) {
      if (!head.wants_pass || head.store->paused()) continue;
      if (head.store->complete()) {
        parts_.end_pass(*head.store);
      } else if (best == nullptr || best->viewed < head.viewed) {
        best = &head;
      }
    }
    return best;
  }

  Parts& parts_;
};

Explorer::Parts::Parts(std::vector<Input> given, const ExplorerOptions& with)
    : opened(std::move(given)), settings(with), cache(with.memory / 4), scheduler(with.threads) {}

void Explorer::Parts::require_memory(const std::vector<Input>& inputs, std::int64_t memory) {
  std::int64_t needed = kMinMemory;
  for (const Input& input : inputs) {
    for (const Layer& layer : input.layers) {
      const RecordedAttention& attention = layer.attention;
      const bool wide = attention.query->dtype() == DType::kFloat64;
      const std::int64_t lse = attention.lse.defined() ? 0 : layer.queries() * (wide ? 8 : 4);
      needed = std::max({needed, 4 * lse, 2 * Pyramid::least_bytes(layer.queries(), layer.keys())});
    }
  }
  if (memory < needed) {
    fail_argument("memory", "expected {} bytes or more for these inputs, got {}", needed, memory);
  }
}

const Layer& Explorer::Parts::layer_of(const HeadPlace& head) const {
  check_index("input", static_cast<std::int64_t>(head.input), std::ssize(opened));
  const std::vector<Layer>& layers = opened[head.input].layers;
  check_index("layer", static_cast<std::int64_t>(head.layer), std::ssize(layers));
  return layers[head.layer];
}

Explorer::Parts::KnownHead& Explorer::Parts::known(const HeadPlace& head) {
  const Layer& layer = layer_of(head);
  check_index("head", head.head, layer.heads());
  const auto [place, added] =
      heads.try_emplace(HeadKey(head.input, head.layer, head.head), KnownHead());
  KnownHead& known = place->second;
  known.viewed = Clock::now();
  if (added) {
    try {
      known.store = std::make_shared<HeadStore>(head, layer, cell_budget());
    } catch (...) {
      heads.erase(place);
      throw;
    }
    forget_heads(head);
  }
  return known;
}

void Explorer::Parts::forget_heads(const HeadPlace& except) {
  while (true) {
    std::int64_t bytes = 0;
    auto oldest = heads.end();
    for (auto head = heads.begin(); head != heads.end(); ++head) {
      bytes += head->second.store->lse_bytes();
      if (head->second.store->place() == except || head->second.store->lse_bytes() == 0) continue;
      if (oldest == heads.end() || head->second.viewed < oldest->second.viewed) oldest = head;
    }
    if (bytes <= settings.memory / 4 || oldest == heads.end()) return;
    heads.erase(oldest);
  }
}

std::optional<std::vector<FrameBytes>> Explorer::Parts::find_thumbnails(HeadPlace place,
                                                                        Pool reduce) {
  std::vector<FrameBytes> frames;
  const std::int64_t all = layer_of(place).heads();
  for (place.head = 0; place.head < all; ++place.head) {
    frames.push_back(cache.find(thumbnail_key(place, reduce)));
    if (!frames.back()) return std::nullopt;
  }
  return frames;
}

void Explorer::Parts::queue_pass() {
  if (pass_queued) return;
  pass_queued = true;
  scheduler.add(std::make_shared<PassTask>(*this));
}

void Explorer::Parts::end_pass(HeadStore& head) {
  head.set_running(false);
  const HeadPlace& place = head.place();
  const auto found = heads.find(HeadKey(place.input, place.layer, place.head));
  if (found != heads.end()) found->second.wants_pass = false;
}

bool Explorer::Parts::make_room(const HeadStore& head, std::int64_t block, bool forced) {
  const std::int64_t needed = head.pyramid().bytes_of(block);
  const std::lock_guard lock(mutex);
  while (true) {
    std::int64_t bytes = needed;
    KnownHead* oldest = nullptr;
    for (auto& [key, other] : heads) {
      bytes += other.store->cell_bytes();
      if (other.store.get() == &head || other.store->cell_bytes() == 0) continue;
      if (oldest == nullptr || other.viewed < oldest->viewed) oldest = &other;
    }
    if (bytes <= cell_budget()) return true;
    if (oldest == nullptr || (!forced && Clock::now() - oldest->viewed < kViewed)) return false;
    oldest->store->drop_cells();
    end_pass(*oldest->store);
  }
}

template <class Made, class Result>
void Explorer::Parts::add(std::shared_ptr<Made> task, std::stop_token stop, Reply<Result> reply) {
  if (task->join(std::move(stop), std::move(reply))) scheduler.add(std::move(task));
}

template <class Key, class Made, class Result, class Make>
void Explorer::Parts::join_or_add(std::map<Key, std::weak_ptr<Made>>& tasks, const Key& key,
                                  std::stop_token stop, Reply<Result> reply, const Make& make) {
  std::weak_ptr<Made>& place = tasks[key];
  if (const auto running = place.lock(); running && running->join(stop, reply)) return;
  const std::shared_ptr<Made> task = make();
  place = task;
  add(task, std::move(stop), std::move(reply));
}

Explorer::Explorer(std::vector<Input> inputs, const ExplorerOptions& options) {
  Parts::require_memory(inputs, options.memory);
  parts_ = std::make_unique<Parts>(std::move(inputs), options);
}

Explorer::~Explorer() = default;

const std::vector<Input>& Explorer::inputs() const { return parts_->opened; }

const Layer& Explorer::layer(const HeadPlace& head) const { return parts_->layer_of(head); }

HeadStatus Explorer::status(const HeadPlace& head) {
  const std::lock_guard lock(parts_->mutex);
  Parts::KnownHead& known = parts_->known(head);
  if (!known.store->paused() && !known.store->complete()) {
    known.wants_pass = true;
    known.store->set_running(true);
    parts_->queue_pass();
  }
  return known.store->status();
}

Counters Explorer::counters() const {
  const std::lock_guard lock(parts_->mutex);
  Counters counts = parts_->counts;
  counts.bytes = parts_->cache.bytes();
  for (const auto& [key, head] : parts_->heads) counts.bytes += head.store->bytes();
  counts.waiting = parts_->scheduler.waiting();
  return counts;
}

namespace {

/// Calls `ask`, and replies with the exception if it throws one.
template <class Result, class Ask>
void ask_or_fail(const Reply<Result>& reply, const Ask& ask) {
  try {
    ask();
  } catch (...) {
    reply(std::current_exception());
  }
}

}  // namespace

void Explorer::tile(const HeadPlace& head, const TilePlace& place, std::stop_token stop,
                    Reply<FrameBytes> reply) {
  FrameBytes found;
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    Parts::KnownHead& known = parts_->known(head);
    const std::shared_ptr<HeadStore>& store = known.store;
    const Pyramid& pyramid = store->pyramid();
    pyramid.check(place);
    known.asked = pyramid.queries_of(place);
    if (place.reduce == Pool::kSum) fail_argument("reduce", "expected max or mean, got sum");
    if (place.reduce == Pool::kMean && pyramid.stored(place.level)) {
      fail_argument("level", "expected less than {} for mean, got {}", pyramid.base_level(),
                    place.level);
    }
    const TileKey key = {head, place};
    found = parts_->cache.find(key);
    if (!found) found = hidden_tile(*store, header_of(pyramid, place), place);
    if (found) {
      ++parts_->counts.reused;
      return;
    }
    std::weak_ptr<Parts::TileTask>& running = parts_->tiles[key];
    if (const auto task = running.lock(); task && task->join(stop, reply)) {
      ++parts_->counts.reused;
      return;
    }
    const auto task = std::make_shared<Parts::TileTask>(*parts_, store, place);
    running = task;
    parts_->add(task, stop, reply);
  });
  if (found && !stop.stop_requested()) reply(found);
}

void Explorer::cell(const HeadPlace& head, std::int64_t query, std::int64_t key,
                    std::stop_token stop, Reply<CellAnswer> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    check_index("query", query, store->pyramid().queries());
    check_index("key", key, store->pyramid().keys());
    parts_->add(std::make_shared<Parts::CellTask>(store, query, key), stop, reply);
  });
}

void Explorer::row(const HeadPlace& head, std::int64_t query, std::int64_t top,
                   std::stop_token stop, Reply<RowAnswer> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    check_index("query", query, store->pyramid().queries());
    check_top(top);
    parts_->add(std::make_shared<Parts::RowTask>(store, query, top), stop, reply);
  });
}

void Explorer::column(const HeadPlace& head, std::int64_t key, std::int64_t top,
                      std::stop_token stop, Reply<ColumnAnswer> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    check_index("key", key, store->pyramid().keys());
    check_top(top);
    parts_->add(std::make_shared<Parts::ColumnTask>(*parts_, store, key, top), stop, reply);
  });
}

void Explorer::lines(const HeadPlace& head, LineRequest request, std::stop_token stop,
                     Reply<std::vector<float>> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    const std::shared_ptr<HeadStore> store = parts_->known(head).store;
    const Pyramid& pyramid = store->pyramid();
    const char* const name = request.of_keys ? "query" : "key";
    if (request.lines.empty()) fail_argument(name, "expected one or more, got none");
    for (const std::int64_t line : request.lines) {
      check_index(name, line, request.of_keys ? pyramid.queries() : pyramid.keys());
    }
    check_range("range", request.range, request.of_keys ? pyramid.keys() : pyramid.queries());
    parts_->add(std::make_shared<Parts::LinesTask>(*parts_, store, std::move(request)), stop,
                reply);
  });
}

void Explorer::heads(const HeadPlace& layer, std::stop_token stop,
                     Reply<std::vector<HeadNumbers>> reply) {
  std::optional<std::vector<HeadNumbers>> found;
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    parts_->layer_of(layer);
    const Parts::LayerKey key = {layer.input, layer.layer};
    if (const auto known = parts_->head_numbers.find(key); known != parts_->head_numbers.end()) {
      found = known->second;
      return;
    }
    parts_->join_or_add(parts_->head_tasks, key, stop, reply,
                        [&] { return std::make_shared<Parts::HeadsTask>(*parts_, layer); });
  });
  if (found && !stop.stop_requested()) reply(std::move(*found));
}

void Explorer::thumbnails(const HeadPlace& layer, Pool reduce, std::stop_token stop,
                          Reply<std::vector<FrameBytes>> reply) {
  std::optional<std::vector<FrameBytes>> found;
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    parts_->layer_of(layer);
    if (reduce == Pool::kSum) fail_argument("reduce", "expected max or mean, got sum");
    const Parts::ThumbKey key = {layer.input, layer.layer, reduce};
    found = parts_->find_thumbnails(layer, reduce);
    if (found) return;
    parts_->join_or_add(parts_->thumbnail_tasks, key, stop, reply, [&] {
      return std::make_shared<Parts::ThumbnailsTask>(*parts_, layer, reduce);
    });
  });
  if (found && !stop.stop_requested()) reply(std::move(*found));
}

void Explorer::map(const HeadPlace& head, const MapRequest& request, std::stop_token stop,
                   Reply<AttentionMap> reply) {
  ask_or_fail(reply, [&] {
    const std::lock_guard lock(parts_->mutex);
    check_index("head", head.head, parts_->layer_of(head).heads());
    parts_->add(std::make_shared<Parts::MapTask>(*parts_, head, request), stop, reply);
  });
}

void Explorer::start_pass(const HeadPlace& head, IndexRange queries) {
  const std::lock_guard lock(parts_->mutex);
  Parts::KnownHead& known = parts_->known(head);
  check_range("rows", queries, known.store->pyramid().queries());
  known.asked = queries;
  known.store->set_paused(false);
  if (known.store->complete()) return;
  known.wants_pass = true;
  known.store->set_running(true);
  parts_->queue_pass();
}

void Explorer::stop_pass(const HeadPlace& head) {
  std::shared_ptr<HeadStore> store;
  {
    const std::lock_guard lock(parts_->mutex);
    store = parts_->known(head).store;
    store->set_paused(true);
    parts_->end_pass(*store);
  }
  parts_->scheduler.interrupt([&](const Task& task) {
    const auto* const worker = dynamic_cast<const BlockWorker*>(&task);
    return worker != nullptr && worker->head_in_work() == store.get();
  });
}

const std::vector<std::string>& Explorer::number_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const HeadNumber& number : kHeadNumbers) all.emplace_back(number.name);
    all.emplace_back("induction");
    all.emplace_back("duplicate");
    return all;
  }();
  return names;
}

}  // namespace fovea::view
