// SPDX-License-Identifier: Apache-2.0
//
// The state of an Explorer (explorer_parts.h).

#include "view/explorer/explorer_parts.h"

#include <algorithm>

#include "view/explorer/pass.h"
#include "view/explorer/tasks.h"

namespace fovea::view {
namespace {

/// The cells of a head are not dropped for the pass of another for so long after it was viewed. A
/// page that shows a head asks about it every second.
constexpr std::chrono::seconds kViewed(2);
constexpr std::int64_t kMinMemory = std::int64_t{4} << 20;

}  // namespace

ExplorerParts::ExplorerParts(std::vector<Input> given, const ExplorerOptions& with)
    : opened(std::move(given)), settings(with), cache(with.memory / 4), scheduler(with.threads) {}

void ExplorerParts::require_memory(const std::vector<Input>& inputs, std::int64_t memory) {
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

const Layer& ExplorerParts::layer_of(const HeadPlace& head) const {
  check_index("input", static_cast<std::int64_t>(head.input), std::ssize(opened));
  const std::vector<Layer>& layers = opened[head.input].layers;
  check_index("layer", static_cast<std::int64_t>(head.layer), std::ssize(layers));
  return layers[head.layer];
}

ExplorerParts::KnownHead& ExplorerParts::known(const HeadPlace& head) {
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

void ExplorerParts::forget_heads(const HeadPlace& except) {
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

std::optional<std::vector<FrameBytes>> ExplorerParts::find_thumbnails(HeadPlace place,
                                                                      Pool reduce) {
  std::vector<FrameBytes> frames;
  const std::int64_t all = layer_of(place).heads();
  for (place.head = 0; place.head < all; ++place.head) {
    frames.push_back(cache.find(thumbnail_key(place, reduce)));
    if (!frames.back()) return std::nullopt;
  }
  return frames;
}

void ExplorerParts::want_pass(KnownHead& head) {
  if (head.store->paused() || head.store->complete()) return;
  head.wants_pass = true;
  head.store->set_running(true);
  if (pass_queued) return;
  pass_queued = true;
  scheduler.add(make_pass_task(*this));
}

FrameBytes ExplorerParts::stored_tile(KnownHead& head, const TilePlace& tile) {
  const TileCells cells = tile_of_blocks(head.store->pyramid(), tile, head.store->cells());
  auto frame = std::make_shared<const std::string>(
      encode_frame(header_of(head.store->pyramid(), tile), cells.codes, cells.rows));
  if (!cells.rows.empty()) {
    want_pass(head);
    return frame;
  }
  head.store->note_cells(tile.level, cells.codes);
  cache.store({head.store->place(), tile}, frame);
  ++counts.computed;
  return frame;
}

void ExplorerParts::end_pass(HeadStore& head) {
  head.set_running(false);
  const HeadPlace& place = head.place();
  const auto found = heads.find(HeadKey(place.input, place.layer, place.head));
  if (found != heads.end()) found->second.wants_pass = false;
}

bool ExplorerParts::make_room(const HeadStore& head, std::int64_t block) {
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
    if (oldest == nullptr || Clock::now() - oldest->viewed < kViewed) return false;
    oldest->store->drop_cells();
    end_pass(*oldest->store);
  }
}

}  // namespace fovea::view
