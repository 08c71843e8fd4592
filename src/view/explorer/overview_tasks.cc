// SPDX-License-Identifier: Apache-2.0
//
// The heads of a layer in numbers and as thumbnails, and exported maps (tasks.h).

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "fovea/analysis.h"

#include "problem/part.h"
#include "recording/head_statistics.h"
#include "view/explorer/pass.h"
#include "view/explorer/tasks.h"

namespace fovea::view {
namespace {

constexpr std::int64_t kThumbnailSide = 64;

/// One head per unit.
class HeadsTask : public RequestTask<std::vector<HeadNumbers>> {
 public:
  HeadsTask(ExplorerParts& parts, const HeadPlace& place)
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
  ExplorerParts& parts_;
  const HeadPlace place_;
  std::vector<engine::HeadTold> told_;
};

/// One head per unit.
class ThumbnailsTask : public RequestTask<std::vector<FrameBytes>> {
 public:
  ThumbnailsTask(ExplorerParts& parts, const HeadPlace& place, Pool reduce)
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
  ExplorerParts& parts_;
  const HeadPlace place_;
  const Pool reduce_;
  std::vector<FrameBytes> frames_;
};

class MapTask : public RequestTask<AttentionMap> {
 public:
  MapTask(ExplorerParts& parts, const HeadPlace& place, const MapRequest& request)
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
  ExplorerParts& parts_;
  const HeadPlace place_;
  MapRequest request_;
};

}  // namespace

TaskOf<std::vector<HeadNumbers>> make_heads_task(ExplorerParts& parts, const HeadPlace& layer) {
  return std::make_shared<HeadsTask>(parts, layer);
}

TaskOf<std::vector<FrameBytes>> make_thumbnails_task(ExplorerParts& parts, const HeadPlace& layer,
                                                     Pool reduce) {
  return std::make_shared<ThumbnailsTask>(parts, layer, reduce);
}

TaskOf<AttentionMap> make_map_task(ExplorerParts& parts, const HeadPlace& head,
                                   const MapRequest& request) {
  return std::make_shared<MapTask>(parts, head, request);
}

}  // namespace fovea::view
