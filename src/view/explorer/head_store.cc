// SPDX-License-Identifier: Apache-2.0
//
// The stored results of one head (head_store.h).

#include "view/explorer/head_store.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fovea::view {
namespace {

ProblemPart part_of_layer(const Layer& layer, std::int64_t head) {
  return {layer.attention.options,
          layer.attention.shape(),
          {.item = layer.batch, .head = head, .first_query = 0, .queries = layer.queries()}};
}

Pyramid pyramid_of(const ProblemPart& part, std::int64_t most_cell_bytes) {
  const ProblemShape shape = part.shape();
  const ScorePosition row = {.offset = query_offset(part.options(), shape, 0)};
  return {part.options().mask, row, shape.q_len, shape.kv_len, most_cell_bytes};
}

}  // namespace

HeadStore::HeadStore(const HeadPlace& place, const Layer& layer, std::int64_t most_cell_bytes)
    : place_(place),
      part_(part_of_layer(layer, place.head)),
      dtype_(layer.attention.query->dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
      query_(part_.queries_of(layer.attention.query)),
      key_(part_.keys_of(layer.attention.key)),
      recorded_lse_(layer.attention.lse.defined() ? part_.numbers_of(layer.attention.lse)
                                                  : TensorView()),
      pyramid_(pyramid_of(part_, most_cell_bytes)) {
  const auto blocks = static_cast<std::size_t>(pyramid_.blocks());
  if (!recorded_lse_.defined()) lse_ = Tensor(dtype_, {1, 1, pyramid_.queries()});
  lse_known_.assign(blocks, recorded_lse_.defined());
  lse_blocks_ = recorded_lse_.defined() ? pyramid_.blocks() : 0;
  cells_.resize(blocks);
  const auto levels = static_cast<std::size_t>(pyramid_.levels());
  largest_.assign(levels, 0);
  smallest_.assign(levels, 0);
  count_done();
}

AttentionOptions HeadStore::options(const Execution& execution) const {
  AttentionOptions options = part_.options();
  options.execution = execution;
  return options;
}

ScorePosition HeadStore::at(std::int64_t query, std::int64_t key) const {
  return {.query = query, .key = key, .offset = query_offset(part_.options(), part_.shape(), 0)};
}

Visibility HeadStore::classify(const IndexRange& queries, const IndexRange& keys) const {
  return part_.options().mask.classify(
      {.first = at(queries.begin, keys.begin), .queries = queries.size(), .keys = keys.size()});
}

std::int64_t HeadStore::lse_bytes() const {
  return lse_.size() * static_cast<std::int64_t>(dtype_size(dtype_));
}

WeightInputs HeadStore::inputs() const {
  return {query_, key_, recorded_lse_.defined() ? recorded_lse_ : lse_.view()};
}

bool HeadStore::has_lse(std::int64_t block) const {
  return lse_known_[static_cast<std::size_t>(block)];
}

double HeadStore::cost(std::int64_t block) const {
  return static_cast<double>(pyramid_.queries_of(block).size()) *
         static_cast<double>(pyramid_.keys_of(block).size());
}

RowState HeadStore::cells_state(std::int64_t block) const {
  const auto& cells = cells_[static_cast<std::size_t>(block)];
  if (!cells) return RowState::kUnknown;
  return cells->preview() ? RowState::kPreview : RowState::kFinal;
}

BlockList HeadStore::cells() const {
  const std::lock_guard lock(mutex_);
  return cells_;
}

void HeadStore::count_done() {
  std::int64_t done = 0;
  double left = 0.0;
  std::string states;
  for (std::int64_t block = 0; block < pyramid_.blocks(); ++block) {
    const bool all = block_done(block);
    if (all) {
      ++done;
    } else {
      left += cost(block);
    }
    const RowState state = all ? RowState::kFinal : cells_state(block);
    states.push_back(static_cast<char>('0' + static_cast<int>(state)));
  }
  const std::lock_guard lock(mutex_);
  done_ = done;
  cost_left_ = left;
  states_ = std::move(states);
}

bool HeadStore::complete() const {
  const std::lock_guard lock(mutex_);
  return done_ == pyramid_.blocks();
}

void HeadStore::store_lse(std::int64_t block, const Tensor& lse) {
  const IndexRange queries = pyramid_.queries_of(block);
  for (std::int64_t i = 0; i < queries.size(); ++i) {
    set_value(lse_, {0, 0, queries.begin + i}, lse.value({0, 0, i}));
  }
  lse_known_[static_cast<std::size_t>(block)] = true;
  {
    const std::lock_guard lock(mutex_);
    ++lse_blocks_;
  }
  count_done();
}

void HeadStore::store_cells(std::int64_t block, std::shared_ptr<const BlockCells> cells) {
  if (!cells->preview()) {
    for (int level = pyramid_.base_level(); level <= cells->coarsest(); ++level) {
      note_cells(level, cells->level(level).codes);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const BlockCells>& place = cells_[static_cast<std::size_t>(block)];
    cell_bytes_ += cells->bytes() - (place ? place->bytes() : 0);
    place = std::move(cells);
  }
  count_done();
}

void HeadStore::note_time(std::int64_t block, double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_ += seconds;
  cost_timed_ += cost(block);
}

void HeadStore::drop_cells() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& cells : cells_) cells.reset();
    cell_bytes_ = 0;
  }
  count_done();
}

void HeadStore::note_cells(int level, const std::vector<Code>& codes) {
  Code largest = 0, smallest = std::numeric_limits<Code>::max();
  for (const Code code : codes) {
    largest = std::max(largest, code);
    if (code >= kMinCode) smallest = std::min(smallest, code);
  }
  if (largest < kMinCode) return;
  const auto at = static_cast<std::size_t>(level);
  const std::lock_guard lock(mutex_);
  largest_[at] = std::max(largest_[at], largest);
  smallest_[at] = smallest_[at] == 0 ? smallest : std::min(smallest_[at], smallest);
}

HeadStatus HeadStore::status() const {
  using State = PassProgress::State;
  HeadStatus status = {.levels = pyramid_.levels(),
                       .base_level = pyramid_.base_level(),
                       .mean_levels = std::min(pyramid_.base_level(), pyramid_.levels()),
                       .row_block = kRowBlock};
  const auto values = [](const std::vector<Code>& codes) {
    std::vector<double> decoded;
    for (const Code code : codes) {
      decoded.push_back(code == 0 ? std::numeric_limits<double>::quiet_NaN() : decode_weight(code));
    }
    return decoded;
  };
  const std::lock_guard lock(mutex_);
  status.lse_known = lse_blocks_ == pyramid_.blocks();
  status.largest = values(largest_);
  status.smallest = values(smallest_);
  status.blocks = states_;
  PassProgress& pass = status.pass;
  pass.done = done_;
  pass.total = pyramid_.blocks();
  pass.state = done_ == pass.total ? State::kDone
               : paused_           ? State::kPaused
               : running_          ? State::kRunning
                                   : State::kIdle;
  if (pass.state == State::kRunning && cost_timed_ > 0.0) {
    pass.seconds_left = seconds_ / cost_timed_ * cost_left_;
  }
  return status;
}

}  // namespace fovea::view
