// SPDX-License-Identifier: Apache-2.0
//
// The tasks of an Explorer, one for each kind of request, and the pass.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "view/explorer/explorer_parts.h"
#include "view/explorer/head_store.h"
#include "view/explorer/scheduler.h"

namespace fovea::view {

template <class Result>
using TaskOf = std::shared_ptr<RequestTask<Result>>;

/// A tile, with the row blocks that it needs.
TaskOf<FrameBytes> make_tile_task(ExplorerParts& parts, std::shared_ptr<HeadStore> head,
                                  const TilePlace& tile);
/// The pass over the rows of all heads that want it, the one viewed last first.
std::shared_ptr<Task> make_pass_task(ExplorerParts& parts);

TaskOf<CellAnswer> make_cell_task(std::shared_ptr<HeadStore> head, std::int64_t query,
                                  std::int64_t key);
TaskOf<RowAnswer> make_row_task(std::shared_ptr<HeadStore> head, std::int64_t query,
                                std::int64_t top);
TaskOf<ColumnAnswer> make_column_task(ExplorerParts& parts, std::shared_ptr<HeadStore> head,
                                      std::int64_t key, std::int64_t top);
TaskOf<std::vector<float>> make_lines_task(ExplorerParts& parts, std::shared_ptr<HeadStore> head,
                                           LineRequest request);

TaskOf<std::vector<HeadNumbers>> make_heads_task(ExplorerParts& parts, const HeadPlace& layer);
TaskOf<std::vector<FrameBytes>> make_thumbnails_task(ExplorerParts& parts, const HeadPlace& layer,
                                                     Pool reduce);
TaskOf<AttentionMap> make_map_task(ExplorerParts& parts, const HeadPlace& head,
                                   const MapRequest& request);

}  // namespace fovea::view
